import type { RunActivity, ServerActivity } from "../../local/server/index.js";
import { cutText } from "../output/index.js";
import { eventLine, isBusy, runLine, statusLine } from "./activity-lines.js";

/** Where it is shown. */
type Screen = Pick<NodeJS.WriteStream, "write" | "isTTY" | "columns">;

const REDRAW_MS = 250;
const MAX_SHOWN_RUNS = 8;
/** Interval between lines of progress if the output is not a terminal. */
const STEP_LINE_MS = 10_000;
const STATUS_LINE_MS = 30_000;

/**
 * Shows a server's activity until the returned function is called. On a terminal, each run and the server have a line
 * that changes in place below the events; elsewhere all lines are printed at intervals.
 */
export function showActivity(activity: ServerActivity, screen: Screen): () => void {
  return screen.isTTY === true ? showLive(activity, screen) : showPlain(activity, screen);
}

function showPlain(activity: ServerActivity, screen: Screen): () => void {
  const toldAt = new Map<string, number>();
  const tell = (line: string) => screen.write(`${timeOfDay()}  ${line}\n`);
  const unsubscribe = activity.subscribe((event) => {
    const { id } = event.run;
    if (event.type === "step") {
      const now = performance.now();
      if (now < (toldAt.get(id) ?? Number.NEGATIVE_INFINITY) + STEP_LINE_MS) return;
      toldAt.set(id, now);
    }
    if (event.type === "ended") toldAt.delete(id);
    tell(eventLine(event));
  });
  const timer = setInterval(() => {
    const status = activity.status();
    if (isBusy(status)) tell(statusLine(status));
  }, STATUS_LINE_MS);
  return () => {
    clearInterval(timer);
    unsubscribe();
  };
}

function showLive(activity: ServerActivity, screen: Screen): () => void {
  let drawn: readonly string[] = [];
  const draw = (lines: readonly string[], above = "") => {
    const up = drawn.length > 1 ? `\x1b[${drawn.length - 1}A` : "";
    // A line that wraps cannot be erased.
    const room = (screen.columns || 80) - 1;
    drawn = lines.map((line) => cutText(line, room));
    screen.write(`${up}\r\x1b[J${above}${drawn.join("\n")}`);
  };
  const liveLines = () => {
    const status = activity.status();
    const shown = status.runs.slice(-MAX_SHOWN_RUNS).map((run) => `  ${runLine(run)}`);
    const more = status.runs.length - shown.length;
    return [...(more > 0 ? [`  and ${more} more runs`] : []), ...shown, statusLine(status)];
  };
  const unsubscribe = activity.subscribe((event: RunActivity) => {
    if (event.type !== "step") draw(liveLines(), `${timeOfDay()}  ${eventLine(event)}\n`);
  });
  const timer = setInterval(() => {
    const lines = liveLines();
    if (lines.join("\n") !== drawn.join("\n")) draw(lines);
  }, REDRAW_MS);
  draw(liveLines());
  return () => {
    clearInterval(timer);
    unsubscribe();
    draw([]);
  };
}

function timeOfDay(): string {
  return new Date().toTimeString().slice(0, "00:00:00".length);
}
