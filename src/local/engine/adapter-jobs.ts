/** The calls of one adapter in the order they were made: samples run side by side, changes of the weights alone. */
import type { Adapter } from "./training/adapter.js";

interface JobEnd {
  failed(error: unknown): void;
}

export type Job =
  /** A training pass, run a step at a time. */
  | (JobEnd & { kind: "steps"; steps: AsyncGenerator<void, unknown>; done(result: unknown): void })
  /** Runs at once when `ready`; with `alone`, only while no sample of this adapter is running. */
  | (JobEnd & { kind: "once"; alone: boolean; ready(): boolean; run(): void })
  /** A sample: runs on beside the queue until the promise settles. */
  | (JobEnd & { kind: "start"; requestId: string; start(): Promise<unknown> });

export class AdapterJobs {
  adapter: Adapter | null = null;
  readonly #jobs: Job[] = [];
  readonly #wake: () => void;
  #samples = 0;

  /** `wake` is called when something that was waited for has ended. */
  constructor(wake: () => void) {
    this.#wake = wake;
  }

  get isEmpty(): boolean {
    return this.#jobs.length === 0 && this.#samples === 0;
  }

  push(job: Job): void {
    this.#jobs.push(job);
    this.#wake();
  }

  /** A training step is what comes next. */
  get trains(): boolean {
    return this.#jobs[0]?.kind === "steps";
  }

  /** Runs everything that can run without a training step; true when there was something. */
  advance(): boolean {
    let ran = false;
    for (;;) {
      const job = this.#jobs[0];
      if (!job || job.kind === "steps") return ran;
      if (job.kind === "once") {
        if (!job.ready() || (job.alone && this.#samples > 0)) return ran;
        this.#jobs.shift();
        job.run();
      } else {
        this.#jobs.shift();
        this.#samples += 1;
        const ended = () => {
          this.#samples -= 1;
          this.#wake();
        };
        job.start().then(ended, ended);
      }
      ran = true;
    }
  }

  /** Takes a sample that has not started yet out of the queue. */
  cancel(requestId: string, error: Error): void {
    const index = this.#jobs.findIndex((job) => job.kind === "start" && job.requestId === requestId);
    if (index >= 0) this.#jobs.splice(index, 1)[0]!.failed(error);
  }

  /** One step of the training pass at the head of the queue. */
  async step(): Promise<void> {
    const job = this.#jobs[0];
    if (job?.kind !== "steps") throw new Error("no training pass is next");
    try {
      const { done, value } = await job.steps.next();
      if (!done) return;
      this.#jobs.shift();
      job.done(value);
    } catch (error) {
      this.#jobs.shift();
      job.failed(error);
    }
  }

  close(error: Error): void {
    for (const job of this.#jobs.splice(0)) job.failed(error);
  }
}
