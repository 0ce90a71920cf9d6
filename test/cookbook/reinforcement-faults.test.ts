import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import {
  type EnvironmentOptions,
  environmentEvaluator,
  type PolicyLoss,
  type ReinforcementMode,
  type ReinforcementSettings,
  trainReinforcement,
} from "../../src/cookbook/reinforcement/index.js";
import { derivedSeed, minViableGroup, retryOnFailure } from "../../src/cookbook/rollouts/index.js";
import type { FinishedRun } from "../../src/cookbook/runs/index.js";
import { APIConnectionError } from "../../src/errors.js";
import { runFolderName } from "../../src/local/store/names.js";
import { getRenderer } from "../../src/renderers/index.js";
import { loadTokenizer } from "../../src/tokenizers/index.js";
import { longTest, someOf } from "../support/long.js";
import { startTinyBackend, TINY } from "../support/tiny-backend.js";
import { type Faults, FaultyWorld, groupTag } from "./faulty-world.js";
import { expectSameMetrics, lines, weightsAt } from "./run-files.js";
import { never } from "./scripted-rollouts.js";

let home: string;
let backend: Awaited<ReturnType<typeof startTinyBackend>>;
let renderer: ReturnType<typeof getRenderer>;
beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), "tinkerts-reinforcement-faults-"));
  backend = await startTinyBackend();
  renderer = getRenderer("role_colon", await loadTokenizer("tinkerts/nano"));
});
afterAll(async () => {
  await backend.close();
  await rm(home, { recursive: true, force: true });
});

const MODES = ["synchronous", "streamed", "asynchronous"] as const satisfies ReinforcementMode[];
const STEPS = 4;
const GROUPS = 3;

type Overrides = Partial<ReinforcementSettings> & Partial<Pick<EnvironmentOptions, "environments">>;

/** Four steps of three groups. */
const train = (world: FaultyWorld, options: Overrides = {}) =>
  trainReinforcement({
    service: backend.service,
    model: TINY,
    renderer,
    environments: world,
    groupsPerBatch: GROUPS,
    steps: STEPS,
    maxTokens: 2,
    rank: 2,
    learningRate: 1e-2,
    save: { everySteps: 1 },
    loggers: [],
    ...options,
  });

/** Steps of the optimizer that are in the weights. */
async function trainedSteps({ statePath }: FinishedRun): Promise<number> {
  const [run, kind, name] = statePath.slice("tinker://".length).split("/") as [string, string, string];
  const folder = join(backend.dataDir, "runs", runFolderName(run), "checkpoints", kind, name);
  const bytes = await readFile(join(folder, "optimizer.safetensors"));
  const header = bytes.subarray(8, 8 + Number(bytes.readBigUInt64LE()));
  return Number(JSON.parse(header.toString()).__metadata__.step);
}

/** The groups that each step was trained on, by the files of the run. */
async function trainedGroups(folder: string, steps: number): Promise<string[][]> {
  const files = Array.from({ length: steps }, (_, step) => `iteration_${String(step).padStart(6, "0")}`);
  const records = files.map((file) => lines(folder, join(file, "train_rollout_summaries.jsonl")));
  return (await Promise.all(records)).map((step) => [
    ...new Set(step.map(({ tags }) => (tags as string[])[0]!)),
  ]);
}

const tagsFrom = (first: number, count: number) =>
  Array.from({ length: count }, (_, place) => groupTag(first + place));

/** Whatever the run came to, nothing of it is left; a group that it was given too late is closed soon. */
async function expectClosed(world: FaultyWorld): Promise<void> {
  const { open, closedTwice, isClosed } = world;
  expect({ open, closedTwice, isClosed }).toEqual({ open: 0, closedTwice: 0, isClosed: true });
  await vi.waitFor(() => expect(world.openGroups).toBe(0));
}

/** A group of the second step. */
const LATE = GROUPS + 1;
const broken = (): never => {
  throw new RangeError("it broke");
};
/** Does it in that group alone. */
const late =
  <T>(what: () => T) =>
  (place: number | { readonly index: number }): T | undefined =>
    (typeof place === "number" ? place : place.index) === LATE ? what() : undefined;

