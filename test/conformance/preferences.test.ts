import { expect, it, vi } from "vitest";
import {
  batches,
  comparisons,
  dpoLoss,
  type LabeledComparison,
  runRolloutGroup,
  totalRewards,
  tournament,
  trainDpo,
} from "../../src/cookbook/index.js";
import { labelDatum, matchups, renderComparison } from "../../src/cookbook/preferences/index.js";
import type { Policy } from "../../src/cookbook/rollouts/index.js";
import { type Datum, SamplingClient, ServiceClient, TrainingClient } from "../../src/index.js";
import { startLocalBackend } from "../../src/local/index.js";
import { getRenderer, rendererNames, textOf } from "../../src/renderers/index.js";
import { loadTokenizer } from "../../src/tokenizers/index.js";
import { variable } from "../../src/training/autograd/index.js";
import { Datum as DatumClass, type ModelInputLike } from "../../src/wire/index.js";
import { silent } from "../local/raw-client.js";
import { CASES, describeJudged, SEED } from "./judged.js";
import { Random } from "./random.js";
import { characterVocabulary, folderOf } from "./vocabularies.js";

/** Formats whose answers begin with their text, so that Python's first trained token is the label. */
const TRAINS_THE_LABEL = /_disable_thinking$|^llama3$|^qwen3_(vl|vl_instruct|instruct)$/;
/** Python trains the label behind another prompt than the one it is sampled from (issue 860 there). */
const TRAINS_ANOTHER_PROMPT = /^nemotron3(?!.*_disable_thinking$)/;
/** Python writes no headings for these; ours has them said by the user. */
const REFUSED = /^deepseekv3/;
/** Its vocabulary is its own package's. */
const NOT_JUDGED = new Set(["template", "tml_v0"]);

const WORDS = ["yes", "no", "seven", "It is", "rain", "Tie", "A", "B"];
const user = (content: string) => ({ role: "user", content });
const assistant = (content: string) => ({ role: "assistant", content });

function comparison(random: Random): LabeledComparison {
  const said = () => random.times(random.integer(1, 4), (each) => each.pick(WORDS)).join(" ");
  return {
    prompt: [...(random.chance(0.3) ? [user(said()), assistant(said())] : []), user(said())],
    completionA: [assistant(said())],
    completionB: [assistant(said())],
    label: random.pick(["A", "B", "Tie"] as const),
  };
}

interface Labelled {
  readonly ok?: { readonly prompt: number[]; readonly tokens: number[]; readonly weights: number[] };
  readonly error?: string;
}

type Call = { readonly call: string; readonly [detail: string]: unknown };

