import { describe, expect, it, vi } from "vitest";
import { FakeClock } from "../../../test/support/fake-clock.js";
import { APIConnectionError, APIError, RequestFailedError, ValidationError } from "../../errors.js";
import { APIFuture } from "../../futures/index.js";
import { MemoryLog } from "./memory-log.js";
import { RunGaveUpError } from "./run-gave-up-error.js";
import { runWithRecovery } from "./run-with-recovery.js";
import type { RunCheckpoint, RunEvent, RunWithRecoveryOptions } from "./types.js";

const status = (code: number) =>
  APIError.from(code, new Headers(), { detail: "told so" }, { method: "POST", path: "/api/v1/optim_step" });

/** A server whose models are the list of steps trained into them, and that fails on request. */
class FakeServer {
  readonly saved = new Map<string, readonly number[]>();
  readonly closed: string[] = [];
  models = 0;
  services = 0;
  corrupted = false;
  runAnswer: () => { corrupted: boolean } = () => ({ corrupted: this.corrupted });
  /** Called with every request; an error that it throws fails the request. */
  onRequest: (name: string, argument: unknown, modelId: string) => unknown = () => undefined;
  lose: () => void = () => {};

  service = () => {
    this.services += 1;
    return new FakeService(this);
  };
}

class FakeService {
  readonly server: FakeServer;
  isClosed = false;
  constructor(server: FakeServer) {
    this.server = server;
  }
  async create(): Promise<FakeTraining> {
    await this.server.onRequest("create", undefined, "");
    return new FakeTraining(this, `run-${this.server.models++}`, []);
  }
  async createTrainingClientFromStateWithOptimizer(path: string): Promise<FakeTraining> {
    await this.server.onRequest("restore", path, "");
    const trained = this.server.saved.get(path);
    if (trained === undefined) throw status(404);
    return new FakeTraining(this, `run-${this.server.models++}`, [...trained]);
  }
  createRestClient() {
    return { getTrainingRun: async () => this.server.runAnswer() };
  }
  onSessionLost(callback: () => void) {
    this.server.lose = callback;
    return () => {
      this.server.lose = () => {};
    };
  }
  async close(how = "success") {
    this.isClosed = true;
    this.server.closed.push(how);
  }
}

class FakeTraining {
  readonly #service: FakeService;
  readonly modelId: string;
  readonly #trained: number[];
  #gradients: number[] = [];
  /** A model does what it is asked in the order of the requests. */
  #last: Promise<unknown> = Promise.resolve();
  constructor(service: FakeService, modelId: string, trained: number[]) {
    this.#service = service;
    this.modelId = modelId;
    this.#trained = trained;
  }
  forwardBackward(step: number) {
    return this.#request("forwardBackward", step, () => {
      this.#gradients.push(step);
      return step * 2;
    });
  }
  optimStep(step?: number) {
    return this.#request("optimStep", step, () => this.#trained.push(...this.#gradients.splice(0)));
  }
  saveState(name: string, options: { ttlSeconds?: number | undefined } = {}) {
    return this.#request("saveState", { name, ...options }, () => {
      const path = `tinker://${this.modelId}/weights/${name}`;
      this.#service.server.saved.set(path, [...this.#trained]);
      return { path };
    });
  }
  saveWeightsForSampler(name: string) {
    return this.#request("saveWeightsForSampler", name, () => ({
      path: `tinker://${this.modelId}/sampler_weights/${name}`,
    }));
  }
  #request<R>(name: string, argument: unknown, act: () => R): APIFuture<R> {
    if (this.#service.isClosed) throw new Error("closed");
    const result = this.#last.then(async () => {
      await this.#service.server.onRequest(name, argument, this.modelId);
      return act();
    });
    this.#last = result.catch(() => {});
    return new APIFuture({ submitted: Promise.resolve("id"), result });
  }
}

