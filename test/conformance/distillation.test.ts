import { expect, it } from "vitest";
import { hintedTeaching } from "../../src/cookbook/distillation/hinted-teaching.js";
import { hintedPrompt, hintedQuestion } from "../../src/cookbook/distillation/hints.js";
import {
  distillationDatum,
  type TeacherSampler,
  teacherPenalty,
} from "../../src/cookbook/distillation/index.js";
import type { RolloutDatum, RolloutGroup } from "../../src/cookbook/reinforcement/index.js";
import type { Message, Renderer } from "../../src/renderers/index.js";
import { Datum, ModelInput, type SampleResponse } from "../../src/wire/index.js";
import { CASES as ALL_CASES, describeJudged, SEED } from "./judged.js";
import { type Make, Random } from "./random.js";

/** Fewer than of other values: each is a batch of data. */
const CASES = Math.ceil(ALL_CASES / 4);
const { signal } = new AbortController();

interface GivenDatum {
  readonly input: number[];
  readonly targets: number[];
  readonly logprobs: number[];
  readonly advantages: number[];
  readonly mask: number[];
  readonly group: number;
}
type SoftTargets = [token: number, weight: number][][];

describeJudged(
  {
    name: "distillation",
    title: "formulas of distillation, judged by the Python cookbook",
    script: "cookbook_renderers.py",
  },
  ({ compare }) => {
    it("takes the same reverse KL off, each data set by its own teacher", async () => {
      const cases = new Random(SEED).times(CASES, (random): [GivenDatum[], number[], number, number] => {
        const datasets = random.times(random.integer(1, 4), (each) => each.integer(0, 2));
        const data = random.times(random.integer(1, 6), (each) => givenDatum(each, datasets.length));
        return [data, datasets, random.pick([1, 0.5, 2]), random.pick([0, 0, 0.5, 1])];
      });
      await compare(
        "teacherPenalty",
        cases,
        async (
          theirs: { advantages: number[][]; metrics: Record<string, number> },
          given,
          datasets,
          coefficient,
          discount,
        ) => {
          const data = given.map(rolloutDatum);
          const names = ["dataset_0", "dataset_1", "dataset_2"];
          const teachers = Object.fromEntries(names.map((name, index) => [name, teacher(3 + 2 * index)]));
          const groups = datasets.map((dataset) => rolledGroup(0, names[dataset]!));
          const penalty = teacherPenalty({ teachers, coefficient, discount });
          expectSameMetrics(await penalty.apply(data, { groups, signal }), theirs.metrics);
          for (const [index, { advantages, mask }] of data.entries()) {
            // With a discount Python gives tokens an advantage that were never sampled.
            const expected = theirs.advantages[index]!.map((each, at) => (mask[at] === 0 ? 0 : each));
            expectClose([...advantages], expected);
          }
        },
      );
    });

    it("makes the same soft targets of supervised data", async () => {
      const cases = new Random(SEED).times(CASES, (random): [number[], number[], number[], number] => {
        const tokens = random.times(random.integer(3, 12), (each) => each.integer(0, 96));
        const weights = tokens.slice(1).map(() => random.pick([0, 1, 1]));
        return [tokens.slice(0, -1), tokens.slice(1), weights, random.pick([1, 3, 20])];
      });
      await compare("offPolicyTargets", cases, async (theirs: SoftTargets, input, targets, weights, topk) => {
        const datum = new Datum({
          modelInput: ModelInput.fromInts(input),
          lossFnInputs: { targetTokens: Int32Array.from(targets), weights: Float32Array.from(weights) },
        });
        const taught = await distillationDatum(datum, { teacher: teacher(3), topk });
        expect(taught.datum.lossFnInputs["targetTokens"]!.shape).toEqual([input.length, topk]);
        expectSameTargets(softTargets(taught.datum), theirs);
      });
    });

    const hintedCases = (topks: readonly number[]) =>
      new Random(SEED).times(CASES, (random): [GivenDatum[], number[][], number, number, number] => {
        const prompts = random.times(random.integer(1, 3), (each) =>
          each.times(each.integer(1, 8), (one) => one.integer(0, 96)),
        );
        const data = random.times(random.integer(1, 5), (each) => givenDatum(each, prompts.length));
        return [data, prompts, random.pick(topks), random.pick([4, 9, 14, 1000]), random.pick([0, 1, 3])];
      });

    it("makes the same data of a teacher with a hint", async () => {
      let cut = 0;
      await compare(
        "hinted",
        hintedCases([1, 4, 20]),
        async (
          theirs: {
            forward: SoftTargets[];
            reverse: SoftTargets[];
            metrics: Record<string, number>;
            entropy?: number;
          },
          given,
          prompts,
          topk,
          maxLength,
          skipTokens,
        ) => {
          const data = given.map(rolloutDatum);
          for (const isReverse of [false, true]) {
            const { penalty, loss } = teaching({ prompts, topk, maxLength, skipTokens, isReverse });
            const metrics = await penalty.apply(data, { groups: groupsOf(prompts), signal });
            const sent = await sentBy(loss, data);
            for (const [index, datum] of sent.entries()) {
              const { targets } = given[index]!;
              const shape = datum.lossFnInputs["targetTokens"]!.shape;
              expect(shape).toEqual([targets.length, topk + 1]);
              // Behind the teacher's tokens stands the one that was sampled, which weighs nothing.
              const rows = datum.lossFnInputs["targetTokens"]!.toNested() as number[][];
              expect(rows.map((row) => row[topk])).toEqual(targets);
              expectSameTargets(softTargets(datum), theirs[isReverse ? "reverse" : "forward"][index]!);
            }
            cut += metrics["sdft/teacher_truncated_count"]!;
            // Python's forward mode divides by the tokens that are skipped too.
            const { "sdft/mean_teacher_entropy": _, ...expected } = theirs.metrics;
            expectSameMetrics(metrics, {
              "sdft/total_completion_tokens": 0,
              "sdft/total_completion_positions": 0,
              ...expected,
              ...(theirs.entropy != null && { "sdft/mean_teacher_entropy": theirs.entropy }),
            });
          }
        },
      );
      expect(cut).toBeGreaterThan(CASES / 4);
    });

    it("has the same advantages by a teacher with a hint", async () => {
      await compare(
        "hinted",
        hintedCases([0]),
        async (
          theirs: { advantages: number[][]; metrics: Record<string, number> },
          given,
          prompts,
          topk,
          maxLength,
          skipTokens,
        ) => {
          const data = given.map((each) => rolloutDatum({ ...each, advantages: each.mask.map(() => 0) }));
          const { penalty } = teaching({ prompts, topk, maxLength, skipTokens, isReverse: false });
          const metrics = await penalty.apply(data, { groups: groupsOf(prompts), signal });
          for (const [index, { advantages, mask }] of data.entries()) {
            const room = maxLength - prompts[given[index]!.group]!.length;
            // Python leaves the advantages of an answer as they were for which its teacher has no room.
            const expected = room <= 0 ? [...mask].map(() => 0) : theirs.advantages[index]!;
            expectClose([...advantages], expected);
          }
          // Python's means count tokens too that the teacher had no room for.
          if (metrics["sdft/teacher_truncated_count"] === 0) expectSameMetrics(metrics, theirs.metrics);
        },
      );
    });

    it("asks the teacher the same", async () => {
      const cases: [string, string, string | null][] = [
        ["Why?", "Because.", null],
        ["What is 2 + 2?", "4", "Be brief."],
      ];
      await compare("teacherMessages", cases, (theirs: Message[], question, answer, system) => {
        const messages = [
          ...(system === null ? [] : [{ role: "system", content: system }]),
          { role: "user", content: question },
          { role: "assistant", content: answer },
        ];
        let asked: readonly Message[] = [];
        const renderer = {
          buildPrompt: (given: readonly Message[]) => {
            asked = given;
            return ModelInput.empty();
          },
        } as unknown as Renderer;
        hintedPrompt(hintedQuestion({ messages }, "row 1"), renderer, (asks, says) => `${asks} <${says}>`);
        expect(asked).toEqual(theirs);
      });
    });
  },
);

