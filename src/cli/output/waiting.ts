import { cutText, printable } from "./text.js";

/** Where to show the indicator, and whether the stream is a terminal. */
type Screen = Pick<NodeJS.WriteStream, "write" | "isTTY" | "columns">;

const FRAMES = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
const FRAME_MS = 100;
/** Waits shorter than this show no indicator. */
const PATIENCE_MS = 300;

/** While `work` runs, a terminal shows what is waited for and for how long; elsewhere nothing is shown. */
export async function whileWaiting<T>(screen: Screen, what: string, work: PromiseLike<T>): Promise<T> {
  if (screen.isTTY !== true) return await work;
  const started = performance.now();
  let frame = 0;
  const timer = setInterval(() => {
    const waitedMs = performance.now() - started;
    if (waitedMs < PATIENCE_MS) return;
    const seconds = ` ${Math.floor(waitedMs / 1000)} s`;
    // A line that wraps cannot be erased.
    const room = (screen.columns || 80) - "⠋ ".length - seconds.length - 1;
    screen.write(
      `\r\x1b[K${FRAMES[frame++ % FRAMES.length]} ${cutText(printable(what), Math.max(1, room), "middle")}${seconds}`,
    );
  }, FRAME_MS);
  try {
    return await work;
  } finally {
    clearInterval(timer);
    if (frame > 0) screen.write("\r\x1b[K");
  }
}
