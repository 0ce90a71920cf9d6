import type { RunMetrics } from "../../training/index.js";

/** Follows a training run: writes it down, draws it, sends it to W&B or MLflow. */
export interface TrainingLogger {
  /** Called once, before the first step: the settings and counts of the run, as in `config.json`. */
  config(config: Readonly<Record<string, unknown>>): void | Promise<void>;
  /** Called for each step, in order, and once more for what is measured after the last. */
  metrics(metrics: RunMetrics, step: number): void | Promise<void>;
  /** Called when the run is over, however it ended. */
  close(): void | Promise<void>;
  /** Something for people to read: what is about to be done, a checkpoint, trouble and how it was met. */
  note?(text: string): void | Promise<void>;
}
