/** Display of the quickstart programs: lines of text, a progress bar and a curve. */

export interface Display {
  say(text?: string): void;
  progress(steps: number): Progress;
}

export interface Progress {
  /** `details` are shown beside the step count, such as "loss 0.52". */
  update(step: number, details: string): void;
  end(): void;
}

type Stream = Pick<NodeJS.WriteStream, "write"> & Partial<Pick<NodeJS.WriteStream, "isTTY" | "columns">>;

const BAR_WIDTH = 24;
const MIN_BAR_WIDTH = 4;
/** Number of lines that replace the bar if the output is not a terminal. */
const PLAIN_LINES = 10;

export function createDisplay(text: Stream = process.stdout, bar: Stream = process.stderr): Display {
  return {
    say: (line = "") => {
      text.write(`${line}\n`);
    },
    progress: (steps) => (bar.isTTY === true ? liveBar(bar, steps) : plainLines(bar, steps)),
  };
}

function liveBar(stream: Stream, steps: number): Progress {
  const started = performance.now();
  return {
    update: (step, details) => {
      const columns = (stream.columns || 80) - 1;
      const text = ` ${count(step, steps)}  ${details}  ${timeLeft(started, step, steps)}`;
      // Clears the bar before printing.
      const width = Math.max(MIN_BAR_WIDTH, Math.min(BAR_WIDTH, columns - 2 - text.length));
      const filled = Math.round((width * step) / steps);
      const line = `  ${"━".repeat(filled)}${"╌".repeat(width - filled)}${text}`;
      stream.write(`\r\x1b[K${line.slice(0, columns)}`);
    },
    end: () => {
      stream.write("\n");
    },
  };
}

function plainLines(stream: Stream, steps: number): Progress {
  const started = performance.now();
  const every = Math.ceil(steps / PLAIN_LINES);
  return {
    update: (step, details) => {
      if (step % every !== 0 && step !== steps) return;
      stream.write(`  step ${count(step, steps)}  ${details}  ${timeLeft(started, step, steps)}\n`);
    },
    end: () => {},
  };
}

const count = (step: number, steps: number) => `${String(step).padStart(String(steps).length)}/${steps}`;

function timeLeft(started: number, step: number, steps: number): string {
  const seconds = ((performance.now() - started) / 1000) * (steps / step - 1);
  return `${Math.ceil(seconds)} s left`;
}

export const percent = (share: number) => `${Math.round(100 * share)}%`;

const EIGHTHS = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/** A chart of values between 0 and 1; each column is the mean of its part of the values. */
export function drawCurve(values: readonly number[], { width = 60, height = 8 } = {}): string {
  const columns = Array.from(
    { length: Math.min(width, values.length) },
    (_, column, total = Math.min(width, values.length)) => {
      const from = Math.floor((column * values.length) / total);
      const part = values.slice(from, Math.max(from + 1, Math.floor(((column + 1) * values.length) / total)));
      return part.reduce((sum, value) => sum + value, 0) / part.length;
    },
  );
  const lines = Array.from({ length: height }, (_, line) => {
    const below = height - 1 - line;
    const label = line === 0 ? "100%" : line === height - 1 ? "0%" : "";
    const cells = columns.map((value) => {
      const eighths = Math.round(8 * (value * height - below));
      return EIGHTHS[Math.max(0, Math.min(8, eighths))];
    });
    return `  ${label.padStart(4)} │${cells.join("")}`;
  });
  return lines.join("\n");
}
