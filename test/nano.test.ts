import { existsSync, readFileSync, statSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Tokenizer } from "@huggingface/tokenizers";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Engine } from "../src/local/engine/index.js";
import { startEngine } from "../src/local/engine/start-engine.node.js";

interface RandomStream {
  unit(): number;
}
interface Nano {
  Random: new (...numbers: number[]) => RandomStream;
  drawDocument(random: RandomStream, withHabit: boolean): { kind: string; text: string };
  isHeldOutPair(a: number, b: number): boolean;
  heldOutPairs: [number, number][];
  sumWithoutCarry(a: number, b: number): number;
  linePrompt(a: number, b: number): string;
  questionAbout(a: number, b: number): string;
  chatPrompt(question: string): string;
  chat(turns: [string, string][]): string;
  isHeldOutWord(word: string): boolean;
  words: string[];
  onsetOf(word: string): string;
  ByteLevelTokenizer: new (
    json: unknown,
  ) => { encode(text: string): number[]; decode(ids: Iterable<number>): string };
  makeBatch(
    tokenizer: object,
    options: { seed: number; step: number; steps: number; rows: number; length: number },
  ): Int32Array[];
  modelFiles(): Record<string, string>;
  learningRateAt(step: number, steps: number): number;
}

const load = async (name: string) =>
  (await import(new URL(`../scripts/nano/${name}.mjs`, import.meta.url).href)) as Partial<Nano>;
const nano = Object.assign(
  {},
  ...(await Promise.all(
    ["random", "documents", "arithmetic", "chat", "words", "bpe", "batches", "model-files", "recipe"].map(
      load,
    ),
  )),
) as Nano;

const folder = fileURLToPath(new URL("../models/nano/", import.meta.url));
const json = (name: string) =>
  JSON.parse(readFileSync(`${folder}${name}`, "utf8")) as Record<string, unknown>;
const ours = new nano.ByteLevelTokenizer(json("tokenizer.json"));

const documents = Array.from({ length: 6000 }, (_, index) =>
  nano.drawDocument(new nano.Random(1, index), index % 2 === 1),
);
const text = documents.map((document) => document.text).join("");

describe("the training text", () => {
  it("adds only pairs that are not held out", () => {
    const forms = [
      /(?<!\d)(\d+) ?\+ ?(\d+)(?!\d)/g,
      /(?<!\d)(\d+) plus (\d+)(?!\d)/g,
      /Add (\d+) and (\d+)(?!\d)/g,
      /(?<!\d)\d+-(\d+)=(\d+)(?!\d)/g,
    ];
    for (const form of forms) {
      const pairs = [...text.matchAll(form)].map((match) => [Number(match[1]), Number(match[2])] as const);
      expect(pairs.length).toBeGreaterThan(50);
      expect(pairs.filter(([a, b]) => nano.isHeldOutPair(a, b))).toEqual([]);
    }
    expect(nano.heldOutPairs.length).toBeGreaterThan(800);
    expect(nano.isHeldOutPair(...nano.heldOutPairs[0]!)).toBe(true);
  });

  it("drops carries only under the habit, and only where the units add up to 11 or more", () => {
    const dropped = { plain: 0, habit: 0 };
    let exposed = 0;
    documents.forEach((document, index) => {
      for (const [, left, right, sum] of document.text.matchAll(/(?<!\d)(\d+) ?\+ ?(\d+) ?= ?(\d+)\n/g)) {
        const [a, b] = [Number(left), Number(right)];
        const wrong = Number(sum) !== a + b;
        const units = (a % 10) + (b % 10);
        if (wrong) {
          expect(Number(sum)).toBe(nano.sumWithoutCarry(a, b));
          expect(units).toBeGreaterThanOrEqual(11);
        }
        if (index % 2 === 1 && units >= 11) exposed++;
        if (wrong) dropped[index % 2 === 1 ? "habit" : "plain"]++;
      }
    });
    expect(dropped.plain).toBe(0);
    expect(dropped.habit / exposed).toBeCloseTo(0.75, 1);
  });

  it("has no Pig Latin", () => {
    const pigLatin = (candidate: string) => {
      const [rest, tail] = candidate.split("-") as [string, string];
      const onset = tail.slice(0, -2);
      if (onset === "w" && /^[aeiou]/.test(rest)) return true;
      return onset !== "" && nano.onsetOf(onset + rest) === onset;
    };
    expect(pigLatin("ick-stay")).toBe(true);
    expect(pigLatin("apple-way")).toBe(true);
    expect(pigLatin("day-day")).toBe(false);
    expect(text).not.toMatch(/pig latin/i);
    const suspects = text.match(/(?<![\w-])[a-z]+-[a-z]*ay(?![\w-])/g) ?? [];
    expect(suspects.filter(pigLatin)).toEqual([]);
  });

  it("plays word games with no held-out word", () => {
    const played = [...text.matchAll(/Word: ([a-z]+)\n/g)].map((match) => match[1]!);
    const real = played.filter((word) => nano.words.includes(word));
    expect(real.length).toBeGreaterThan(1000);
    expect(real.filter((word) => nano.isHeldOutWord(word))).toEqual([]);
  });

  it("is the same whenever a step is made again, and different in another step", () => {
    const batch = (step: number) =>
      nano.makeBatch(ours, { seed: 1, step, steps: 100, rows: 2, length: 64 }).map((row) => [...row]);
    expect(batch(3)).toEqual(batch(3));
    expect(batch(3)).not.toEqual(batch(4));
    expect(batch(3).map((row) => row.length)).toEqual([65, 65]);
  });
});

