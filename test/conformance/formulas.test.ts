import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { datumFromExample } from "../../src/cookbook/data/examples.js";
import {
  extractBoxed,
  extractChoice,
  extractNumber,
  isSameNumber,
} from "../../src/cookbook/evaluation/extract.js";
import { passAtK } from "../../src/cookbook/evaluation/statistics.js";
import { recommendedLearningRate } from "../../src/cookbook/runs/hyperparameters.js";
import { SCHEDULES, scheduleMultiplier } from "../../src/cookbook/runs/schedule.js";
import { bitsPerByte, meanNll } from "../../src/cookbook/supervised/likelihood.js";
import { loadTokenizer } from "../../src/tokenizers/index.js";
import { RunLog } from "../../src/training/run-log.node.js";
import { ModelInput } from "../../src/wire/index.js";
import { type Chunk, lengthOf, modelChunk, plainChunk } from "./chunks.js";
import { CASES, describeJudged, SEED } from "./judged.js";
import { type Make, Random, wellFormedText } from "./random.js";
import type { Outcome } from "./renderer-operations.js";
import { folderOf } from "./vocabularies.js";

describeJudged(
  { name: "formulas", title: "formulas, judged by the Python cookbook", script: "cookbook_renderers.py" },
  ({ judge, counts }) => {
    const random = () => new Random(SEED);
    async function calculate(
      formula: string,
      cases: readonly unknown[],
      tokenizer?: string,
    ): Promise<Outcome[]> {
      counts[formula] = (counts[formula] ?? 0) + cases.length;
      return judge.ask("formula", { formula, cases, ...(tokenizer !== undefined && { tokenizer }) });
    }

    it("makes the same datums of examples, cut or whole", async () => {
      const cases = random().times(CASES, (each) => {
        const chunks = each.times(
          each.integer(1, 4),
          (some): Chunk =>
            some.chance(0.2)
              ? { length: some.integer(1, 5) }
              : { tokens: some.times(some.integer(0, 6), (one) => one.integer(0, 99)) },
        );
        const length = chunks.reduce((sum, chunk) => sum + lengthOf(chunk), 0);
        return {
          chunks,
          // Sums of these are exact, in whatever order they are added.
          weights: each.times(length, (one) => one.pick([0, 0, 1, 1, 0.5, 2])),
          ...(each.chance(0.6) && { max_length: each.integer(2, 16) }),
          reduction: each.pick(["none", "mean"] as const),
        };
      });
      const theirs = await calculate("datum", cases);
      let made = 0;
      for (const [index, { chunks, weights, max_length: maxLength, reduction }] of cases.entries()) {
        const input = ModelInput.from(chunks.map(modelChunk));
        const datum = datumFromExample(
          { input, weights: Float32Array.from(weights) },
          { maxLength, reduction },
        );
        const expected = theirs[index]!.ok as { weights: number[] } | undefined;
        // Python makes one without trained tokens, or fails if fewer than two tokens are left.
        if (expected === undefined || expected.weights.every((weight) => weight === 0)) {
          expect(datum, JSON.stringify(cases[index])).toBeUndefined();
          continue;
        }
        made++;
        expect({
          chunks: datum!.modelInput.chunks.map(plainChunk),
          targets: [...datum!.lossFnInputs["targetTokens"]!.data].map(Number),
          weights: [...datum!.lossFnInputs["weights"]!.data],
        }).toEqual(expected);
      }
      expect(made).toBeGreaterThan(CASES / 3);
    });

    it("measures the same likelihoods", async () => {
      const folder = folderOf("nano")!;
      const tokenizer = await loadTokenizer(folder);
      await judge.ask("tokenizer", { name: "nano", folder });
      const cases = random().times(CASES, (each) => {
        const sizes = each.times(each.integer(1, 4), (some) => some.integer(1, 12));
        const lists = (make: Make<number>) => sizes.map((size) => each.times(size, make));
        return {
          // Halves and quarters, which a float32 has exactly.
          logprobs: lists((one) => -one.integer(0, 64) / 4),
          weights: lists((one) => one.pick([0, 0, 1, 1, 0.25])),
          // Special ones, bytes of half a character and whole words.
          targets: lists((one) =>
            one.pick([one.integer(0, 511), one.integer(505, 511), one.integer(128, 256)]),
          ),
        };
      });
      const withoutTargets = cases.map(({ logprobs, weights }) => ({ logprobs, weights }));
      const [nll, bpb] = [
        await calculate("meanNll", withoutTargets),
        await calculate("bitsPerByte", cases, "nano"),
      ];
      for (const [index, { logprobs, weights, targets }] of cases.entries()) {
        const batch = targets.map((targetTokens, datum) => ({
          targetTokens,
          logprobs: logprobs[datum]!,
          weights: weights[datum]!,
        }));
        expectClose(meanNll(batch), nll[index]!.ok, cases[index]);
        expectClose(bitsPerByte(batch, tokenizer), bpb[index]!.ok, cases[index]);
      }
    });

    it("recommends the same learning rates, and lowers them alike", async () => {
      const steps = random().times(CASES, (each) => {
        const total = each.integer(1, 10_000);
        return [each.pick(SCHEDULES), each.integer(0, total), total] as const;
      });
      const multipliers = await calculate("scheduleMultiplier", steps);
      // Cosines may differ in their last bit from one library to the next.
      for (const [index, step] of steps.entries())
        expectClose(scheduleMultiplier(...step), multipliers[index]!.ok, step);
      const rates = await calculate(
        "learningRate",
        MODELS.map((model) => [model]),
      );
      expect(rates.filter(({ ok }) => ok !== undefined).length).toBeGreaterThan(25);
      for (const [index, model] of MODELS.entries()) {
        // Python refuses models without a fitted formula; ours begins with a cautious rate.
        const { ok } = rates[index]!;
        if (ok === undefined) expect(recommendedLearningRate(model)).toBe(1e-4);
        else expectClose(recommendedLearningRate(model), ok, model);
      }
    });

    it("finds the same answers in texts", async () => {
      const texts = random().times(5 * CASES, answerText);
      const compare = async (
        formula: string,
        cases: readonly unknown[][],
        own: (...given: never[]) => unknown,
      ) => {
        const theirs = await calculate(formula, cases);
        for (const [index, given] of cases.entries())
          expect([given, own(...(given as never[])) ?? null]).toEqual([given, theirs[index]!.ok || null]);
      };
      await compare(
        "boxed",
        texts.map((text) => [text]),
        (text: string) => extractBoxed(text) || null,
      );
      await compare(
        "number",
        texts.map((text) => [text]),
        (text: string) => extractNumber(text) || null,
      );
      const choices = texts.map((text, index) => [text, ["ABCD", "ABCDEFGHIJ"][index % 2]!]);
      await compare("choice", choices, (text: string, letters: string) => extractChoice(text, letters));
      const expected = texts.map((text, index) => [
        text,
        ["7", "1,234", "0.5", "-3", "x", "1e3", "12", "\u0661"][index % 8]!,
      ]);
      await compare(
        "sameNumber",
        expected,
        (text: string, right: string) => isSameNumber(extractNumber(text) ?? "", right) || null,
      );
    });

    it("counts the same pass@k", async () => {
      const cases = random().times(CASES, (each) => {
        const count = each.integer(1, 300);
        return [count, each.integer(0, count), each.integer(1, count)] as const;
      });
      const theirs = await calculate("passAtK", cases);
      for (const [index, given] of cases.entries()) expectClose(passAtK(...given), theirs[index]!.ok, given);
    });

    it("reads and writes the same lines of checkpoints", async () => {
      const folder = await mkdtemp(join(tmpdir(), "tinkerts-records-"));
      const file = join(folder, "checkpoints.jsonl");
      const records = random().times(60, (each) => ({
        name: `${each.integer(0, 999)}`.padStart(6, "0"),
        ...(each.chance(0.7) && { batch: each.integer(0, 1000) }),
        ...(each.chance(0.5) && { epoch: each.integer(0, 9) }),
        ...(each.chance(0.2) && { final: each.chance(0.5) }),
        ...(each.chance(0.7) && { statePath: `tinker://${wellFormedText(each)}/weights/1` }),
        ...(each.chance(0.5) && { samplerPath: "tinker://run/sampler_weights/1" }),
        ...(each.chance(0.4) && {
          extra: { step: each.integer(0, 9), note: wellFormedText(each), list: [1.5, null] },
        }),
      }));
      try {
        {
          await using log = await RunLog.open(folder);
          for (const record of records) await log.logCheckpoint(record);
        }
        const written = await readFile(file, "utf8");
        const [answer] = await calculate("checkpoints", [[[written]]]);
        const python = answer!.ok as { records: Record<string, unknown>[]; lines: string[]; last: string };
        expect(python.records).toEqual(
          records.map(({ name, batch, epoch, final, statePath, samplerPath, extra }) => ({
            name,
            batch: batch ?? null,
            epoch: epoch ?? null,
            final: final ?? null,
            state_path: statePath ?? null,
            sampler_path: samplerPath ?? null,
            extra: extra ?? {},
          })),
        );
        expect(python.lines.map((line) => JSON.parse(line))).toEqual(
          written
            .trimEnd()
            .split("\n")
            .map((line) => JSON.parse(line)),
        );
        await writeFile(file, python.lines.join(""));
        await using log = await RunLog.open(folder);
        expect(log.checkpoints.map((record) => JSON.parse(JSON.stringify(record)))).toEqual(records);
        expect(python.last).toBe(records.findLast(({ statePath }) => statePath !== undefined)!.name);
      } finally {
        await rm(folder, { recursive: true });
      }
    });
  },
);