/** A prompt and an answer of one turn. */
const givenDatum = (random: Random, groups: number): GivenDatum => {
  const token: Make<number> = (each) => each.integer(0, 96);
  const prompt = random.times(random.integer(1, 5), token);
  const answer = random.times(random.integer(1, 8), token);
  const tokens = [...prompt, ...answer];
  const mask = tokens.slice(1).map((_, at) => (at >= prompt.length - 1 ? 1 : 0));
  return {
    input: tokens.slice(0, -1),
    targets: tokens.slice(1),
    // Sixteenths, of which sums are exact.
    logprobs: mask.map((taught) => taught * (0 - random.integer(0, 64) / 16)),
    advantages: mask.map((taught) => (taught * random.integer(-8, 8)) / 8),
    mask,
    group: random.integer(0, groups - 1),
  };
};

const rolloutDatum = ({ input, targets, logprobs, advantages, mask, group }: GivenDatum): RolloutDatum => ({
  input: ModelInput.fromInts(input),
  targetTokens: Int32Array.from(targets),
  logprobs: Float32Array.from(logprobs),
  advantages: Float32Array.from(advantages),
  mask: Float32Array.from(mask),
  group,
  trajectory: 0,
});

const rolledGroup = (index: number, ...tags: string[]): RolloutGroup => ({
  index,
  group: { trajectories: [], groupRewards: [], metrics: [], failures: [], tags },
  samplerStep: 0,
  seconds: 0,
});

