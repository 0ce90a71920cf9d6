import type { RunMetrics } from "../../training/index.js";
import type { TrainingLogger } from "./logger.js";
import type { RunFolder } from "./run-folder.node.js";
import type { TrainingSpec } from "./run-training.js";
import { isDivergence, type RunWarning, RunWatch, warningText } from "./warnings.js";

/** Watches a run, and passes on what looks wrong: to the loggers, the metrics and `warnings.jsonl`. */
export class RunFindings {
  readonly #watch: RunWatch;
  readonly #parts: { readonly folder: RunFolder | undefined; readonly logger: Required<TrainingLogger> };
  /** The warning that says that the run has diverged. */
  divergence: RunWarning | undefined;

  constructor(
    { settings, hasRewards = false }: Pick<TrainingSpec<never>, "settings" | "hasRewards">,
    parts: { readonly folder: RunFolder | undefined; readonly logger: Required<TrainingLogger> },
  ) {
    const { steps, learningRate, recommendedRate } = settings;
    this.#watch = new RunWatch({ steps, learningRate, recommendedRate, hasRewards });
    this.#parts = parts;
  }

  /** Warns about settings. A run that continues has warned before. */
  begin(): void {
    if (this.#parts.folder?.lastMetricsStep === undefined) this.#tell(this.#watch.begin());
  }

  /** The metrics of a step, with the number of warnings of each kind that came with them. */
  look(metrics: RunMetrics, step: number): RunMetrics {
    const warnings = this.#watch.look(metrics, step);
    this.#tell(warnings);
    return { ...metrics, ...Object.fromEntries(warnings.map(({ kind }) => [`warnings/${kind}`, 1])) };
  }

  /** Warns about a loss that ends the run. */
  notANumber(step: number, loss: number): void {
    this.#tell(this.#watch.notANumber(step, "loss", loss));
  }

  /** Warns about something that the kind of training has found. */
  give(step: number, warning: Omit<RunWarning, "step">): void {
    this.#tell(this.#watch.give(step, warning));
  }

  #tell(warnings: readonly RunWarning[]): void {
    const { folder, logger } = this.#parts;
    for (const warning of warnings) {
      if (isDivergence(warning)) this.divergence ??= warning;
      void logger.note(warningText(warning));
      // A warning that cannot be written was still shown.
      folder?.logWarning(warning).catch(() => {});
    }
  }
}
