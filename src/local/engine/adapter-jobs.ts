import type { LoraAdapter } from "./training/adapter.js";

/** One call of an adapter. */
export type Job = { failed(error: unknown): void } /** A training pass, run a step at a time. */ & (
  | { kind: "training"; steps: AsyncGenerator<void, unknown>; done(result: unknown): void }
  /** Runs at once when `ready`; with `alone`, only while no sample of this adapter is running. Never rejects. */
  | { kind: "once"; alone: boolean; ready(): boolean; run(): Promise<void> }
  /** A sample: runs on beside the other jobs until the promise settles. */
  | { kind: "sample"; requestId: string; start(): Promise<unknown> }
);

/** The calls of one adapter in the order they were made: samples run side by side, changes of the weights alone. */
export class AdapterJobs {
  adapter: LoraAdapter | undefined;
  readonly #jobs: Job[] = [];
  readonly #wake: () => void;
  #runningSamples = 0;

  /** `wake` is called when there is a new job, or something that was waited for has ended. */
  constructor(wake: () => void) {
    this.#wake = wake;
  }

  get isEmpty(): boolean {
    return this.#jobs.length === 0 && this.#runningSamples === 0;
  }

  push(job: Job): void {
    this.#jobs.push(job);
    this.#wake();
  }

  /** A training step is what comes next. */
  get isTrainingNext(): boolean {
    return this.#jobs[0]?.kind === "training";
  }

  /** Runs everything that can run without a training step; true when there was something. */
  async advance(): Promise<boolean> {
    let ran = false;
    for (;;) {
      const job = this.#jobs[0];
      if (!job || job.kind === "training") return ran;
      if (job.kind === "once") {
        if (!job.ready() || (job.alone && this.#runningSamples > 0)) return ran;
        this.#jobs.shift();
        await job.run();
      } else {
        this.#jobs.shift();
        this.#runningSamples += 1;
        const ended = () => {
          this.#runningSamples -= 1;
          this.#wake();
        };
        job.start().then(ended, ended);
      }
      ran = true;
    }
  }

  /** Takes out a sample that has not started yet. */
  cancel(requestId: string, error: Error): void {
    const index = this.#jobs.findIndex((job) => job.kind === "sample" && job.requestId === requestId);
    if (index >= 0) this.#jobs.splice(index, 1)[0]!.failed(error);
  }

  /** One step of the training pass that comes next. */
  async trainStep(): Promise<void> {
    const job = this.#jobs[0];
    if (job?.kind !== "training") throw new Error("no training pass is next");
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