describeJudged(
  { name: "preferences", title: "preferences, judged by the Python cookbook", script: "preferences.py" },
  ({ judge, counts }) => {
    it.each(rendererNames().filter((name) => !NOT_JUDGED.has(name)))(
      "comparisons are written alike with %s, and the label is what is learnt",
      async (name) => {
        const { tokenizer, forPython } = characterVocabulary(name);
        const renderer = getRenderer(`${name}_cookbook`, tokenizer);
        const cases = new Random(SEED).times(Math.ceil(CASES / 20), comparison);
        counts["comparisons"] = (counts["comparisons"] ?? 0) + cases.length;
        const judged = await judge.ask<Labelled[]>("labels", {
          renderer: name,
          vocabulary: forPython,
          cases,
        });
        for (const [index, { ok: theirs, error }] of judged.entries()) {
          const given = cases[index]!;
          const { prompt, labels } = renderComparison(given, renderer);
          const ours = [...prompt.toInts()];
          if (REFUSED.test(name)) {
            expect(error).toMatch(/system/i);
            continue;
          }
          expect(error).toBeUndefined();
          const { tokens, weights } = theirs!;
          if (!TRAINS_THE_LABEL.test(name)) {
            // What Python trains is what stands before every answer, and part of our prompt.
            const isTrained = tokens.at(-1) === labels[given.label];
            expect(isTrained).toBe(TRAINS_ANOTHER_PROMPT.test(name));
            if (isTrained) expect(tokens.slice(0, -1)).not.toEqual(theirs!.prompt);
            expect(ours.slice(0, theirs!.prompt.length)).toEqual(theirs!.prompt);
            continue;
          }
          expect(ours).toEqual(theirs!.prompt);
          const { modelInput, lossFnInputs } = labelDatum(given, renderer);
          expect([...modelInput.toInts(), Number(lossFnInputs["targetTokens"]!.data.at(-1))]).toEqual(tokens);
          expect([0, ...lossFnInputs["weights"]!.toArray()]).toEqual(weights);
        }
      },
    );

    it("the same players meet", async () => {
      const patterns = ["all_pairs_both_ways", "all_pairs_one_way"] as const;
      const cases = patterns.flatMap((pattern) =>
        Array.from({ length: 12 }, (_, count) =>
          [2, 3, 4, 7].map((size) => [count, pattern, size] as const),
        ).flat(),
      );
      counts["matchups"] = cases.length;
      const theirs = await judge.ask<number[][][]>("pairs", { cases });
      for (const [index, [count, pattern, size]] of cases.entries())
        expect(matchups(count, pattern, size), `${count} ${pattern} ${size}`).toEqual(theirs[index]);
    });

    it("tournaments have the same rewards", async () => {
      const folder = folderOf("nano")!;
      const renderer = getRenderer("qwen3_instruct", await loadTokenizer(folder));
      const random = new Random(SEED);
      for (let round = 0; round < 20; round += 1) {
        counts["tournaments"] = round + 1;
        const texts = random.times(random.integer(2, 9), (each, place = each.integer(0, 99)) => `${place}`);
        const unique = [...new Set(texts)].length < 2 ? ["1", "2"] : texts;
        const isEnded = unique.map(() => random.chance(0.8));
        const answers = unique.map((text, place) => [
          ...renderer.tokenizer.encode(text),
          ...(isEnded[place] ? [renderer.stopSequences[0] as number] : []),
        ]);
        // Halves, so that sums are exact in whatever order.
        const scores = unique.map((text) => [text, (Number(text) % 5) / 2] as const);
        const [pattern, size] = [
          random.pick(["all_pairs_both_ways", "all_pairs_one_way"] as const),
          random.integer(2, 5),
        ];
        const theirs = await judge.ask<[number, Record<string, number>][]>("tournament", {
          folder,
          answers,
          scores,
          pattern,
          size,
        });
        const worth = new Map(scores);
        const rest = answers.values();
        const policy: Policy = {
          act: async () => {
            const tokens = Int32Array.from(rest.next().value!);
            return { tokens, logprobs: new Float32Array(tokens.length), stopReason: "stop" };
          },
        };
        const group = await tournament({
          prompts: [{ prompt: "Say it." }],
          groupSize: answers.length,
          renderer,
          pattern,
          matchupSize: size,
          compare: ({ completionA, completionB }) =>
            worth.get(textOf(completionB[0]!))! - worth.get(textOf(completionA[0]!))!,
        }).group(0);
        const played = await runRolloutGroup(group!, policy);
        expect(totalRewards(played)).toEqual(theirs.map(([reward]) => reward));
        const metrics = played.trajectories.map(({ turns }, place) => ({
          win_minus_loss: played.metrics[place]!["win_minus_loss"],
          format: turns[0]!.metrics["format"] === 1,
        }));
        expect(metrics).toEqual(theirs.map(([, each]) => each));
      }
    });

    it("a run of DPO has the same batches, reference, passes, steps and saves, in the same order", async () => {
      const rows = Array.from({ length: 14 }, (_, index) => comparison(new Random(SEED + index)))
        .filter(({ completionA, completionB }) => textOf(completionA[0]!) !== textOf(completionB[0]!))
        .map((row) => (row.label === "Tie" ? { ...row, label: "A" as const } : row));
      const batchSize = 3;
      const length = rows.length - (rows.length % batchSize);
      const data = rows.slice(0, length);
      const order = batches(data, { batchSize });
      const theirs = await judge.ask<Call[]>("loop", {
        folder: folderOf("nano"),
        batches: Array.from({ length: order.stepsPerEpoch }, (_, step) =>
          order.indices(step).map((index) => data[index]),
        ),
        learning_rate: 1e-3,
        save_every: 2,
      });
      counts["calls of a run"] = theirs.length;
      const ours = await recordRun(data, batchSize);
      const named = (calls: readonly Call[], name: string) => calls.filter(({ call }) => call === name);
      for (const name of ["saveReference", "forwardBackwardCustom", "optimStep"])
        expect(named(ours, name).map(withoutMetrics), name).toEqual(named(theirs, name).map(withoutMetrics));
      // Python asks for the reference of a batch when its step comes, ours while the step before is trained.
      expect(
        named(ours, "computeLogprobs")
          .map(({ tokens }) => `${tokens}`)
          .sort(),
      ).toEqual(
        named(theirs, "computeLogprobs")
          .map(({ tokens }) => `${tokens}`)
          .sort(),
      );
      expect(outline(ours)).toEqual(outline(theirs));
      for (const { data: passed, metrics } of named(theirs, "forwardBackwardCustom"))
        checkMetrics(passed as PassedDatum[], metrics as Record<string, number>);
    });
  },
);

