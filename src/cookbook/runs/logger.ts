import { messageOf } from "../../errors.js";
import type { RunMetrics } from "../../training/index.js";

/** Follows a training run: writes it down, draws it, or sends it to W&B or MLflow. */
export interface TrainingLogger {
  /** Called once, before the first step: the settings and counts of the run, as in `config.json`. */
  config(config: Readonly<Record<string, unknown>>): void | Promise<void>;
  /** Called for each step, in order, and once more with measurements after the last step. */
  metrics(metrics: RunMetrics, step: number): void | Promise<void>;
  /** Called when the run ends, even with an error. */
  close(): void | Promise<void>;
  /** Called with messages for people: what happens next, a checkpoint, a problem and its handling. */
  note?(text: string): void | Promise<void>;
}

/** Joins several loggers, called in order. A logger that fails is dropped; the others continue. */
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
          failures.push(`A logger failed and is not called again: ${messageOf(error)}`);
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