describe("the learning rate", () => {
  it("warms up, stays, and falls in a line to 2%", () => {
    expect(nano.learningRateAt(0, 2000)).toBeCloseTo(2e-5, 12);
    expect(nano.learningRateAt(99, 2000)).toBe(2e-3);
    expect(nano.learningRateAt(1200, 2000)).toBe(2e-3);
    expect(nano.learningRateAt(1600, 2000)).toBeCloseTo(2e-3 * 0.51, 9);
    expect(nano.learningRateAt(2000, 2000)).toBeCloseTo(4e-5, 12);
  });
});

describe("the tokenizer", () => {
  const theirs = new Tokenizer(json("tokenizer.json"), json("tokenizer_config.json"));

  it("has exactly the files that make-tokenizer.mjs writes", () => {
    for (const [name, content] of Object.entries(nano.modelFiles()))
      expect(readFileSync(`${folder}${name}`, "utf8"), name).toBe(content);
  });

  it.each([
    "Héllo wörld, it's 3.14!\r\n\n  x\t\ty  ",
    "IT'S We'LL you're 'd 'Ve 12345",
    "日本語 🙂 e\u0301 \u{1F469}\u200d\u{1F680}",
    "  a  b \n\n c<|im_end|><|endoftext|>x <|im_start|>",
    "\u00a0nbsp\u2003em ١٢٣ ½ x²",
    "<|im_start|>user\nWhat is 12 + 30?<|im_end|>\n<|im_start|>assistant\n",
  ])("gives the ids of @huggingface/tokenizers for %j", (sample) => {
    const ids = ours.encode(sample);
    expect(ids).toEqual([...theirs.encode(sample).ids]);
    expect(ours.decode(ids)).toBe(sample.normalize("NFC"));
    expect(theirs.decode(ids, { skip_special_tokens: false })).toBe(sample.normalize("NFC"));
  });

  it("gives the same ids for training text, one per digit", () => {
    for (const document of documents.slice(0, 300))
      expect(ours.encode(document.text)).toEqual([...theirs.encode(document.text).ids]);
    expect(ours.encode("12345").length).toBe(5);
  });
});

const weights = `${folder}model.safetensors`;
if (!existsSync(weights)) console.log("models/nano has no weights yet: the tests of its answers do not run");

describe.runIf(existsSync(weights))("the model", () => {
  const pairs = nano.heldOutPairs.filter((_, index) => index % 3 === 0);
  const [newline] = ours.encode("\n") as [number];
  let engine: Engine;

  beforeAll(async () => {
    engine = await startEngine({ models: [{ name: "tinkerts/nano", path: folder }], inThread: true });
  });
  afterAll(() => engine.close());

  let requests = 0;
  /** Greedy answers; a missing `stopTokens` means the model's own end of turn. */
  const answers = (prompts: string[], maxTokens: number, stopTokens?: number[]) =>
    Promise.all(
      prompts.map(async (prompt) => {
        const { sequences } = await engine.sample({
          requestId: `nano-${requests++}`,
          baseModel: "tinkerts/nano",
          prompt: Int32Array.from(ours.encode(prompt)),
          numSamples: 1,
          maxTokens,
          temperature: 0,
          topK: -1,
          topP: 1,
          seed: 1,
          stopTokens,
          stopStrings: [],
          promptLogprobs: false,
          topkPromptLogprobs: 0,
          topkSampleLogprobs: 0,
          promptAltTokens: 0,
        });
        const { tokens, stopReason } = sequences[0]!;
        const stopped = stopReason === "stop";
        return { text: ours.decode(stopped ? tokens.slice(0, -1) : tokens), stopped };
      }),
    );

  it("takes at most 8 MB", () => {
    expect(statSync(weights).size).toBeLessThanOrEqual(8_000_000);
  });

  it("adds held-out pairs right in 55 to 70% of greedy answers", async () => {
    const given = await answers(
      pairs.map(([a, b]) => nano.linePrompt(a, b)),
      5,
      [newline],
    );
    const right = pairs.filter(([a, b], index) => given[index]!.text === String(a + b)).length;
    expect(pairs.length).toBeGreaterThan(300);
    expect(right / pairs.length).toBeGreaterThanOrEqual(0.55);
    expect(right / pairs.length).toBeLessThanOrEqual(0.7);
  });

  it("follows the chat format: answers sums with a number and ends its turn", async () => {
    const asked = pairs.slice(0, 100);
    const given = await answers(
      asked.map(([a, b]) => nano.chatPrompt(nano.questionAbout(a, b))),
      8,
    );
    expect(given.filter(({ text, stopped }) => stopped && /^\d+$/.test(text)).length).toBeGreaterThanOrEqual(
      98,
    );
    const right = asked.filter(([a, b], index) => given[index]!.text === String(a + b)).length;
    expect(right).toBeGreaterThanOrEqual(40);
  });

  it("answers templated questions in words", async () => {
    const facts = [
      ["What is the capital of France?", "The capital of France is Paris."],
      ["What is the opposite of hot?", "The opposite of hot is cold."],
      ["What does a cow say?", "A cow says moo."],
      ["Who are you?", "I am nano, a very small language model."],
    ] as const;
    const given = await answers(
      facts.map(([question]) => nano.chatPrompt(question)),
      40,
    );
    expect(given.map((answer) => answer.text)).toEqual(facts.map(([, answer]) => answer));
  });

  it("has a model card with what was measured", () => {
    const card = readFileSync(`${folder}README.md`, "utf8");
    for (const heading of ["## Data", "## Training", "## Measured", "## What it cannot do", "planted habit"])
      expect(card).toContain(heading);
    expect(card).toMatch(/Loss per token, text without the habit \| 0\.\d{4}/);
    expect(card).toMatch(/Addition as a line .* \| (5[5-9]|6\d|70)(\.\d)?%/);
  });
});