interface PassedDatum {
  readonly tokens: number[];
  readonly targets: number[];
  readonly weights: number[];
}

const withoutMetrics = ({ metrics: _, ...call }: Call) => call;

/** When weights are saved: before which of the passes, the first of which no loop needs. */
function outline(calls: readonly Call[]): string[] {
  const told = calls.flatMap(({ call }) =>
    call === "forwardBackwardCustom" || call === "optimStep"
      ? [call]
      : /^save_?(state|weights)/i.test(call)
        ? ["save"]
        : [],
  );
  const firstPass = told.indexOf("forwardBackwardCustom");
  return told.slice(firstPass).filter((call, place, all) => call !== "save" || all[place - 1] !== "save");
}

/** The loss at the logprobs that the Python side was given: -1 and -2 by turns, and -1 of the reference. */
function checkMetrics(passed: readonly PassedDatum[], theirs: Record<string, number>): void {
  const data = passed.map(
    ({ tokens, targets, weights }) =>
      new DatumClass({
        modelInput: tokens,
        lossFnInputs: {
          targetTokens: Int32Array.from(targets),
          weights: Float32Array.from(weights),
          refLogprobs: Float32Array.from(weights, () => -1),
        },
      }),
  );
  const logprobs = passed.map(({ weights }, place) => variable(weights.map(() => -1 - (place % 2))));
  const { metrics } = dpoLoss()(data, logprobs);
  for (const [name, value] of Object.entries(theirs)) {
    const own = metrics![name]!;
    expect(typeof own === "number" ? own : own.item(), name).toBeCloseTo(value, 5);
  }
}

/** The calls of a run on the built-in backend, in their order. */
async function recordRun(rows: readonly LabeledComparison[], batchSize: number): Promise<Call[]> {
  const calls: Call[] = [];
  const write = ({ modelInput, lossFnInputs }: Datum): PassedDatum => ({
    tokens: [...modelInput.toInts()],
    targets: lossFnInputs["targetTokens"]!.toArray(),
    weights: lossFnInputs["weights"]!.toArray(),
  });
  const { forwardBackwardCustom, optimStep, saveWeightsForSampler, saveState } = TrainingClient.prototype;
  const { computeLogprobs } = SamplingClient.prototype;
  const spies = [
    vi.spyOn(TrainingClient.prototype, "forwardBackwardCustom").mockImplementation(function (
      this: TrainingClient,
      ...given
    ) {
      calls.push({ call: "forwardBackwardCustom", data: (given[0] as readonly Datum[]).map(write) });
      return forwardBackwardCustom.apply(this, given);
    }),
    vi.spyOn(TrainingClient.prototype, "optimStep").mockImplementation(function (
      this: TrainingClient,
      ...given
    ) {
      calls.push({ call: "optimStep", learningRate: given[0]!.learningRate });
      return optimStep.apply(this, given);
    }),
    vi.spyOn(TrainingClient.prototype, "saveState").mockImplementation(function (
      this: TrainingClient,
      ...given
    ) {
      calls.push({ call: "saveState" });
      return saveState.apply(this, given);
    }),
    vi.spyOn(TrainingClient.prototype, "saveWeightsForSampler").mockImplementation(function (
      this: TrainingClient,
      ...given
    ) {
      calls.push({ call: given[0] === "reference" ? "saveReference" : "saveWeights" });
      return saveWeightsForSampler.apply(this, given);
    }),
    vi.spyOn(SamplingClient.prototype, "computeLogprobs").mockImplementation(function (
      this: SamplingClient,
      prompt: ModelInputLike,
      options,
    ) {
      calls.push({ call: "computeLogprobs", tokens: [...(prompt as Datum["modelInput"]).toInts()] });
      return computeLogprobs.call(this, prompt, options);
    }),
  ];
  await using backend = await startLocalBackend({ logger: silent });
  await using service = new ServiceClient(backend);
  try {
    await trainDpo({
      service,
      model: "tinkerts/nano",
      data: comparisons(rows),
      testSize: 0,
      batchSize,
      learningRate: 1e-3,
      rank: 4,
      save: { everySteps: 2 },
      loggers: [],
    });
  } finally {
    for (const spy of spies) spy.mockRestore();
  }
  return calls;
}