function setUp(options: Partial<RunWithRecoveryOptions<FakeService, FakeTraining>> = {}) {
  const server = new FakeServer();
  const clock = new FakeClock({ auto: true });
  const events: RunEvent[] = [];
  const log = new MemoryLog();
  const run = (more: typeof options = {}) =>
    runWithRecovery({
      service: server.service,
      start: (service) => service.create(),
      step: async (training, step) => {
        const loss = training.forwardBackward(step);
        training.optimStep(step);
        return { loss };
      },
      steps: 10,
      checkpointEvery: 4,
      log,
      clock,
      random: () => 0,
      onEvent: (event) => events.push(event),
      ...options,
      ...more,
    });
  const stages = () => events.map(({ type }) => type).filter((type) => type !== "step");
  const finalSteps = (path: string) => server.saved.get(path);
  return { server, clock, events, log, run, stages, finalSteps };
}

/** Fails the requests that `matches` says, as often as there are errors. */
function failing(
  server: FakeServer,
  matches: (name: string, argument: unknown) => boolean,
  ...errors: unknown[]
) {
  server.onRequest = (name, argument) => {
    if (matches(name, argument) && errors.length > 0) throw errors.shift();
  };
}

const everyStep = [...Array(10).keys()];

describe("runWithRecovery", () => {
  it("trains, saves before the first step, every few steps and at the end", async () => {
    const { server, events, run, log, stages, finalSteps } = setUp({ checkpointTtlSeconds: 60 });
    const saves: unknown[] = [];
    server.onRequest = (name, argument) => name === "saveState" && saves.push(argument);
    const { checkpoint, restores } = await run();
    expect(restores).toBe(0);
    expect(checkpoint).toEqual({
      name: "final",
      batch: 10,
      final: true,
      statePath: "tinker://run-0/weights/final",
      samplerPath: "tinker://run-0/sampler_weights/final",
    });
    expect(finalSteps(checkpoint.statePath)).toEqual(everyStep);
    expect(log.resumableCheckpoints().map(({ name }) => name)).toEqual([
      "000000",
      "000004",
      "000008",
      "final",
    ]);
    expect(saves).toMatchObject([
      { ttlSeconds: 60 },
      { ttlSeconds: 60 },
      { ttlSeconds: 60 },
      { ttlSeconds: undefined },
    ]);
    expect(stages()).toEqual(["started", ...Array(4).fill("checkpoint"), "finished"]);
    expect(events.filter(({ type }) => type === "step")).toEqual(
      everyStep.map((step) => ({ type: "step", step, metrics: { loss: step * 2 }, repeated: false })),
    );
    expect(server.closed).toEqual(["success"]);
  });

  it.each([
    ["the model is gone", status(410), "lost"],
    ["the model is not found", status(404), "lost"],
    [
      "the server was gone for longer than requests are retried",
      new APIConnectionError("refused"),
      "unreachable",
    ],
    ["the server fails", status(500), "server"],
    ["the order is lost", status(409), "server"],
    [
      "the request fails on the server",
      new RequestFailedError("broke", { requestId: "1", category: "server" }),
      "server",
    ],
    ["the cause is one of these", new Error("step failed", { cause: status(410) }), "lost"],
  ] as const)("restores when %s", async (_, error, reason) => {
    const { server, events, run, stages, finalSteps } = setUp();
    failing(server, (name, argument) => name === "optimStep" && argument === 6, error);
    const { checkpoint, restores } = await run();
    expect(restores).toBe(1);
    expect(finalSteps(checkpoint.statePath)).toEqual(everyStep);
    expect(stages()).toEqual([
      "started",
      "checkpoint",
      "checkpoint",
      "failed",
      "restoring",
      "restored",
      "checkpoint",
      "checkpoint",
      "finished",
    ]);
    expect(events.find(({ type }) => type === "failed")).toMatchObject({ reason, error });
    expect(events.find(({ type }) => type === "restored")).toMatchObject({
      attempt: 1,
      modelId: "run-1",
      checkpoint: { name: "000004", batch: 4 },
    });
    expect(server.services).toBe(2);
    expect(server.closed).toEqual(["errored", "success"]);
  });

  it("restores after a failure at any request of the run, each step trained once", async () => {
    const requests = 40;
    for (let failAt = 0; failAt < requests; failAt += 1) {
      const { server, run, log, finalSteps } = setUp();
      let count = 0;
      server.onRequest = () => {
        count += 1;
        if (count === failAt || count === failAt + 5) throw status(410);
      };
      const { checkpoint } = await run();
      expect(finalSteps(checkpoint.statePath), `failed at request ${failAt}`).toEqual(everyStep);
      for (const { batch, statePath } of log.resumableCheckpoints()) {
        expect(finalSteps(statePath)).toEqual(everyStep.slice(0, batch));
      }
    }
  });

  it("counts a failed request that the step did not wait for, and one whose error it swallowed", async () => {
    for (const swallow of [false, true]) {
      const { server, run, finalSteps } = setUp({
        step: async (training, step) => {
          const pass = training.forwardBackward(step);
          if (swallow) await pass.catch(() => {});
          training.optimStep(step);
        },
      });
      failing(server, (name, argument) => name === "forwardBackward" && argument === 5, status(503));
      const { checkpoint, restores } = await run();
      expect(restores).toBe(1);
      expect(finalSteps(checkpoint.statePath)).toEqual(everyStep);
    }
  });

  it("restores a run that the server calls corrupted, and keeps no checkpoint of it", async () => {
    const { server, events, run, log, finalSteps } = setUp();
    server.onRequest = (name, argument, modelId) => {
      if (modelId === "run-0" && name === "optimStep" && argument === 6) server.corrupted = true;
      if (name === "restore") server.corrupted = false;
    };
    const { checkpoint } = await run();
    expect(events.find(({ type }) => type === "failed")).toMatchObject({ reason: "corrupted" });
    expect(log.resumableCheckpoints().map(({ statePath }) => statePath.split("/")[2])).toEqual([
      "run-0",
      "run-0",
      "run-1",
      "run-1",
    ]);
    expect(finalSteps(checkpoint.statePath)).toEqual(everyStep);
  });

  it("notices corruption, a lost session and a silent server while a step waits", async () => {
    const troubles = {
      corrupted: (server: FakeServer) => {
        server.corrupted = true;
      },
      lost: (server: FakeServer) => server.lose(),
      unreachable: (server: FakeServer) => {
        server.runAnswer = () => {
          throw new APIConnectionError("refused");
        };
      },
    };
    for (const [reason, trouble] of Object.entries(troubles)) {
      const { server, clock, events, run, finalSteps } = setUp();
      let isStuck = false;
      let isAborted = false;
      const running = run({
        step: async (training, step, { signal }) => {
          if (step === 5 && !isStuck) {
            isStuck = true;
            // Waits for something that has no end but the signal.
            await new Promise((_, reject) => {
              signal.addEventListener("abort", () => {
                isAborted = true;
                reject(new Error("aborted"));
              });
            });
          }
          await training.forwardBackward(step);
          await training.optimStep(step);
        },
      });
      while (!isStuck) await clock.advance(0);
      server.onRequest = (name) => {
        if (name !== "restore") return;
        server.corrupted = false;
        server.runAnswer = () => ({ corrupted: false });
      };
      trouble(server);
      await clock.advance(6 * 60_000);
      const { checkpoint } = await running;
      expect(isAborted).toBe(true);
      expect(events.find(({ type }) => type === "failed")).toMatchObject({ reason, step: 5 });
      expect(finalSteps(checkpoint.statePath)).toEqual(everyStep);
      expect(clock.pending).toBe(0);
    }
  });

  it("notices at once when a request of the step before fails", async () => {
    const { server, events, run, finalSteps } = setUp();
    failing(server, (name, argument) => name === "optimStep" && argument === 5, status(410));
    const { checkpoint } = await run({
      step: async (training, step, { signal }) => {
        if (step === 6 && !events.some(({ type }) => type === "failed"))
          await new Promise((_, reject) =>
            signal.addEventListener("abort", () => reject(new Error("aborted"))),
          );
        training.forwardBackward(step);
        training.optimStep(step);
      },
    });
    expect(events.find(({ type }) => type === "failed")).toMatchObject({ reason: "lost", step: 6 });
    expect(finalSteps(checkpoint.statePath)).toEqual(everyStep);
  });

  it("outlives the metrics of a step that a failure has overtaken", async () => {
    const { server, run, finalSteps } = setUp();
    failing(server, (name, argument) => name === "forwardBackward" && argument === 5, status(410));
    const unhandled: unknown[] = [];
    const listener = (reason: unknown) => unhandled.push(reason);
    process.on("unhandledRejection", listener);
    try {
      const { checkpoint } = await run({
        step: async (training, step) => {
          const answer = training.forwardBackward(step);
          training.optimStep(step);
          if (step === 5) await new Promise((resolve) => setTimeout(resolve, 5));
          return { loss: answer.then((value) => value) };
        },
      });
      await new Promise((resolve) => setTimeout(resolve, 5));
      expect(finalSteps(checkpoint.statePath)).toEqual(everyStep);
      expect(unhandled).toEqual([]);
    } finally {
      process.off("unhandledRejection", listener);
    }
  });

  it("goes on without a step that does not end, and lets it do no harm", async () => {
    const { server, run, finalSteps } = setUp();
    let stale: FakeTraining | undefined;
    const { checkpoint } = await run({
      step: async (training, step) => {
        if (step === 5 && stale === undefined) {
          stale = training;
          server.lose();
          await new Promise(() => {});
        }
        training.forwardBackward(step);
        training.optimStep(step);
      },
    });
    expect(() => stale?.forwardBackward(99)).toThrow("The server ended the session");
    expect(finalSteps(checkpoint.statePath)).toEqual(everyStep);
  });

  it("gives up after the allowed attempts without progress, waiting longer each time", async () => {
    const { server, clock, events, run, stages } = setUp();
    server.onRequest = (name, argument) => {
      if (name === "optimStep" && argument === 6) throw status(500);
    };
    const failure = await run({ policy: { maxAttempts: 3, backoffMs: 1_000, maxBackoffMs: 3_000 } }).catch(
      (e) => e,
    );
    expect(failure).toBeInstanceOf(RunGaveUpError);
    expect(failure.message).toMatch(
      /^The run was restored 3 times since checkpoint 000004 and failed each time; .*500/,
    );
    expect(failure).toMatchObject({ attempts: 3, checkpoint: { batch: 4 }, cause: { status: 500 } });
    const delays = events.filter((event) => event.type === "restoring").map(({ delayMs }) => delayMs);
    expect(delays).toEqual([1_000, 2_000, 3_000]);
    expect(clock.sleeps).toEqual(expect.arrayContaining(delays));
    expect(stages().slice(-2)).toEqual(["failed", "gave_up"]);
    expect(server.closed).toHaveLength(4);
  });

  it("restarts the count of attempts after each new checkpoint", async () => {
    const { server, run } = setUp();
    const failed = new Set<number>();
    server.onRequest = (name, argument) => {
      if (name !== "optimStep" || failed.has(argument as number)) return;
      failed.add(argument as number);
      if ((argument as number) % 4 === 2) throw status(410);
    };
    expect((await run({ policy: { maxAttempts: 1 } })).restores).toBe(2);
  });

  it("counts a restore, also where the checkpoint of the failed attempt is written down after its end", async () => {
    const { server, events, run } = setUp();
    failing(server, (name, argument) => name === "optimStep" && argument === 5, status(410));
    let writeDown = () => {};
    const isRestoring = new Promise<void>((resolve) => {
      writeDown = resolve;
    });
    class SlowLog extends MemoryLog {
      override async logCheckpoint(checkpoint: RunCheckpoint) {
        if (checkpoint.batch === 4) await isRestoring;
        await super.logCheckpoint(checkpoint);
      }
    }
    const onEvent = (event: RunEvent) => {
      events.push(event);
      if (event.type === "restoring") writeDown();
    };
    expect((await run({ log: new SlowLog(), onEvent })).restores).toBe(1);
    expect(events.find(({ type }) => type === "restored")).toMatchObject({ attempt: 1 });
  });

  it("tries the start again when the server is not there yet", async () => {
    const { server, run, stages } = setUp();
    failing(server, (name) => name === "create", new APIConnectionError("refused"), status(503));
    const { restores } = await run();
    expect(restores).toBe(0);
    expect(stages().slice(0, 5)).toEqual(["failed", "restoring", "failed", "restoring", "started"]);
  });

  it.each([
    ["the step's own error", new TypeError("x is not a function")],
    ["a refused credential", status(401)],
    [
      "a request that is the user's fault",
      new RequestFailedError("bad", { requestId: "1", category: "user" }),
    ],
    ["a bad argument", new ValidationError("data", "data must be a list")],
  ])("ends at once on %s", async (_, error) => {
    const { server, run, stages } = setUp();
    failing(server, (name, argument) => name === "forwardBackward" && argument === 6, error);
    await expect(run()).rejects.toBe(error);
    expect(stages().slice(-2)).toEqual(["failed", "gave_up"]);
    expect(server.services).toBe(1);
  });

  it("lets the policy decide over the rule", async () => {
    const mine = new Error("flaky reward server");
    const first = setUp();
    failing(first.server, (name, argument) => name === "optimStep" && argument === 2, mine);
    expect(
      (await first.run({ policy: { shouldRestore: (error) => error === mine || undefined } })).restores,
    ).toBe(1);
    const second = setUp();
    failing(second.server, (name, argument) => name === "optimStep" && argument === 2, status(410));
    await expect(second.run({ policy: { shouldRestore: () => false } })).rejects.toMatchObject({
      status: 410,
    });
  });

  it("restores from the named checkpoint first, and from the latest after that", async () => {
    const { server, run, log, events, finalSteps } = setUp();
    const stop = status(401);
    failing(server, (name, argument) => name === "optimStep" && argument === 9, stop);
    await expect(run()).rejects.toBe(stop);
    expect(log.resumableCheckpoints().at(-1)?.name).toBe("000008");
    const lost = [2, 5];
    server.onRequest = (name, argument) => {
      if (name !== "optimStep" || argument !== lost[0]) return;
      lost.shift();
      throw status(410);
    };
    events.length = 0;
    const { checkpoint } = await run({ policy: { checkpoint: "000000" } });
    const restored = events.filter((event) => event.type === "restored").map((event) => event.checkpoint);
    expect(restored.map(({ name }) => name)).toEqual(["000000", "000000", "000004"]);
    // Not the checkpoints 000008 and 000004 of the run that was left behind.
    expect(restored[2]?.statePath).toBe("tinker://run-2/weights/000004");
    expect(finalSteps(checkpoint.statePath)).toEqual(everyStep);
    await expect(run({ steps: 12, policy: { checkpoint: "nope" } })).rejects.toThrow(
      'policy.checkpoint must be "latest" or the name of a checkpoint of the run',
    );
  });

  it("falls back to the checkpoint before one that cannot be loaded", async () => {
    const { server, run, events, finalSteps } = setUp();
    server.onRequest = (name, argument, modelId) => {
      if (modelId === "run-0" && name === "optimStep" && argument === 9) {
        server.saved.delete("tinker://run-0/weights/000008");
        throw status(410);
      }
    };
    const { checkpoint } = await run();
    expect(events.filter((event) => event.type === "restored").map((event) => event.checkpoint.name)).toEqual(
      ["000004"],
    );
    expect(finalSteps(checkpoint.statePath)).toEqual(everyStep);
  });

  it("never starts again from scratch: without a checkpoint that loads it ends", async () => {
    const { server, run } = setUp();
    server.onRequest = (name, argument) => {
      if (name !== "optimStep" || argument !== 2) return;
      server.saved.clear();
      throw status(410);
    };
    await expect(run()).rejects.toMatchObject({ status: 404 });
    expect(server.models).toBe(1);
  });

  it("goes on where a stopped run was, logs each step once, and does nothing when all is done", async () => {
    const logged: number[] = [];
    class CountingLog extends MemoryLog {
      override async logMetrics(metrics: object, step: number) {
        logged.push(step);
        await super.logMetrics(metrics, step);
      }
    }
    const { server, run, events, finalSteps } = setUp({ log: new CountingLog() });
    const stop = new AbortController();
    server.onRequest = (name, argument) => {
      if (name === "forwardBackward" && argument === 7) stop.abort(new Error("enough"));
    };
    await expect(run({ signal: stop.signal })).rejects.toThrow("The run was aborted by its signal.");
    expect(server.closed).toEqual(["interrupted"]);
    const lastLogged = logged.at(-1)!;
    events.length = 0;
    const { checkpoint, restores } = await run();
    expect(restores).toBe(0);
    expect(events[0]).toMatchObject({ type: "restored", attempt: 0, checkpoint: { batch: 4 } });
    const steps = events.filter((event) => event.type === "step");
    expect(steps.map(({ step }) => step)).toEqual([4, 5, 6, 7, 8, 9]);
    expect(steps.filter(({ repeated }) => repeated).map(({ step }) => step)).toEqual(
      [4, 5, 6].filter((step) => step <= lastLogged),
    );
    expect(lastLogged).toBeGreaterThanOrEqual(4);
    expect(logged).toEqual(everyStep);
    expect(finalSteps(checkpoint.statePath)).toEqual(everyStep);
    const { services } = server;
    expect((await run()).checkpoint).toEqual(checkpoint);
    expect(server.services).toBe(services);
    await expect(run({ steps: 8 })).rejects.toThrow(
      "steps must be at least 10, which the run has reached already",
    );
    expect((await run({ steps: 12 })).checkpoint.batch).toBe(12);
  });

  it("has at most one step on its way behind the one being made", async () => {
    const { server, run } = setUp({ steps: 6, checkpointEvery: 100 });
    let done = -1;
    const ahead: number[] = [];
    server.onRequest = async (name, argument) => {
      if (name !== "optimStep") return;
      const step = argument as number;
      if (step < 5) await vi.waitFor(() => expect(ahead.length).toBeGreaterThan(step + 1), { interval: 1 });
      await new Promise((resolve) => setTimeout(resolve, 5));
      done = step;
    };
    await run({
      step: (training, step) => {
        ahead.push(step - done - 1);
        training.forwardBackward(step);
        training.optimStep(step);
      },
    });
    expect(Math.max(...ahead)).toBe(1);
  });

  it("sends steps behind a save without waiting for it, and writes them down in order", async () => {
    const { server, run, events, finalSteps } = setUp({ steps: 6, checkpointEvery: 2 });
    let isSaving = false;
    let last = -1;
    const sentDuringSaves: number[] = [];
    server.onRequest = async (name) => {
      if (name !== "saveState") return;
      isSaving = true;
      const before = last;
      // The first is saved before any step, the last behind all.
      if (before > -1 && before < 5)
        await vi.waitFor(() => expect(last).toBeGreaterThan(before), { interval: 1 });
      isSaving = false;
    };
    const { checkpoint } = await run({
      step: (training, step) => {
        last = step;
        if (isSaving) sentDuringSaves.push(step);
        training.forwardBackward(step);
        training.optimStep(step);
        return { step };
      },
    });
    expect(sentDuringSaves).toEqual(expect.arrayContaining([2, 4]));
    for (const event of events) {
      if (event.type !== "checkpoint") continue;
      expect(finalSteps(event.checkpoint.statePath)).toEqual(everyStep.slice(0, event.checkpoint.batch));
    }
    expect(checkpoint.batch).toBe(6);
    const order = events.flatMap<string | number>((event) =>
      event.type === "step"
        ? [event.step]
        : event.type === "checkpoint"
          ? [`saved ${event.checkpoint.batch}`]
          : [],
    );
    expect(order).toEqual(["saved 0", 0, 1, "saved 2", 2, 3, "saved 4", 4, 5, "saved 6"]);
  });

  it("measures before each step and after the last, without holding up training", async () => {
    const lines: [number, object][] = [];
    class ReadableLog extends MemoryLog {
      override async logMetrics(metrics: object, step: number) {
        lines.push([step, metrics]);
        await super.logMetrics(metrics, step);
      }
    }
    const { run, events } = setUp({ steps: 3, log: new ReadableLog() });
    let release = () => {};
    const slow = new Promise<number>((resolve) => {
      release = () => resolve(7);
    });
    await run({
      measure: (_, batch, { addMetrics }) => {
        addMetrics(Promise.resolve({ named: "later" }));
        return { seen: batch === 0 ? slow : batch };
      },
      step: async (training, step) => {
        if (step === 2) release();
        training.forwardBackward(step);
        await training.optimStep(step);
        return { step };
      },
    });
    expect(lines).toEqual([
      [0, { seen: 7, step: 0, named: "later" }],
      [1, { seen: 1, step: 1, named: "later" }],
      [2, { seen: 2, step: 2, named: "later" }],
      [3, { seen: 3, named: "later" }],
    ]);
    expect(events.find(({ type }) => type === "measured")).toMatchObject({ batch: 3, metrics: { seen: 3 } });
  });

  it("ends a run whose metrics fail, and keeps no checkpoint from behind them", async () => {
    const { run, log } = setUp({ checkpointEvery: 2 });
    await expect(
      run({
        step: (training, step) => {
          const loss = training.forwardBackward(step);
          training.optimStep(step);
          const check = async () => {
            if (step === 5) throw new Error("the loss of step 5 is no number");
            return loss;
          };
          return { loss: check() };
        },
      }),
    ).rejects.toThrow("the loss of step 5 is no number");
    expect(log.resumableCheckpoints().at(-1)?.batch).toBe(4);
  });

  it("ends early on request, with the current weights", async () => {
    const { run, finalSteps } = setUp();
    const { checkpoint } = await run({
      measure: (_, batch, { end }) => {
        if (batch === 5) end();
      },
    });
    expect(checkpoint).toMatchObject({ name: "final", batch: 5, final: true });
    expect(finalSteps(checkpoint.statePath)).toEqual(everyStep.slice(0, 5));
  });

  it("pauses after the step under way with a checkpoint, and goes on from there", async () => {
    const { server, run, events, finalSteps } = setUp();
    const pause = new AbortController();
    const { checkpoint } = await run({
      pauseSignal: pause.signal,
      step: (training, step) => {
        if (step === 5) pause.abort();
        training.forwardBackward(step);
        training.optimStep(step);
      },
    });
    expect(checkpoint).toMatchObject({ name: "000006", batch: 6 });
    expect(checkpoint.final).toBeUndefined();
    expect(finalSteps(checkpoint.statePath)).toEqual(everyStep.slice(0, 6));
    expect(events.at(-1)).toMatchObject({ type: "paused" });
    expect(server.closed).toEqual(["interrupted"]);
    // Where something was saved already, too.
    const again = await run({ pauseSignal: AbortSignal.abort() });
    expect(again.checkpoint).toMatchObject({
      name: "000006-paused",
      batch: 6,
      samplerPath: expect.any(String),
    });
    const { checkpoint: last } = await run();
    expect(finalSteps(last.statePath)).toEqual(everyStep);
  });

  it("saves as it is planned: when, for whom and for how long", async () => {
    const saves: unknown[] = [];
    const { server, run, log } = setUp({
      steps: 6,
      checkpointAt: (batch) =>
        batch === 3 ? { sampler: true, ttlSeconds: 60 } : batch % 2 === 0 ? { rolling: true } : undefined,
    });
    server.onRequest = (name, argument) => name.startsWith("save") && saves.push([name, argument]);
    await run();
    expect(
      log.resumableCheckpoints().map(({ name, rolling, samplerPath }) => [name, rolling, samplerPath]),
    ).toEqual([
      ["000000", true, undefined],
      ["000002", true, undefined],
      ["000003", undefined, "tinker://run-0/sampler_weights/000003"],
      ["000004", true, undefined],
      ["final", undefined, "tinker://run-0/sampler_weights/final"],
    ]);
    expect(saves).toContainEqual(["saveState", expect.objectContaining({ name: "000003", ttlSeconds: 60 })]);
  });

  it("refuses what would lose training: loose gradients before a checkpoint, one client used twice", async () => {
    const loose = setUp({ step: async (training, step) => void (await training.forwardBackward(step)) });
    await expect(loose.run()).rejects.toThrow("step 3 must end with optimStep");
    const { server, run } = setUp();
    const only = server.service();
    failing(server, (name, argument) => name === "optimStep" && argument === 2, status(410));
    await expect(run({ service: () => only })).rejects.toThrow(
      "service must make a new ServiceClient each time",
    );
  });

  it("names bad options", async () => {
    const { run } = setUp();
    await expect(run({ steps: 0 })).rejects.toThrow("steps must be a positive integer, got 0");
    await expect(run({ checkpointEvery: 1.5 })).rejects.toThrow("checkpointEvery must be a positive integer");
  });

  it("is not disturbed by a listener that throws", async () => {
    const { run } = setUp();
    await expect(
      run({
        onEvent: () => {
          throw new Error("listener");
        },
      }),
    ).resolves.toMatchObject({ restores: 0 });
  });
});