const THROWN: Record<string, [Faults, Overrides, RegExp]> = {
  "a source that throws": [{ group: late(broken) }, {}, /^Group 4 failed: it broke$/],
  "a group that throws": [{ make: late(broken) }, {}, /^Group 4 failed: it broke$/],
  "a start that throws": [{ start: late(broken) }, {}, /^Group 4 failed: it broke$/],
  "a step that throws": [{ step: late(broken) }, {}, /^Group 4 failed: it broke$/],
  "a reward that is NaN": [{ step: late(() => Number.NaN) }, {}, /^Group 4 failed: .*finite number, got NaN/],
  "a group's reward that throws": [{ groupRewards: late(broken) }, {}, /^Group 4 failed: it broke$/],
  "a group's reward that is NaN": [
    { groupRewards: late(() => Array(4).fill({ reward: Number.NaN })) },
    {},
    /^Group 4 failed: .*finite number, got NaN/,
  ],
  "a hook that throws": [{}, { hooks: { onEnd: broken } }, /^Group \d failed: it broke$/],
  "a penalty that throws": [{}, { penalties: () => [{ apply: broken }] }, /^it broke$/],
  "penalties that cannot be made": [{}, { penalties: broken }, /^it broke$/],
  "a listener that throws": [{}, { onRollouts: broken }, /^it broke$/],
  "an evaluator that throws": [{}, { evaluators: [{ name: "e", evaluate: broken }] }, /it broke/],
  "a loss of one's own that throws": [{}, { loss: { name: "own", forwardBackward: broken } }, /^it broke$/],
};

const SILENT: Record<string, (hang: typeof never) => [Faults, Overrides]> = {
  "a source": (hang) => [{ group: late(hang) }, {}],
  "a group": (hang) => [{ make: late(hang) }, {}],
  "a start": (hang) => [{ start: late(hang) }, {}],
  "a step": (hang) => [{ step: late(hang) }, {}],
  "a group's reward": (hang) => [{ groupRewards: late(hang) }, {}],
  "a hook": (hang) => [{}, { hooks: { beforeTurn: hang } }],
  "a penalty": (hang) => [{}, { penalties: () => [{ apply: hang }] }],
  "making penalties": (hang) => [{}, { penalties: hang }],
  "a listener": (hang) => [{}, { onRollouts: hang }],
  "making environments": (hang) => [{}, { environments: hang }],
};

