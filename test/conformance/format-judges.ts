/** How each judge of formats is asked, and what of ours is compared with its answers. */
import type { Renderer } from "../../src/renderers/index.js";
import type { Conversation } from "./conversations.js";
import type { JudgedFormat } from "./format-differences.js";
import {
  attempt,
  type FormatOutcome,
  type FormatPiece,
  forNative,
  forTemplate,
  gist,
  isSame,
  ourMessages,
  piecesOf,
} from "./format-operations.js";

/** A renderer before its judges. */
export interface Trial {
  readonly name: string;
  readonly renderer: Renderer;
  readonly ask: (cases: readonly object[]) => Promise<FormatOutcome[]>;
  /** Counts a comparison, and keeps it if nothing explains a difference. */
  readonly compare: (given: Omit<JudgedFormat, "renderer">) => void;
}

/** Whether ours is what the model's template writes, by conversation. */
export type ByTemplate = ReadonlyMap<Conversation, boolean>;

interface Answered {
  readonly conversation: Conversation;
  /** The same without its last answer. */
  readonly before: Conversation;
}

/** Conversations up to their last answer. */
export function untilLastAnswer(conversations: readonly Conversation[]): readonly Answered[] {
  return conversations.flatMap((conversation) => {
    const { messages } = conversation;
    const last = messages.findLastIndex(({ role }) => role === "assistant");
    const until = (end: number) => ({ ...conversation, messages: messages.slice(0, end) });
    return last < 1 ? [] : [{ conversation: until(last + 1), before: until(last) }];
  });
}

/** The texts of prompts and of examples, beside those of the model's own template. */
export async function judgeByTemplate(
  trial: Trial,
  conversations: readonly Conversation[],
  answered: readonly Answered[],
): Promise<ByTemplate> {
  const { renderer } = trial;
  const examples = answered.map(({ conversation }) => conversation);
  return new Map([
    ...(await judgeTexts(trial, conversations, true, (each) =>
      renderer.tokenizer.decode(promptOf(renderer, each)),
    )),
    ...(await judgeTexts(trial, examples, false, (each) =>
      lastExample(renderer, each)
        .map(([text]) => text)
        .join(""),
    )),
  ]);
}

async function judgeTexts(
  { name, ask, compare }: Trial,
  conversations: readonly Conversation[],
  isPrompt: boolean,
  write: (conversation: Conversation) => string,
): Promise<[Conversation, boolean][]> {
  const asked = conversations.filter((each) => hasTemplateFor(name, each));
  const theirs = await ask(
    asked.map((each) => ({ operation: "template", name, is_prompt: isPrompt, ...forTemplate(each) })),
  );
  return asked.map((conversation, index) => {
    const ours = attempt(() => write(conversation));
    const { ok, error } = theirs[index]!;
    // The newline behind the last turn belongs to the next one.
    const written =
      error === undefined ? { ok: (ok as string).replace(/(<\|im_end\|>)\n$/, "$1") } : { error };
    const judge = isPrompt ? "template prompt" : "template example";
    compare({ judge, conversation, ours, theirs: written });
    return [conversation, isSame(ours, written)];
  });
}

/** Prompts, examples and read answers, beside those of tml-renderers. */
export async function judgeByTmlRenderers(
  trial: Trial,
  conversations: readonly Conversation[],
  answered: readonly Answered[],
  byTemplate: ByTemplate,
): Promise<void> {
  const { name, renderer, ask, compare } = trial;
  const prompts = await ask(conversations.map((each) => ({ operation: "prompt", name, ...forNative(each) })));
  for (const [index, conversation] of conversations.entries()) {
    const ours = attempt(() => piecesOf(renderer, promptOf(renderer, conversation)));
    const isTemplate = byTemplate.get(conversation) === true;
    compare({ judge: "tml-renderers prompt", conversation, isTemplate, ours, theirs: prompts[index]! });
  }
  const examples = await ask(
    answered.map(({ conversation }) => ({ operation: "examples", name, ...forNative(conversation) })),
  );
  for (const [index, { conversation }] of answered.entries()) {
    const ours = attempt(() => lastExample(renderer, conversation));
    const isTemplate = byTemplate.get(conversation) === true;
    const theirs = lastOf(examples[index]!);
    compare({ judge: "tml-renderers example", conversation, isTemplate, ours, theirs });
  }
  await judgeAnswers(trial, answered, "tml-renderers answer", ({ before }, answer) => ({
    operation: "parse",
    name,
    answer,
    ...forNative(before),
  }));
}

