import type { RunEvent, RunStatus, ServerStatus } from "../../local/server/index.js";
import { cutText, printable } from "../output/index.js";

const MAX_NAME_LENGTH = 40;

/** What happened to a run, in a line. */
export function eventLine(event: RunEvent): string {
  const { run } = event;
  const name = shownName(run);
  switch (event.type) {
    case "created":
      return `${name}: begun, rank ${run.rank} on ${printable(run.baseModel)}`;
    case "step":
      return `${name}: ${progressOf(run)}`;
    case "saved":
      return `${name}: saved ${printable(event.path)}`;
    case "ended":
      return `${name}: ${event.end} after ${progressOf(run, "steps")}`;
    default:
      return event satisfies never;
  }
}

/** How far a run is, in a line. */
export function runLine(run: RunStatus): string {
  return `${shownName(run)}: ${run.steps === 0 ? "no step yet" : progressOf(run)}`;
}

/** What the server as a whole does, in a line. */
export function statusLine(status: ServerStatus): string {
  if (!isBusy(status)) return "idle";
  const { trainingRequests, sequences, trainedTokensPerSecond, sampledTokensPerSecond } = status;
  const training = `training: ${trainingRequests} in the queue, ${Math.round(trainedTokensPerSecond)} tokens/s`;
  const sampling = `sampling: ${sequences} running, ${Math.round(sampledTokensPerSecond)} tokens/s`;
  return `${training} · ${sampling}`;
}

/** Whether the server has anything to do, or had a moment ago. */
export function isBusy(status: ServerStatus): boolean {
  const { trainingRequests, sequences, trainedTokensPerSecond, sampledTokensPerSecond } = status;
  return trainingRequests + sequences + trainedTokensPerSecond + sampledTokensPerSecond > 0;
}

function progressOf({ steps, loss }: RunStatus, unit?: "steps"): string {
  const count = unit === undefined ? `step ${steps}` : `${steps} ${steps === 1 ? "step" : "steps"}`;
  return loss === undefined ? count : `${count}, loss ${loss.toPrecision(4)}`;
}

/** Names come from clients, who may write anything. */
function shownName({ name }: RunStatus): string {
  return cutText(printable(name), MAX_NAME_LENGTH);
}