describe.each(MODES)("the %s loop", (mode) => {
  let turn = 0;
  /** A test of one of the loops after the other in `npm test`, and of each in `npm run test:long`. */
  const inTurn = (name: string, test: () => Promise<void>) =>
    (turn++ % MODES.length === MODES.indexOf(mode) ? it : longTest)(name, test);

  it.each(someOf(Object.entries(THROWN), 3, MODES.indexOf(mode)))(
    "ends with a sentence at %s",
    async (_, [faults, options, message]) => {
      const world = new FaultyWorld(faults);
      await expect(train(world, { mode, ...options })).rejects.toThrow(message);
      await expectClosed(world);
    },
  );

  it.each(someOf(Object.entries(SILENT), 3, MODES.indexOf(mode)))(
    "ends by its signal where %s never answers",
    async (_, silent) => {
      const abort = new AbortController();
      const [faults, options] = silent(() => {
        setImmediate(() => abort.abort());
        return never();
      });
      const world = new FaultyWorld(faults);
      const run = train(world, { mode, signal: abort.signal, ...options });
      await expect(run).rejects.toThrow("was aborted");
      if (options.environments === undefined) await expectClosed(world);
    },
  );

  it("ends by its signal, and closes environments, before it has begun", async () => {
    const world = new FaultyWorld();
    await expect(train(world, { mode, signal: AbortSignal.abort() })).rejects.toThrow("was aborted");
    await expectClosed(world);
  });

  inTurn("says what it waits for", async () => {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    try {
      const abort = new AbortController();
      const notes: string[] = [];
      const logger = {
        config: () => {},
        metrics: () => {},
        close: () => {},
        note: (text: string) => void notes.push(text),
      };
      const world = new FaultyWorld({ step: late(never) });
      const run = train(world, { mode, signal: abort.signal, loggers: [logger] });
      run.catch(() => {});
      const isWaiting = () => {
        vi.advanceTimersByTime(60_000);
        expect(notes.at(-1)).toMatch(
          /^Still waiting for group 4 \(its episodes and rewards began \d+ s ago\); limits\.timeoutMs ends/,
        );
      };
      await vi.waitFor(isWaiting);
      abort.abort();
      await expect(run).rejects.toThrow("was aborted");
    } finally {
      vi.useRealTimers();
    }
  });

  inTurn("goes on where environments cannot be closed, and counts them", async () => {
    const world = new FaultyWorld({ close: late(broken), closeGroup: late(broken) });
    const run = await train(world, { mode });
    expect(run).toMatchObject({ steps: STEPS, metrics: { "rollout_errors/CloseError": 5 } });
    expect(await trainedSteps(run)).toBe(STEPS);
    await expectClosed(world);
  });

  inTurn("ends by an episode, and the process goes on when a loss of one's own fails behind it", async () => {
    let [begin, fail] = [() => {}, () => {}];
    // Only a streamed step trains on groups before the last of them is there.
    const begun = mode === "streamed" ? new Promise<void>((resolve) => (begin = resolve)) : undefined;
    const isOver = new Promise<void>((resolve) => (fail = resolve));
    let numFailed = 0;
    const loss: PolicyLoss = {
      name: "own",
      forwardBackward: async () => {
        begin();
        await isOver;
        numFailed += 1;
        throw new RangeError("nobody waits for it");
      },
    };
    const world = new FaultyWorld({
      step: async ({ index, member }) => {
        if (index !== 2) return member;
        await begun;
        return broken();
      },
    });
    const run = train(world, { mode, loss });
    await expect(run).rejects.toThrow(/^Group 2 failed: it broke$/);
    await expectClosed(world);
    fail();
    // An unhandled rejection would fail the test run.
    if (mode === "streamed") await vi.waitFor(() => expect(numFailed).toBeGreaterThan(0));
  });

  inTurn(
    "closes the environments that its evaluators have made, and not those that they were given",
    async () => {
      const [made, given] = [new FaultyWorld(), new FaultyWorld()];
      const shared = { numGroups: 2, renderer, maxTokens: 2 };
      const evaluators = [
        environmentEvaluator({ ...shared, environments: () => made }),
        environmentEvaluator({ ...shared, name: "given", environments: given }),
      ];
      await train(new FaultyWorld(), { mode, evaluators });
      await expectClosed(made);
      expect(given).toMatchObject({ open: 0, isClosed: false });
      made.isClosed = false;
      await expect(
        train(new FaultyWorld(), { mode, evaluators, onRollouts: broken, evaluateEvery: 1 }),
      ).rejects.toThrow("it broke");
      expect(made.isClosed).toBe(true);
    },
  );

  inTurn("goes back to a checkpoint with its groups, also where it has no folder", async () => {
    const seen: [number, number][] = [];
    const run = await train(new FaultyWorld({ step: ({ member }) => member }), {
      mode,
      save: { everySteps: 2 },
      onRollouts: ({ step, groups }) => {
        seen.push([step, groups[0]!.index]);
        if (step === 3 && seen.length === 4) throw new APIConnectionError("The server is gone.");
      },
    });
    expect(run).toMatchObject({ isFinished: true, restores: 1 });
    // To the first checkpoint, where the second was not written down yet.
    const again = seen[4]![0] === 0 ? [0, 1, 2, 3] : [2, 3];
    expect(seen).toEqual([0, 1, 2, 3, ...again].map((step) => [step, step * GROUPS]));
  });

  inTurn("counts what failed once, also in steps that are trained again or in another process", async () => {
    const folder = join(home, `counts-${mode}`);
    const inThirdStep = (place: number | { readonly index: number }) =>
      (typeof place === "number" ? place : place.index) === 2 * GROUPS ? broken() : undefined;
    const newWorld = () => new FaultyWorld({ close: inThirdStep, closeGroup: inThirdStep });
    const pause = new AbortController();
    let isCutOff = false;
    const options: Overrides = { mode, folder, save: { everySteps: 2 } };
    const paused = await train(newWorld(), {
      ...options,
      pauseSignal: pause.signal,
      onRollouts: ({ step }) => {
        // The next step's may come before the failure is seen.
        if (step !== 2) return;
        if (isCutOff) return pause.abort();
        isCutOff = true;
        throw new APIConnectionError("The server is gone.");
      },
    });
    expect(paused).toMatchObject({ isFinished: false, restores: 1 });
    const run = await train(newWorld(), options);
    expect(run.metrics).toMatchObject({ "rollout_errors/CloseError": 5, "rollout_errors/total": 5 });
    const counted = (await lines(folder, "metrics.jsonl")).map((line) => line["rollout_errors/total"]);
    expect(counted).toEqual([undefined, undefined, 5, 5]);
  });

  inTurn("goes on with a strategy, whatever throws or never answers", async () => {
    const world = new FaultyWorld({
      make: (index) => (index % 5 === 1 ? broken() : undefined),
      start: ({ index, member }) => (index % 5 === 2 && member === 0 ? never() : undefined),
      step: ({ index, member }) => (index % 5 === 3 && member === 1 ? Number.NaN : undefined),
      groupRewards: (index) => (index % 5 === 4 ? never() : undefined),
    });
    const run = await train(world, {
      mode,
      strategy: minViableGroup({ timeoutMs: 200, maxRetries: 1 }),
      termination: { graderTimeoutMs: 200 },
    });
    expect(run).toMatchObject({ isFinished: true, steps: STEPS, restores: 0 });
    expect(await trainedSteps(run)).toBe(STEPS);
    expect(run.metrics["rollout_errors/groups_skipped"]).toBeGreaterThan(1);
    await expectClosed(world);
  });

  inTurn("counts each failure once, also after a pause", async () => {
    const folder = join(home, `failures-${mode}`);
    const settings: Overrides = { mode, folder, strategy: retryOnFailure({ maxRetries: 0 }) };
    const failing = () => new FaultyWorld({ make: (index) => (index % 4 === 0 ? broken() : undefined) });
    const pause = new AbortController();
    const onRollouts = () => pause.abort();
    const paused = await train(failing(), { ...settings, pauseSignal: pause.signal, onRollouts });
    expect(paused.isFinished).toBe(false);
    const run = await train(failing(), settings);
    // Of twelve groups the first, the fifth and the ninth.
    expect(run.metrics).toMatchObject({
      "rollout_errors/RangeError": 3,
      "rollout_errors/total": 3,
      "rollout_errors/groups_skipped": 3,
    });
  });

  inTurn("says why where every group fails, and counts nothing as trained", async () => {
    const folder = join(home, `all-fail-${mode}`);
    const world = new FaultyWorld({ step: broken });
    await expect(train(world, { mode, folder, strategy: retryOnFailure({ maxRetries: 0 }) })).rejects.toThrow(
      /^Nothing was trained: of the last 30 groups 30 failed \(.*it broke.*\)/,
    );
    const checkpoints = await lines(folder, "checkpoints.jsonl");
    expect(checkpoints.map(({ batch, final }) => ({ batch, final }))).toEqual([{ batch: 0 }]);
    await expectClosed(world);
  });

  inTurn("with constant groups alone trains nothing and does not claim to", async () => {
    const folder = join(home, `constant-${mode}`);
    const world = new FaultyWorld({ step: () => 1 });
    await expect(train(world, { mode, folder })).rejects.toThrow(
      /^Nothing was trained: of the last 30 groups/,
    );
    const checkpoints = await lines(folder, "checkpoints.jsonl");
    expect(checkpoints.map(({ batch, final }) => ({ batch, final }))).toEqual([{ batch: 0 }]);
    await expectClosed(world);
  });

  inTurn("trains a step once whose groups are partly constant, and sizes that do not divide", async () => {
    const folder = join(home, `sizes-${mode}`);
    // Of the five groups of a step the first three teach nothing, and nothing of the second step does.
    const world = new FaultyWorld({
      step: ({ index, member }) => (index % 5 < 3 || (index >= 5 && index < 10) ? 1 : member),
    });
    const parts = mode === "synchronous" ? {} : { minibatches: 4 };
    const run = await train(world, { mode, folder, groupsPerBatch: 5, substeps: 2, ...parts });
    expect(run).toMatchObject({ isFinished: true, steps: STEPS });
    // Groups 0 and 1 are the first update of a step, which is left out.
    expect(await trainedSteps(run)).toBe(STEPS);
    expect(await trainedGroups(folder, STEPS)).toEqual([
      tagsFrom(0, 5),
      tagsFrom(5, 10),
      tagsFrom(15, 5),
      tagsFrom(20, 5),
    ]);
    const metrics = await lines(folder, "metrics.jsonl");
    expect(metrics.map(({ step }) => step)).toEqual([...Array(STEPS).keys()]);
    await expectClosed(world);
  });

  inTurn("ends early where the groups end within a batch, and counts what was trained", async () => {
    const world = new FaultyWorld({ step: ({ member }) => member }, { numGroups: 2 * GROUPS + 1 });
    const run = await train(world, { mode, steps: 50 });
    expect(run).toMatchObject({ isFinished: true, steps: 3 });
    expect(await trainedSteps(run)).toBe(3);
    await expectClosed(world);
  });

  inTurn("with a source smaller than a batch still trains", async () => {
    const world = new FaultyWorld({ step: ({ member }) => member }, { numGroups: 1 });
    const run = await train(world, { mode, groupsPerBatch: 8, substeps: 3 });
    expect(run).toMatchObject({ isFinished: true, steps: 1 });
    expect(await trainedSteps(run)).toBe(1);
  });
});

