import { expect, it } from "vitest";
import type { Trajectory, TrajectoryGroup, Turn } from "../../src/cookbook/environments/index.js";
import {
  assembleData,
  discountedSums,
  dropConstantGroups,
  groupAdvantages,
  klPenalty,
  klSampleTrain,
  logprobsUnder,
  postKl,
  type RolloutDatum,
  samplerMetrics,
  splitEvenly,
  trajectoryMetrics,
} from "../../src/cookbook/reinforcement/index.js";
import { tokensAt } from "../../src/training/datum-from.js";
import { ModelInput } from "../../src/wire/index.js";
import { type Chunk, modelChunk, plainChunk } from "./chunks.js";
import { CASES as ALL_CASES, describeJudged, SEED } from "./judged.js";
import { type Make, Random } from "./random.js";

/** Half as many as of other values: each is a batch of episodes. */
const CASES = Math.ceil(ALL_CASES / 2);
const NO_SIGNAL = { groups: [], signal: new AbortController().signal };

interface GivenTurn {
  readonly observation: readonly Chunk[];
  readonly tokens: readonly number[];
  readonly logprobs: readonly number[];
  readonly reward: number;
  readonly masked: boolean;
  readonly metrics: Readonly<Record<string, number>>;
}
interface GivenTrajectory {
  readonly turns: readonly GivenTurn[];
  readonly end: string | null;
}
interface GivenGroup {
  readonly trajectories: readonly GivenTrajectory[];
  readonly rewards: readonly number[];
  readonly metrics: readonly Readonly<Record<string, number>>[];
  readonly tags: readonly string[];
}
interface PlainDatum {
  readonly advantages: number[];
  readonly mask: number[];
}

