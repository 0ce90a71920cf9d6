import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { getRenderer, type Message, type Renderer, rendererNames } from "../../src/renderers/index.js";
import {
  answerText,
  conversation,
  damaged,
  flagged,
  illustrated,
  TRAIN_ON,
  withoutSigns,
} from "./conversations.js";
import { explainSkip, hasPythonModule, Judge } from "./judge.js";
import { CASES, SEED } from "./judged.js";
import { Random, shrink } from "./random.js";
import { ALLOWED_DIFFERENCES, type AllowedDifference, type Difference } from "./renderer-differences.js";
import { disagreement, forPython, type Operation, type Outcome, ours } from "./renderer-operations.js";
import { writeReport } from "./report.js";
import { characterVocabulary, realVocabularies, type Vocabulary } from "./vocabularies.js";

explainSkip("renderers.test.ts");

const CONVERSATIONS = 2 * CASES;
/** Real vocabularies are slower, and the formats have been judged by then. */
const CONVERSATIONS_OF_REAL = Math.ceil(CONVERSATIONS / 10);
const BATCH = 250;
const MAX_SHOWN = 3;
const MAX_SHRINKING = 600;

const ROLES = new Set(["system", "developer", "user", "assistant", "tool"]);

const TAKES_IMAGES = /^(qwen3_(vl|5|8)|kimi_k2|tml_v0)/;

/** The names of ours that the Python package has too. */
const NOT_PYTHON = new Set(["template"]);
const wanted = process.env["TINKERTS_RENDERERS"]?.split(",");
const names = (wanted ?? rendererNames()).filter((name) => !NOT_PYTHON.has(name));

interface Place {
  readonly name: string;
  readonly vocabulary: Vocabulary;
  readonly renderer: Renderer;
}

