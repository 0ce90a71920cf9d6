import type { TrainingLogger } from "../../cookbook/runs/index.js";
import type { SweepRecord, SweepRun } from "../../cookbook/sweeps/index.js";
import type { CommandContext } from "../context.js";
import { cutText, printable } from "../output/index.js";
import { changeText } from "./report.js";

/** Shows a sweep while it runs: a line for each run that begins or ends; a terminal also shows the steps of those that run. */
export class SweepDisplay {
  readonly #stderr: NodeJS.WriteStream;
  /** How far each running one is, by its folder. */
  readonly #running = new Map<string, string>();
  #isShown = false;

  constructor({ stderr }: CommandContext) {
    this.#stderr = stderr;
  }

  /** Follows the steps of a run. */
  loggers({ folder }: SweepRun): readonly TrainingLogger[] {
    let steps = 0;
    return [
      {
        config: (config) => {
          steps = Number(config["steps"] ?? 0);
        },
        metrics: (_, step) => {
          this.#running.set(folder, `${folder} ${Math.min(step + 1, steps)}/${steps}`);
          this.#draw();
        },
        close: () => {
          this.#running.delete(folder);
          this.clear();
        },
      },
    ];
  }

  change(run: SweepRun, sweep: SweepRecord): void {
    this.clear();
    this.#stderr.write(`${changeText(run, sweep)}\n`);
  }

  clear(): void {
    if (this.#isShown) this.#stderr.write("\r\x1b[K");
    this.#isShown = false;
  }

  #draw(): void {
    if (!this.#stderr.isTTY) return;
    const line = printable([...this.#running.values()].join("   "));
    this.#stderr.write(`\r\x1b[K${cutText(line, (this.#stderr.columns || 80) - 1)}`);
    this.#isShown = true;
  }
}