/** Calls back when so much has happened: environments that began, answered or were closed. */
function after(numEvents: number, act: () => void): Faults {
  let count = 0;
  const happened = () => {
    count += 1;
    if (count === numEvents) act();
  };
  return { start: happened, step: () => void happened(), close: happened };
}

describe.each(MODES)("a %s run that is disturbed at random", (mode) => {
  const settings: Overrides = { mode, strategy: retryOnFailure(), substeps: 2 };
  let undisturbed: Promise<FinishedRun>;
  beforeAll(() => {
    undisturbed = train(new FaultyWorld(), { ...settings, folder: join(home, `undisturbed-${mode}`) });
    return undisturbed;
  });

  it.each(someOf([1, 2], 2, MODES.indexOf(mode)))(
    "trains each step once and leaves nothing open (seed %i)",
    async (seed) => {
      const folder = join(home, `disturbed-${mode}-${seed}`);
      const draw = (place: number, below: number) => derivedSeed(seed, MODES.indexOf(mode), place) % below;
      const events: string[] = [];
      let restarted = Promise.resolve();
      for (const place of [0, 10, 20]) {
        const kind = (["abort", "pause", "restart"] as const)[draw(place, 3)]!;
        const [abort, pause] = [new AbortController(), new AbortController()];
        const disturb = () => {
          if (kind === "abort") abort.abort();
          if (kind === "pause") pause.abort();
          if (kind === "restart") restarted = backend.restart();
        };
        const numEvents = 1 + draw(place + 1, 60);
        events.push(`${kind} after ${numEvents}`);
        const world = new FaultyWorld(after(numEvents, disturb));
        const run = train(world, {
          ...settings,
          folder,
          signal: abort.signal,
          pauseSignal: pause.signal,
        });
        if (kind === "abort") await run.catch((error) => expect(error.message).toMatch(/was aborted/));
        else await run;
        await restarted;
        await expectClosed(world);
      }
      const run = await train(new FaultyWorld(), { ...settings, folder });
      expect(run, events.join(", ")).toMatchObject({ isFinished: true, steps: STEPS });
      expect(await trainedSteps(run)).toBe(await trainedSteps(await undisturbed));
      expect(await trainedGroups(folder, STEPS)).toEqual(
        Array.from({ length: STEPS }, (_, step) => tagsFrom(step * GROUPS, GROUPS)),
      );
      const metrics = await lines(folder, "metrics.jsonl");
      expect(metrics.map(({ step }) => step)).toEqual([...Array(STEPS).keys()]);
      // Which weights sample is a matter of time there.
      if (mode === "asynchronous") return;
      expect(await weightsAt(backend, run.statePath)).toEqual(
        await weightsAt(backend, (await undisturbed).statePath),
      );
      expectSameMetrics(metrics, await lines(join(home, `undisturbed-${mode}`), "metrics.jsonl"));
    },
  );
});