/** Models of the Python package, as it names them, and some that it does not know. */
const MODELS: readonly string[] = [
  ..."1B 3B".split(" ").map((size) => `meta-llama/Llama-3.2-${size}`),
  ..."8B 8B-Instruct 70B".split(" ").map((size) => `meta-llama/Llama-3.1-${size}`),
  "meta-llama/Llama-3.3-70B-Instruct",
  ..."235B-A22B-Instruct-2507 30B-A3B-Instruct-2507 30B-A3B 30B-A3B-Base 32B 8B 8B-Base 4B-Instruct-2507"
    .split(" ")
    .map((size) => `Qwen/Qwen3-${size}`),
  ..."235B-A22B 30B-A3B".split(" ").map((size) => `Qwen/Qwen3-VL-${size}-Instruct`),
  ..."397B-A17B 35B-A3B 35B-A3B-Base 27B 9B 9B-Base 4B".split(" ").map((size) => `Qwen/Qwen3.5-${size}`),
  ..."27B 35B-A3B".split(" ").map((size) => `Qwen/Qwen3.6-${size}`),
  ..."Qwen/Qwen3.8-27B Qwen/Qwen3-8B:peft:262144 openai/gpt-oss-20b zai-org/GLM-5.3 somebody/something".split(
    " ",
  ),
];