/** Prompts, examples and read answers, beside those of the package `renderers`, which takes typed signs for the format's. */
export async function judgeByRenderers(
  trial: Trial,
  conversations: readonly Conversation[],
  answered: readonly Answered[],
  byTemplate: ByTemplate,
): Promise<void> {
  const { name, renderer, ask, compare } = trial;
  const examples = answered.map(({ conversation }) => conversation);
  const parts = [
    ["prompt", conversations, (each: Conversation) => piecesOf(renderer, promptOf(renderer, each))],
    ["example", examples, (each: Conversation) => lastExample(renderer, each)],
  ] as const;
  for (const [part, asked, write] of parts) {
    const theirs = await ask(
      asked.map((each) => ({ operation: `renderers ${part}`, name, ...forTemplate(each) })),
    );
    for (const [index, conversation] of asked.entries()) {
      const isTemplate = byTemplate.get(conversation) === true;
      const ours = attempt(() => write(conversation));
      compare({ judge: `renderers ${part}`, conversation, isTemplate, ours, theirs: theirs[index]! });
    }
  }
  await judgeAnswers(trial, answered, "renderers answer", ({ before }, answer) => ({
    operation: "renderers answer",
    name,
    answer,
    ...forTemplate(before),
  }));
}

/** The trained part of our examples, read by both. */
async function judgeAnswers(
  { renderer, ask, compare }: Trial,
  answered: readonly Answered[],
  judge: JudgedFormat["judge"],
  question: (given: Answered, answer: readonly object[]) => object,
): Promise<void> {
  const read = answered.flatMap((given) => {
    const pieces = (attempt(() => lastExample(renderer, given.conversation)).ok ??
      []) as readonly FormatPiece[];
    const answer = pieces.filter(([, , weight]) => weight === 1);
    // Signs that are spelled in plain text are signs to a reader of text.
    const isClear = answer.length > 0 && !answer.some(([text, isSign]) => !isSign && SPELLED.test(text));
    return isClear ? [{ ...given, answer }] : [];
  });
  const readings = await ask(
    read.map(({ answer, ...given }) =>
      question(
        given,
        answer.map(([text, isSign]) => [text, isSign]),
      ),
    ),
  );
  for (const [index, { conversation, answer }] of read.entries()) {
    const tokens = answer.flatMap(([text, isSign]) =>
      renderer.tokenizer.encode(text, { addSpecialTokens: false, plainText: !isSign }),
    );
    const ours = attempt(() => gist([renderer.parseResponse(tokens, conversation.tools).message]));
    const { ok, error } = readings[index]!;
    const theirs = error === undefined ? { ok: gist(ok as object[]) } : { error };
    compare({ judge, conversation, ours, theirs });
  }
}

const SPELLED = /<[^>\s]*>|[|｜]>|DSML|gMASK/;

function promptOf(renderer: Renderer, conversation: Conversation): number[] {
  return [...renderer.buildPrompt(ourMessages(renderer, conversation)).toInts()].map(Number);
}

function lastExample(renderer: Renderer, conversation: Conversation): readonly FormatPiece[] {
  const messages = ourMessages(renderer, conversation);
  const { input, weights } = renderer.buildSupervisedExample(messages, "last_assistant_message");
  return piecesOf(renderer, [...input.toInts()].map(Number), weights);
}

/** Of their examples that of the last answer; where several answers are trained in one, the last alone. */
function lastOf({ ok, error }: FormatOutcome): FormatOutcome {
  const last = (ok as FormatPiece[][] | undefined)?.at(-1);
  if (last === undefined) return { error: error ?? "no examples" };
  const end = last.findLastIndex(([, , weight]) => weight === 0);
  const merged: FormatPiece[] = [];
  for (const [index, [text, isSign, given]] of last.entries()) {
    const weight = index > end ? given : 0;
    const before = merged.at(-1);
    if (before !== undefined && !isSign && !before[1] && before[2] === weight)
      merged[merged.length - 1] = [before[0] + text, false, weight];
    else merged.push([text, isSign, weight]);
  }
  return { ok: merged };
}

/** Templates leave out what they do not know: Llama's here knows no tools, and DeepSeek's declares none. */
function hasTemplateFor(name: string, { messages, tools }: Conversation): boolean {
  if (name.startsWith("deepseek")) return tools === undefined;
  if (name !== "llama3") return true;
  return (
    tools === undefined &&
    messages.every(
      ({ role, content, toolCalls }) =>
        role !== "tool" && toolCalls === undefined && typeof content === "string",
    )
  );
}
