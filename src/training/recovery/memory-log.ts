import type { RecoveryLog, RunCheckpoint } from "./types.js";

/** Remembers a run until the process ends. */
export class MemoryLog implements RecoveryLog {
  readonly #checkpoints: RunCheckpoint[] = [];
  lastMetricsStep: number | undefined;

  resumableCheckpoints(): readonly RunCheckpoint[] {
    return this.#checkpoints;
  }

  async logMetrics(_metrics: object, step: number): Promise<void> {
    this.lastMetricsStep = step;
  }

  async logCheckpoint(checkpoint: RunCheckpoint): Promise<void> {
    this.#checkpoints.push(checkpoint);
  }
}