describeJudged(
  {
    name: "reinforcement",
    title: "formulas of reinforcement learning, judged by the Python cookbook",
    script: "cookbook_renderers.py",
  },
  ({ compare }) => {
    const batches = (make: Make<GivenGroup>) =>
      new Random(SEED).times(CASES, (random): [GivenGroup[]] => [random.times(random.integer(1, 4), make)]);

    it("has the same advantages, drops the same groups and makes the same data", async () => {
      const data = { made: 0, continued: 0, images: 0 };
      await compare(
        "assembleData",
        batches(givenGroup),
        (theirs: { advantages: number[][]; data: PlainDatum[]; kept: number[] }, given) => {
          const groups = given.map(group);
          const advantages = groups.map((each) => groupAdvantages(each));
          expect(advantages.map((each) => [...each])).toEqual(theirs.advantages);
          const made = assembleData(groups, advantages);
          expect(made.map(plainDatum)).toEqual(learnable(theirs.data));
          const kept = dropConstantGroups(groups).map((each) => groups.indexOf(each));
          // Python keeps one where all are constant, to have something.
          expect(kept).toEqual(groups.every(isConstant) ? [] : theirs.kept);
          data.made += made.length;
          data.continued += made.filter(({ mask }) => `${mask}`.match(/1,(0,)+1/)).length;
          data.images += made.filter(({ input }) => !input.isText).length;
        },
      );
      expect(data.continued).toBeGreaterThan(CASES / 2);
      expect(data.images).toBeGreaterThan(CASES / 2);
      expect(data.made).toBeGreaterThan(CASES * 2);
    });

    it("has advantages as close as 32 bits allow, whatever the rewards", async () => {
      const anyReward: Make<GivenGroup> = (random) => {
        const made = givenGroup(random);
        return {
          ...made,
          rewards: made.rewards.map(() => (random.next() - 0.5) * 10 ** random.integer(-3, 3)),
        };
      };
      await compare("assembleData", batches(anyReward), (theirs: { advantages: number[][] }, given) => {
        for (const [index, each] of given.map(group).entries())
          expectClose([...groupAdvantages(each)], theirs.advantages[index]!, largest(each.groupRewards));
      });
    });

    it("penalizes the same divergence, but for tokens that were read", async () => {
      const cases = batches(givenGroup)
        .filter(([given]) => assembled(given).length > 0)
        .map(([given], index): [GivenGroup[], number, number] => [
          given,
          [0.1, 0.5, 2][index % 3]!,
          [0, 0.5, 0.9, 1][index % 4]!,
        ]);
      await compare(
        "klPenalty",
        cases,
        async (theirs: { data: PlainDatum[]; metrics: object }, given, coefficient, discount) => {
          const data = assembled(given);
          const penalty = klPenalty({ reference: scorer(7), coefficient, discount });
          expect(await penalty.apply(data, NO_SIGNAL)).toEqual(theirs.metrics);
          // With a discount Python gives tokens an advantage that were never sampled.
          const sampledOnly = learnable(theirs.data).map((datum) => ({
            ...datum,
            advantages: datum.advantages.map((advantage, at) => (datum.mask[at] === 0 ? 0 : advantage)),
          }));
          expect(data.map(plainDatum)).toEqual(sampledOnly);
        },
      );
    });

    it("measures the same divergences", async () => {
      const cases = batches(givenGroup).filter(([given]) => assembled(given).length > 0);
      await compare("divergences", cases, async (theirs: Record<string, number>, given) => {
        const data = assembled(given);
        const own = {
          ...klSampleTrain(data, await logprobsUnder(scorer(5), data)),
          ...(await postKl(data, scorer(3))),
        };
        expect(Object.keys(own)).toEqual(Object.keys(theirs));
        expectClose(Object.values(own), Object.values(theirs));
      });
    });

    it("counts the same metrics, with shares of the episodes for their ends", async () => {
      let tagged = 0;
      await compare("trajectoryMetrics", batches(givenGroup), (theirs: Record<string, number>, given) => {
        const own = trajectoryMetrics(given.map(group));
        expect(Object.keys(own).sort()).toEqual(Object.keys(theirs).sort());
        const names = Object.keys(theirs).filter((name) => !name.includes("/stop/"));
        expectClose(
          names.map((name) => own[name]!),
          names.map((name) => theirs[name]!),
        );
        // In Python it is the mean over the episodes that ended so, which is always 1.
        const all = given.flatMap(({ trajectories }) => trajectories);
        for (const name of Object.keys(own).filter((each) => each.startsWith("env/all/stop/"))) {
          const ended = all.filter(({ end }) => end === name.slice("env/all/stop/".length));
          expect(own[name]).toBe(ended.length / all.length);
          expect(theirs[name]).toBe(1);
        }
        if (names.some((name) => name.startsWith("env/hard/"))) tagged++;
      });
      expect(tagged).toBeGreaterThan(CASES / 10);
    });

    it("knows the same spread of samplers, sums of what follows, and sizes of substeps", async () => {
      const random = new Random(SEED);
      const samplers = random.times(CASES, (each): [[number, number][]] => [
        each.times(each.integer(0, 6), (one) => [one.integer(0, 99), one.next() * 9]),
      ]);
      await compare("samplerMetrics", samplers, (theirs: Record<string, number>, given) => {
        const own = samplerMetrics(given.map(([samplerStep, seconds]) => ({ samplerStep, seconds })));
        expect(Object.keys(own)).toEqual(Object.keys(theirs));
        expectClose(Object.values(own), Object.values(theirs));
      });
      const sums = random.times(CASES, (each): [number[], number] => [
        each.times(each.integer(1, 20), (one) => one.next() - 0.5),
        each.next(),
      ]);
      await compare("discountedSums", sums, (theirs: number[], values, discount) => {
        expect([...discountedSums(values, discount)]).toEqual(theirs);
      });
      const sizes = Array.from({ length: 64 }, (_, length) =>
        Array.from({ length }, (_, parts): [number, number] => [length, parts + 1]),
      ).flat();
      const large = random.times(CASES, (each): [number, number] => {
        const length = each.integer(64, 5000);
        return [length, each.integer(1, length)];
      });
      await compare("splitEvenly", [...sizes, ...large], (theirs: number[], length, parts) => {
        const list = Array.from({ length }, (_, index) => index);
        const own = splitEvenly(list, parts);
        expect(own.map((each) => each.length)).toEqual(theirs);
        expect(own.flat()).toEqual(list);
      });
    });
  },
);

const token: Make<number> = (random) => random.integer(1, 9);
const tokens: Make<number[]> = (random) => random.times(random.integer(1, 4), token);
/** Sums of these are exact in 32 bits, in whatever order they are added. */
const exact: Make<number> = (random) => random.integer(-16, 16) / 16;
const image: Make<Chunk> = (random) => ({ image: random.pick(["cat", "dog"]), length: random.integer(1, 2) });
const ENDS = ["completed", "max_turns", "parse_error", null];
const NOTHING = { observation: [], tokens: [], logprobs: [], masked: false };

