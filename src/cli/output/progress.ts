import type { CommandContext } from "../context.js";
import { humanBytes } from "./columns.js";
import { cutText } from "./text.js";

/** A line that shows progress. */
export interface ProgressBar {
  /** `total` is undefined if it is not known. */
  update(done: number, total: number | undefined): void;
  /** Removes the progress line. */
  end(): void;
}

const BAR_WIDTH = 24;
const REDRAW_MS = 80;

/** Makes a line that shows progress; it does nothing if standard error is not a terminal. */
export function progressBar({ stderr }: CommandContext, label: string, unit: "bytes" | "items"): ProgressBar {
  if (!stderr.isTTY) return { update: () => {}, end: () => {} };
  const amount = (value: number) => (unit === "bytes" ? humanBytes(value) : String(value));
  let started: { at: number; done: number } | undefined;
  let drawnAt = Number.NEGATIVE_INFINITY;
  return {
    update: (done, total) => {
      const now = performance.now();
      // Bytes of an earlier attempt do not count towards this one's speed.
      started ??= { at: now, done };
      if (now < drawnAt + REDRAW_MS && done !== total) return;
      drawnAt = now;
      const rate = (done - started.done) / ((now - started.at) / 1000);
      const parts = [label];
      if (total !== undefined && total > 0) {
        const share = Math.min(1, done / total);
        const filled = Math.round(BAR_WIDTH * share);
        parts.push(`${"━".repeat(filled)}${"╌".repeat(BAR_WIDTH - filled)}`);
        parts.push(`${Math.floor(100 * share)}%`, `${amount(done)} of ${amount(total)}`);
        if (rate > 0 && Number.isFinite(rate)) parts.push(`${Math.ceil((total - done) / rate)} s left`);
      } else parts.push(amount(done));
      stderr.write(`\r\x1b[K${cutText(parts.join("  "), (stderr.columns || 80) - 1)}`);
    },
    end: () => {
      stderr.write("\r\x1b[K");
    },
  };
}
