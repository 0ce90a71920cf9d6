import { messageOf } from "../../errors.js";
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

/** Several as one, each told in the order of the calls. One that fails is left out, and the others are told. */
export function combineLoggers(loggers: readonly TrainingLogger[]): Required<TrainingLogger> {
  const active = new Set(loggers);
  let last: Promise<void> = Promise.resolve();
  const tell = (call: (logger: TrainingLogger) => void | Promise<void>): Promise<void> => {
    last = last.then(async () => {
      const failures: string[] = [];
      for (const logger of active) {
        try {
          await call(logger);
        } catch (error) {
          active.delete(logger);
          failures.push(`A logger failed and is told nothing more: ${messageOf(error)}`);
        }
      }
      for (const text of failures)
        for (const logger of active) await Promise.resolve(logger.note?.(text)).catch(() => {});
    });
    return last;
  };
  return {
    config: (config) => tell((logger) => logger.config(config)),
    metrics: (metrics, step) => tell((logger) => logger.metrics(metrics, step)),
    note: (text) => tell((logger) => logger.note?.(text)),
    close: () => tell((logger) => logger.close()),
  };
}
