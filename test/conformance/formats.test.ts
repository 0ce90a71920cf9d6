import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { getRenderer, rendererNames, textOf, thinkingOf } from "../../src/renderers/index.js";
import { type Conversation, plausibleConversation, withoutSigns } from "./conversations.js";
import { FORMAT_DIFFERENCES, type FormatDifference, type JudgedFormat } from "./format-differences.js";
import { FormatDigests, isRecording } from "./format-digests.js";
import {
  type ByTemplate,
  judgeByRenderers,
  judgeByTemplate,
  judgeByTmlRenderers,
  type Trial,
  untilLastAnswer,
} from "./format-judges.js";
import { type FormatOutcome, type FormatPiece, isSame } from "./format-operations.js";
import { explainSkip, hasPythonModule, Judge } from "./judge.js";
import { Random } from "./random.js";
import { writeReport } from "./report.js";
import { characterVocabulary, type Vocabulary } from "./vocabularies.js";

explainSkip("formats.test.ts");

const SEED = Number(process.env["TINKERTS_SEED"] ?? 1);
const CONVERSATIONS = 2 * Number(process.env["TINKERTS_CASES"] ?? 1000);
const BATCH = 100;
const MAX_SHOWN = 3;
const wanted = process.env["TINKERTS_RENDERERS"]?.split(",");
const names = wanted ?? rendererNames();
const hasJudges = ["tml_renderers", "trl", "renderers"].every((name) =>
  hasPythonModule(name, "formats.test.ts"),
);

/** How many of what a judge was asked for are the same, and why the others are not. */
interface Tally {
  asked: number;
  same: number;
  readonly causes: Record<string, number>;
}

describe.skipIf(!hasJudges)(
  "formats, judged by the models' chat templates, tml-renderers and renderers",
  () => {
    let judge: Judge;
    let versions: object;
    let judged: Record<"native" | "templates" | "renderers", readonly string[]>;
    const tallies: Record<string, Record<string, Tally>> = {};
    const digests = new FormatDigests();

    beforeAll(async () => {
      judge = new Judge("formats.py");
      versions = await judge.ask("versions");
      judged = await judge.ask("names");
    });
    afterAll(async () => {
      const causes = FORMAT_DIFFERENCES.map(({ name, side, reason }) => ({ name, side, reason }));
      const given = { seed: SEED, conversations: CONVERSATIONS };
      writeReport("formats", { versions, ...given, tallies, causes, digests: digests.found });
      await judge?.[Symbol.asyncDispose]();
    });

    /** Counts a comparison, and gives back one that nothing explains. */
    function compare(given: JudgedFormat): JudgedFormat | undefined {
      tallies[given.renderer] ??= {};
      tallies[given.renderer]![given.judge] ??= { asked: 0, same: 0, causes: {} };
      const tally = tallies[given.renderer]![given.judge]!;
      tally.asked++;
      if (isSame(given.ours, given.theirs)) {
        tally.same++;
        return undefined;
      }
      const cause = causeOf(given);
      if (cause === undefined) return given;
      tally.causes[cause.name] = (tally.causes[cause.name] ?? 0) + 1;
      return undefined;
    }

    /** A batch of conversations, before each judge that has the format. */
    async function judgeBatch(name: string, { tokenizer }: Vocabulary, random: Random, count: number) {
      const found: JudgedFormat[] = [];
      const isFirst = digests.begin(name);
      const trial: Trial = {
        name,
        renderer: getRenderer(name, tokenizer, { now: () => new Date(2026, 0, 5) }),
        ask: (cases) => judge.ask<FormatOutcome[]>("run", { cases }),
        compare: (given) => {
          if (isFirst) digests.add(given.judge, given.conversation, given.theirs);
          const unexplained = compare({ ...given, renderer: name });
          if (unexplained !== undefined) found.push(unexplained);
        },
      };
      const template = async (...given: Parameters<typeof judgeByTemplate>): Promise<ByTemplate> =>
        judged.templates.includes(name) ? judgeByTemplate(...given) : new Map();
      const whole = random.times(count, plausibleConversation);
      const conversations = whole.map(halfOfThemAsking);
      const answered = untilLastAnswer(whole);
      const byTemplate = await template(trial, conversations, answered);
      if (judged.native.includes(name)) await judgeByTmlRenderers(trial, conversations, answered, byTemplate);
      if (judged.renderers.includes(name)) {
        const plain = conversations.map(plainOf);
        const plainAnswered = untilLastAnswer(whole.map(plainOf));
        const uncounted = { ...trial, compare: () => {} };
        await judgeByRenderers(trial, plain, plainAnswered, await template(uncounted, plain, plainAnswered));
      }
      return found;
    }

    it.each(names)(
      "%s",
      async (name) => {
        if (!Object.values(judged).some((known) => known.includes(name))) return;
        const vocabulary = characterVocabulary(name);
        if (judged.renderers.includes(name)) await judge.ask("characters", { name, ...vocabulary.forPython });
        const random = new Random(SEED);
        const unexplained: JudgedFormat[] = [];
        for (let done = 0; done < CONVERSATIONS && unexplained.length < 10; done += BATCH) {
          const count = Math.min(BATCH, CONVERSATIONS - done);
          unexplained.push(...(await judgeBatch(name, vocabulary, random, count)));
        }
        const shown = unexplained.slice(0, MAX_SHOWN).map(readable);
        expect(unexplained.length, `${name} (seed ${SEED})\n\n${shown.join("\n\n")}\n`).toBe(0);
      },
      900_000,
    );

    it.skipIf(SEED !== 1 || CONVERSATIONS < BATCH || isRecording)(
      "has judges that write what they wrote when they were last looked at",
      () => {
        const changed = digests.changed();
        expect(
          changed,
          `Look at what changed (${JSON.stringify(versions)}), then record it: npm run conformance -- --report`,
        ).toEqual([]);
      },
    );

    it.skipIf(CONVERSATIONS < 2000 || wanted !== undefined)(
      "has no cause in its list that does not occur",
      () => {
        const found = new Set(
          Object.values(tallies).flatMap((each) =>
            Object.values(each).flatMap(({ causes }) => Object.keys(causes)),
          ),
        );
        expect(FORMAT_DIFFERENCES.map(({ name }) => name).filter((name) => !found.has(name))).toEqual([]);
      },
    );
  },
);