const ANSWER_PIECES = [
  ...[
    "\\boxed{7}",
    "\\boxed{\\text{A }B}",
    "\\boxed{{1}{2}}",
    "\\boxed{",
    "\\boxed{}",
    "\\boxed{ c }",
    "\\boxed{\\frac{1}{2}}",
  ],
  ...[
    "#### 1,234",
    "####-3\n",
    "####",
    "The answer is $7.",
    "answer: 1,234.5",
    "Answer is (B)",
    "ANSWER:\u2003d",
    "the answer is no",
  ],
  ...[
    "**7**",
    "**$1,234.**",
    "**-3.5 apples**",
    "7",
    "-3",
    "1,234",
    "0.5",
    "1.",
    "A",
    "B.",
    "(C)",
    "AB",
    "é D",
    "_A_",
    "\u0661\u0662",
    "**\u0661**",
    "\\boxed{\u0967\u0968}",
  ],
  ...[" ", "\n", "x", "naïve 😀", "\u00a0", "I think so.", "$", "{", "}", "\u2028", "K"],
];

const answerText: Make<string> = (random) => {
  const text = random
    .times(random.integer(0, 6), (each) => each.pick(ANSWER_PIECES))
    .join(random.pick(["", " "]));
  // Letters are looked for where an answer ends.
  return random.chance(0.1)
    ? text + random.pick(["x ", "😀", "é"]).repeat(random.integer(140, 160)) + text
    : text;
};

/** NaN travels as nothing. */
function expectClose(own: number, theirs: unknown, given: unknown): void {
  const expected = typeof theirs === "number" ? theirs : Number.NaN;
  if (Object.is(own, expected) || Math.abs(own - expected) <= 1e-6 * Math.max(1, Math.abs(expected))) return;
  expect(own, JSON.stringify(given)).toBe(expected);
}
