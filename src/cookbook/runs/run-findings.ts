import type { RunMetrics } from "../../training/index.js";
import type { TrainingLogger } from "./logger.js";
import type { RunFolder } from "./run-folder.node.js";
import type { TrainingSpec } from "./run-training.js";
import {
  isDivergence,
  type RunWarning,
  RunWatch,
  type WarningKind,
  warningMetric,
  warningText,
} from "./warnings.js";

/** Watches a run, and passes on what looks wrong: to the loggers, the metrics and `warnings.jsonl`. */
export class RunFindings {
  readonly #watch: RunWatch;
  readonly #parts: { readonly folder: RunFolder | undefined; readonly logger: Required<TrainingLogger> };
  /** Kinds that `warnings.jsonl` has; a run that was killed may not have counted them in its metrics. */
  readonly #told = new Set<WarningKind>();
  #lastStep = -1;
  /** Counted in the next line of metrics. */
  #uncounted: WarningKind[] = [];
  /** The warning that says that the run has diverged. */
  divergence: RunWarning | undefined;
  /** Resolves when all warnings so far are in the folder. */
  written: Promise<unknown> = Promise.resolve();

  constructor(
    { settings, hasRewards = false }: Pick<TrainingSpec<never>, "settings" | "hasRewards">,
    parts: { readonly folder: RunFolder | undefined; readonly logger: Required<TrainingLogger> },
  ) {
    const { steps, learningRate, recommendedRate } = settings;
    this.#watch = new RunWatch({ steps, learningRate, recommendedRate, hasRewards });
    this.#parts = parts;
  }

  /** Takes up what the folder of an interrupted run holds, and warns about settings. */
  async begin(): Promise<void> {
    const { folder } = this.#parts;
    for (const line of (await folder?.readMetrics()) ?? []) this.#watch.recall(line);
    this.#lastStep = folder?.lastMetricsStep ?? -1;
    for (const warning of folder?.warnings ?? []) {
      this.#told.add(warning.kind);
      if (isDivergence(warning)) this.divergence ??= warning;
    }
    this.#tell(this.#watch.begin());
  }

  /**
   * The metrics of a step, with the number of warnings of each kind that came with them. The line of a step that is trained
   * again was looked at before.
   */
  look(metrics: RunMetrics, step: number): RunMetrics {
    if (step <= this.#lastStep) return metrics;
    this.#lastStep = step;
    this.#tell(this.#watch.look(metrics, step));
    const counts = this.#uncounted.map((kind) => [warningMetric(kind), 1]);
    this.#uncounted = [];
    return { ...metrics, ...Object.fromEntries(counts) };
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
      this.#uncounted.push(warning.kind);
      if (this.#told.has(warning.kind)) continue;
      this.#told.add(warning.kind);
      if (isDivergence(warning)) this.divergence ??= warning;
      void logger.note(warningText(warning));
      // A warning that cannot be written was still shown.
      const writing = folder?.logWarning(warning).catch(() => {});
      this.written = Promise.all([this.written, writing]);
    }
  }
}