/** Without typed signs, and without the thoughts that were nothing else. */
function plainOf(conversation: Conversation): Conversation {
  const { messages, ...rest } = withoutSigns(conversation);
  return {
    ...rest,
    messages: messages.map((message) =>
      thinkingOf(message) === "" ? { ...message, content: textOf(message) } : message,
    ),
  };
}

/** Every second one without its last answers, so that it asks for one. */
function halfOfThemAsking(conversation: Conversation, index: number): Conversation {
  const end = conversation.messages.findLastIndex(({ role }) => role !== "assistant") + 1;
  return index % 2 === 0 ? conversation : { ...conversation, messages: conversation.messages.slice(0, end) };
}

function causeOf(given: JudgedFormat): FormatDifference | undefined {
  return FORMAT_DIFFERENCES.find(
    ({ judges, renderers, explains }) =>
      judges.test(given.judge) && renderers.test(given.renderer) && explains(given),
  );
}

function readable({ renderer, judge, conversation, ours, theirs }: JudgedFormat): string {
  const [own, other] = [ours, theirs].map(shown) as [string, string];
  let first = 0;
  while (first < own.length && own[first] === other[first]) first++;
  const around = (text: string) => text.slice(Math.max(0, first - 80), first + 80);
  return `${renderer}, ${judge}: ${JSON.stringify(conversation)}\n  ours   …${around(own)}…\n  theirs …${around(other)}…`;
}

function shown({ ok, error }: FormatOutcome): string {
  if (error !== undefined) return `(refused: ${error})`;
  if (!Array.isArray(ok)) return JSON.stringify(ok);
  const pieces = ok as readonly FormatPiece[];
  return JSON.stringify(
    pieces.map(([text, isSign, weight]) => (isSign ? text : `«${text}»`) + (weight ? "¹" : "")).join(""),
  );
}
