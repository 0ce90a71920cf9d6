import type { RunActivity, RunStatus, ServerStatus } from "../../local/server/index.js";
import { cutText, printable } from "../output/index.js";

const MAX_NAME_LENGTH = 40;

/** One line about an event of a run. */
export function eventLine(event: RunActivity): string {
  const { run } = event;
  const name = shownName(run);
  switch (event.type) {
    case "created":
      return `${name}: started, rank ${run.rank} on ${printable(run.baseModel)}`;
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

/** Progress of a run, in one line. */
export function runLine(run: RunStatus): string {
  return `${shownName(run)}: ${run.steps === 0 ? "no step yet" : progressOf(run)}`;
}

/** One line about the server's whole activity. */
export function statusLine(status: ServerStatus): string {
  if (!isBusy(status)) return "idle";
  const { trainingRequests, sequences, trainedTokensPerSecond, sampledTokensPerSecond } = status;
  const training = `training: ${trainingRequests} in the queue, ${Math.round(trainedTokensPerSecond)} tokens/s`;
  const sampling = `sampling: ${sequences} running, ${Math.round(sampledTokensPerSecond)} tokens/s`;
  return `${training} · ${sampling}`;
}

/** Whether the server is working, or was a moment ago. */
export function isBusy(status: ServerStatus): boolean {
  const { trainingRequests, sequences, trainedTokensPerSecond, sampledTokensPerSecond } = status;
  return trainingRequests + sequences + trainedTokensPerSecond + sampledTokensPerSecond > 0;
}

function progressOf({ steps, loss }: RunStatus, unit?: "steps"): string {
  const count = unit === undefined ? `step ${steps}` : `${steps} ${steps === 1 ? "step" : "steps"}`;
  return loss === undefined ? count : `${count}, loss ${loss.toPrecision(4)}`;
}

/** Names come from clients and may contain anything. */
function shownName({ name }: RunStatus): string {
  return cutText(printable(name), MAX_NAME_LENGTH);
}