describe.skipIf(!hasPythonModule("tinker_cookbook", "renderers.test.ts"))(
  "renderers, judged by the Python cookbook",
  () => {
    let judge: Judge;
    let version: string;
    const known = new Set<string>();
    const counts: Record<string, Record<string, number>> = {};
    const refusals: Record<string, number> = {};
    const allowed: Record<string, number> = {};
    const onPurpose: Record<string, number> = {};
    let differences = 0;

    beforeAll(async () => {
      judge = new Judge("cookbook_renderers.py");
      version = await judge.ask<string>("version");
    });
    afterAll(async () => {
      const reasons = ALLOWED_DIFFERENCES.map(({ name, reason }) => ({
        name,
        reason,
        times: allowed[name] ?? 0,
      }));
      writeReport("renderers", { version, seed: SEED, counts, onPurpose, differences, allowed: reasons });
      await judge?.[Symbol.asyncDispose]();
    });

    it("has a renderer of each name of the Python cookbook", async () => {
      const theirs = await judge.ask<string[]>("names");
      expect(theirs.length).toBeGreaterThan(40);
      expect(theirs.filter((name) => !rendererNames().includes(name))).toEqual([]);
    });

    const ask = ({ name, vocabulary }: Place, operations: readonly Operation[]): Promise<Outcome[]> =>
      judge.ask("run", { renderer: name, tokenizer: vocabulary.name, cases: operations.map(forPython) });

    async function open(name: string, vocabulary: Vocabulary): Promise<Place> {
      if (!known.has(vocabulary.name)) {
        await judge.ask("tokenizer", { name: vocabulary.name, ...vocabulary.forPython });
        known.add(vocabulary.name);
      }
      return { name, vocabulary, renderer: getRenderer(`${name}_cookbook`, vocabulary.tokenizer) };
    }

    /** Compares a batch; gives what Python made of it. */
    async function compare(
      place: Place,
      operations: readonly Operation[],
      found: Difference[],
    ): Promise<Outcome[]> {
      const asked = ask(place, operations);
      // While Python is at work.
      const own = operations.map((operation) => ours(place.renderer, operation));
      const theirs = await asked;
      for (const [index, operation] of operations.entries()) {
        counts[place.name] ??= {};
        counts[place.name]![operation.operation] = (counts[place.name]![operation.operation] ?? 0) + 1;
        if (theirs[index]!.error !== undefined) refusals[place.name] = (refusals[place.name] ?? 0) + 1;
        const kind = disagreement(own[index]!, theirs[index]!);
        if (kind === undefined) continue;
        const difference = {
          renderer: place.name,
          tokenizer: place.vocabulary.tokenizer,
          operation,
          kind,
          ours: own[index]!,
          theirs: theirs[index]!,
        };
        const reasons = reasonsFor(difference);
        for (const { name } of reasons) allowed[name] = (allowed[name] ?? 0) + 1;
        if (reasons.length === 0) found.push(difference);
        else onPurpose[place.name] = (onPurpose[place.name] ?? 0) + 1;
      }
      return theirs;
    }

    async function judgePlace(place: Place, conversations: number): Promise<Difference[]> {
      const found: Difference[] = [];
      const random = new Random(SEED);
      const [properties] = await compare(place, [{ operation: "properties" }], found);
      const { stopSequences } = properties!.ok as { stopSequences: (number | string)[] };
      const encode = (text: string) => place.vocabulary.tokenizer.encode(text, { addSpecialTokens: false });
      const stops = stopSequences.flatMap((stop) => (typeof stop === "number" ? [[stop]] : [encode(stop)]));
      for (let done = 0; done < conversations && found.length < MAX_SHOWN * 10; done += BATCH) {
        const operations = random
          .times(Math.min(BATCH, conversations - done), (each) => renderings(each, place.name))
          .flat();
        const theirs = await compare(place, operations, found);
        const answers = operations.flatMap((operation, index) => {
          const rendered =
            operation.operation === "example" && operation.trainOn === "last_assistant_message"
              ? trainedPart(theirs[index]!)
              : [];
          return rendered.length > 0 ? [rendered] : [];
        });
        for (let free = random.integer(20, 40); free > 0; free--)
          answers.push([...encode(answerText(random)), ...random.pick([[], ...stops])]);
        const others = [...stops.flat(), ...encode(random.times(6, answerText).join(""))];
        const readings = answers.flatMap((answer) => readingsOf(random, answer, others));
        await compare(place, readings, found);
      }
      return found;
    }

    /** A smaller case that still fails in the same way. */
    async function smallest(place: Place, difference: Difference): Promise<Difference> {
      let attempts = 0;
      let last = difference;
      const fails = async (candidate: unknown): Promise<boolean> => {
        if (++attempts > MAX_SHRINKING) return false;
        const operation = candidate as Operation;
        const isAnother = (key: string) =>
          Reflect.get(operation, key) !== Reflect.get(difference.operation, key);
        if (["operation", "trainOn"].some(isAnother)) return false;
        if ("messages" in operation && !operation.messages.every(isWellFormed)) return false;
        const own = ours(place.renderer, operation);
        const [theirs] = await ask(place, [operation]).catch(() => [
          { ok: own.ok, error: own.error } as Outcome,
        ]);
        const kind = disagreement(own, theirs!);
        if (kind !== difference.kind) return false;
        const smaller = { ...difference, operation, ours: own, theirs: theirs! };
        if (reasonsFor(smaller).length > 0) return false;
        last = smaller;
        return true;
      };
      if (difference.kind !== "we crash") await shrink(difference.operation, fails);
      return last;
    }

    it.each(names)(
      "%s",
      async (name) => {
        const vocabularies = [characterVocabulary(name), ...(await realVocabularies(name))];
        for (const [index, vocabulary] of vocabularies.entries()) {
          const place = await open(name, vocabulary);
          const found = await judgePlace(place, index === 0 ? CONVERSATIONS : CONVERSATIONS_OF_REAL);
          differences += found.length;
          if (found.length === 0) continue;
          const shown: string[] = [];
          for (const each of firstOfEachKind(found)) shown.push(readable(place, await smallest(place, each)));
          throw new Error(
            `${name} with ${vocabulary.name}: ${found.length} differences (seed ${SEED})\n\n${shown.join("\n\n")}\n`,
          );
        }
        // Two that refuse everything agree as well.
        const asked = Object.values(counts[name]!).reduce((sum, count) => sum + count, 0);
        expect(refusals[name] ?? 0).toBeLessThan(asked * 0.8);
      },
      900_000,
    );

    it.skipIf(CASES < 1000)("has no difference in its list that does not occur", () => {
      const due = ALLOWED_DIFFERENCES.filter(({ renderers }) => names.some((name) => renderers.test(name)));
      expect(due.map(({ name }) => name).filter((name) => allowed[name] === undefined)).toEqual([]);
    });
  },
);

function reasonsFor(difference: Difference): readonly AllowedDifference[] {
  return ALLOWED_DIFFERENCES.filter(
    ({ renderers, explains }) => renderers.test(difference.renderer) && explains(difference),
  );
}

/** What one conversation is rendered as. */
function renderings(random: Random, name: string): Operation[] {
  const plain = withoutSigns(conversation(random));
  const whole = TAKES_IMAGES.test(name) && random.chance(0.2) ? illustrated(random, plain) : plain;
  const trainOn = random.pick(TRAIN_ON);
  const asExamples = random.pick(TRAIN_ON.slice(0, 3));
  return [
    {
      operation: "prompt",
      ...whole,
      ...(random.chance(0.05) && { role: random.pick(["user", "system", "tool"]) }),
      ...(random.chance(0.3) && { prefill: answerText(random) }),
    },
    { operation: "example", trainOn, ...flagged(random, whole, trainOn) },
    { operation: "example", trainOn: "last_assistant_message", ...whole },
    {
      operation: "examples",
      trainOn: random.chance(0.9) ? asExamples : trainOn,
      ...flagged(random, whole, asExamples),
    },
    ...(whole.tools !== undefined
      ? [{ operation: "tools" as const, tools: whole.tools, system: whole.system ?? "" }]
      : []),
  ];
}