const givenTrajectory: Make<GivenTrajectory> = (random) => {
  const turns: GivenTurn[] = [];
  let seen: Chunk[] = [];
  const metrics = () => (random.chance(0.5) ? { format: exact(random), calls: random.integer(0, 3) } : {});
  for (let count = random.integer(0, 4); count > 0; count--) {
    const before = random.pick(["kept", "kept", "kept", "kept", "anew", "shorter", "other images"]);
    if (before === "anew") seen = [{ tokens: tokens(random) }];
    if (before === "shorter") seen = seen.slice(0, -1);
    if (before === "other images") seen = seen.map((chunk) => ("tokens" in chunk ? chunk : image(random)));
    const news = random.times(
      random.integer(seen.length === 0 ? 1 : 0, 2),
      (each): Chunk => (each.chance(0.2) ? image(each) : { tokens: tokens(each) }),
    );
    const observation = [...seen, ...news];
    const sampled = tokens(random);
    turns.push({
      observation,
      tokens: sampled,
      logprobs: sampled.map(() => 0 - random.integer(0, 64) / 16),
      reward: exact(random),
      masked: random.chance(0.2),
      metrics: metrics(),
    });
    // Chunks are cut elsewhere than they were sampled, which must not matter.
    seen = random.chance(0.5)
      ? joined([...observation, { tokens: sampled }])
      : [...observation, { tokens: sampled }];
  }
  // What is left of an episode that ran out of time, or whose first prompt was too long.
  if (turns.length === 0 || random.chance(0.1))
    turns.push({ ...NOTHING, reward: exact(random), metrics: metrics() });
  return { turns, end: random.pick(ENDS) };
};

const givenGroup: Make<GivenGroup> = (random) => {
  // Up to 8, which is as many as every library adds up one by one.
  const trajectories = random.times(random.integer(1, 7), givenTrajectory);
  const isFair = random.chance(0.2);
  return {
    trajectories: isFair ? trajectories.map(() => trajectories[0]!) : trajectories,
    rewards: trajectories.map(() => (isFair ? 0.25 : exact(random))),
    metrics: trajectories.map(
      (): Record<string, number> => (random.chance(0.3) ? { format: 1, won: exact(random) } : {}),
    ),
    tags: ["sums", "hard", "sums, again"].filter(() => random.chance(0.6)),
  };
};

function joined(chunks: readonly Chunk[]): Chunk[] {
  const made: Chunk[] = [];
  for (const chunk of chunks) {
    const last = made.at(-1);
    if ("tokens" in chunk && last !== undefined && "tokens" in last)
      made[made.length - 1] = { tokens: [...last.tokens, ...chunk.tokens] };
    else made.push(chunk);
  }
  return made;
}

function turn(given: GivenTurn): Turn {
  return {
    observation: ModelInput.from(given.observation.map(modelChunk)),
    action: {
      tokens: Int32Array.from(given.tokens),
      logprobs: Float32Array.from(given.logprobs),
      stopReason: "stop",
    },
    reward: given.reward,
    isDone: false,
    isMasked: given.masked,
    metrics: { ...given.metrics, ...(given.masked && { parse_error_masked: 1 }) },
    logs: {},
  };
}

const trajectory = ({ turns, end }: GivenTrajectory): Trajectory => ({
  turns: turns.map(turn),
  finalObservation: ModelInput.empty(),
  end: end ?? undefined,
});

const group = ({ trajectories, rewards, metrics, tags }: GivenGroup): TrajectoryGroup => ({
  trajectories: trajectories.map(trajectory),
  groupRewards: rewards,
  metrics,
  failures: [],
  tags,
});

function assembled(given: readonly GivenGroup[]): RolloutDatum[] {
  const groups = given.map(group);
  return assembleData(
    groups,
    groups.map((each) => groupAdvantages(each)),
  );
}

const isConstant = (each: TrajectoryGroup): boolean => dropConstantGroups([each]).length === 0;

const plainDatum = ({ input, targetTokens, logprobs, advantages, mask, ...places }: RolloutDatum) => ({
  input: input.chunks.map(plainChunk),
  targets: [...targetTokens],
  logprobs: [...logprobs],
  advantages: [...advantages],
  mask: [...mask],
  group: places.group,
  trajectory: places.trajectory,
});

/** Python also sends data without trained tokens. */
const learnable = <D extends PlainDatum>(data: readonly D[]): D[] =>
  data.filter(({ mask }) => mask.includes(1));

/** The rule of python/reinforcement.py. */
const scorer = (factor: number) =>
  ({
    computeLogprobs: async ({ chunks }: ModelInput) =>
      Array.from(tokensAt(chunks), (each, at) => (at === 0 ? null : -((each * factor + at) % 64) / 16)),
  }) as never;

const largest = (values: readonly number[]): number => Math.max(1, ...values.map(Math.abs));

function expectClose(own: readonly number[], theirs: readonly number[], size = 1): void {
  expect(own.length).toBe(theirs.length);
  for (const [at, expected] of theirs.entries())
    expect(Math.abs(own[at]! - expected), `${own[at]} for ${expected}`).toBeLessThanOrEqual(
      1e-6 * Math.max(size, Math.abs(expected)),
    );
}