const groupsOf = (prompts: readonly unknown[]) => prompts.map((_, index) => rolledGroup(index));

/** The same rules as distillation.py's. */
function teacher(factor: number): TeacherSampler {
  const candidates = (before: number, at: number, count: number): [number, number][] =>
    Array.from({ length: (before + at) % 7 === 0 ? Math.max(1, count - 1) : count }, (_, rank) => [
      (before * 3 + at + 11 * rank) % 97,
      -((rank * (1 + ((before * factor) % 5)) + (at % 3)) / 4),
    ]);
  return {
    computeLogprobs: async (prompt) =>
      prompt.toInts().map((token, at) => (at === 0 ? null : -((token * factor + at) % 64) / 16)),
    sample: async ({ prompt, topkPromptLogprobs }) => {
      const tokens = ModelInput.from(prompt).toInts();
      return {
        topkPromptLogprobs: tokens.map((_, at) =>
          at === 0 ? null : candidates(tokens[at - 1]!, at, topkPromptLogprobs!),
        ),
      } as SampleResponse;
    },
  };
}

function teaching({
  prompts,
  ...options
}: {
  prompts: readonly number[][];
  topk: number;
  maxLength: number;
  skipTokens: number;
  isReverse: boolean;
}) {
  const promptOf = async (index: number) => ModelInput.fromInts(prompts[index]!);
  return hintedTeaching({ ...options, teacher: teacher(5), promptOf });
}

/** What a loss sends to the server. */
async function sentBy(
  loss: ReturnType<typeof hintedTeaching>["loss"],
  data: readonly RolloutDatum[],
): Promise<readonly Datum[]> {
  let sent: readonly Datum[] = [];
  const keep = (given: readonly Datum[]) => {
    sent = given;
    return Promise.resolve({ lossFnOutputs: [], metrics: {} });
  };
  await loss.forwardBackward({ forwardBackward: keep, forwardBackwardCustom: keep } as never, data);
  return sent;
}

function softTargets({ lossFnInputs }: Datum): SoftTargets {
  const tokens = lossFnInputs["targetTokens"]!.toNested() as number[][];
  const weights = lossFnInputs["weights"]!.toNested() as number[][];
  return tokens.map((row, position) =>
    row
      .map((token, rank): [number, number] => [token, weights[position]![rank]!])
      .filter(([, weight]) => weight > 0),
  );
}

function expectSameTargets(ours: SoftTargets, theirs: SoftTargets): void {
  expect(ours.map((row) => row.map(([token]) => token))).toEqual(
    theirs.map((row) => row.map(([token]) => token)),
  );
  expectClose(
    ours.flat().map(([, weight]) => weight),
    theirs.flat().map(([, weight]) => weight),
  );
}

function expectClose(ours: readonly number[], theirs: readonly number[]): void {
  expect(ours).toHaveLength(theirs.length);
  for (const [at, value] of ours.entries()) expect(value).toBeCloseTo(theirs[at]!, 5);
}

function expectSameMetrics(ours: Readonly<Record<string, number>>, theirs: Readonly<Record<string, number>>) {
  expect(Object.keys(ours).sort()).toEqual(Object.keys(theirs).sort());
  for (const [name, value] of Object.entries(ours)) expect(value, name).toBeCloseTo(theirs[name]!, 5);
}