/** Still a message, and not only what is left of one. */
function isWellFormed({ role, content, toolCalls }: Message): boolean {
  const known: readonly string[] = ["text", "thinking", "image"];
  return (
    ROLES.has(role) &&
    (typeof content === "string" ||
      (Array.isArray(content) && content.every((part) => known.includes(part.type) && part.type in part))) &&
    (toolCalls === undefined ||
      (toolCalls.length > 0 && toolCalls.every((call) => call.name && typeof call.arguments === "string")))
  );
}

function readingsOf(random: Random, answer: readonly number[], others: readonly number[]): Operation[] {
  const tokens = damaged(random, answer, others);
  return [
    { operation: "parse", tokens },
    {
      operation: random.pick(["parse", "stream", "stream"] as const),
      tokens: damaged(random, tokens, others),
    },
  ];
}

function trainedPart({ ok }: Outcome): number[] {
  const { tokens, weights } = (ok ?? { tokens: [], weights: [] }) as { tokens: number[]; weights: number[] };
  return tokens.filter((token, index) => weights[index]! > 0 && typeof token === "number");
}

function firstOfEachKind(found: readonly Difference[]): Difference[] {
  const kinds = new Map<string, Difference>();
  for (const each of found) {
    const key = `${each.operation.operation} ${each.kind}`;
    if (!kinds.has(key)) kinds.set(key, each);
  }
  return [...kinds.values()].slice(0, MAX_SHOWN);
}

function readable({ vocabulary }: Place, { operation, kind, ours: own, theirs }: Difference): string {
  const asked =
    "tokens" in operation
      ? `${JSON.stringify(vocabulary.tokenizer.decode(operation.tokens))}\n  tokens ${JSON.stringify(operation.tokens)}`
      : JSON.stringify({ ...operation, operation: undefined }, (_, value: unknown) =>
          typeof value === "string" ? value.replace(/^data:image.*/, "data:image...") : value,
        );
  const show = (outcome: Outcome, other: Outcome) =>
    outcome.error ?? around(outcome.ok, other.ok, vocabulary);
  return `${operation.operation}: ${kind}\n  ${asked}\n  ours   ${show(own, theirs)}\n  Python ${show(theirs, own)}`;
}

/** The text around the first difference, with the trained text in brackets; other results unchanged. */
function around(result: unknown, other: unknown, vocabulary: Vocabulary): string {
  if (Array.isArray(result) && typeof result[0]?.tokens === "object") {
    const others = Array.isArray(other) ? other : [];
    const first = result.findIndex((each, index) => JSON.stringify(each) !== JSON.stringify(others[index]));
    return `${result.length} examples, number ${first + 1}: ${around(result[first], others[first], vocabulary)}`;
  }
  const sequence = asSequence(result);
  const otherSequence = asSequence(other);
  if (sequence === undefined) return JSON.stringify(result) ?? "nothing";
  const first = sequence.findIndex(
    ([token, weight], index) =>
      token !== otherSequence?.[index]?.[0] || weight !== otherSequence?.[index]?.[1],
  );
  const place = first === -1 ? sequence.length : first;
  const text = (from: number, to: number) => marked(sequence.slice(Math.max(0, from), to), vocabulary);
  return `…${JSON.stringify(text(place - 40, place))} then at token ${place} ${JSON.stringify(text(place, place + 40))}…`;
}

type Position = readonly [token: number | "image", weight: number];

function asSequence(result: unknown): readonly Position[] | undefined {
  const { tokens, weights } = (Array.isArray(result) ? { tokens: result, weights: [] } : (result ?? {})) as {
    tokens?: (number | "image")[];
    weights?: number[];
  };
  if (!tokens?.every((token) => typeof token === "number" || token === "image")) return undefined;
  return tokens.map((token, index) => [token, weights?.[index] ?? 0]);
}

function marked(sequence: readonly Position[], { tokenizer }: Vocabulary): string {
  let text = "";
  let run: number[] = [];
  for (const [index, [token, weight]] of sequence.entries()) {
    const [next, nextWeight] = sequence[index + 1] ?? [];
    if (token === "image") {
      if (next !== "image") text += "[image]";
      continue;
    }
    run.push(token);
    if (nextWeight === weight && next !== "image") continue;
    const decoded = tokenizer.decode(run);
    text += weight > 0 ? `⟦${decoded}⟧` : decoded;
    run = [];
  }
  return text;
}
