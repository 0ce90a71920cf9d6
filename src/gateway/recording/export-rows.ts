import { type Message, type ToolDeclaration, textOf, thinkingOf } from "../../renderers/messages.js";
import type { DatumInit } from "../../wire/index.js";
import { mainThread, type SessionRecord, type SessionThread } from "../session-record.js";
import type { RecordedSummary } from "./read-sessions.js";

/** Which threads of a session are exported: the main one, or also side requests and abandoned ones. */
export type ExportedThreads = "main" | "all";

/** Reasons for a cut-off answer in OpenAI's APIs and in Anthropic's. */
const CUT_OFF = new Set(["length", "max_tokens", "incomplete", "max_output_tokens"]);

/** Filter of recorded sessions. */
export interface SessionFilter {
  readonly ids?: readonly string[] | undefined;
  /** If one of these is given, sessions without a reward are left out. */
  readonly minReward?: number | undefined;
  readonly maxReward?: number | undefined;
  /** Tags that a session must all have. */
  readonly tags?: readonly string[] | undefined;
  /** Bounds for the start of a session. */
  readonly since?: Date | undefined;
  readonly until?: Date | undefined;
}

/** Whether a session passes the filter. */
export function isWanted(
  { id, reward, tags, startedAt }: Pick<RecordedSummary, "id" | "reward" | "tags" | "startedAt">,
  { ids, minReward, maxReward, tags: asked = [], since, until }: SessionFilter,
): boolean {
  const isGraded = minReward === undefined && maxReward === undefined ? true : reward !== undefined;
  return (
    isGraded &&
    (ids === undefined || ids.includes(id)) &&
    (reward === undefined || reward >= (minReward ?? -Infinity)) &&
    (reward === undefined || reward <= (maxReward ?? Infinity)) &&
    asked.every((tag) => tags.includes(tag)) &&
    startedAt >= (since?.getTime() ?? -Infinity) &&
    startedAt <= (until?.getTime() ?? Infinity)
  );
}

/** A conversation as a row of a file, in OpenAI's fields, with what is known of its session. */
export interface ConversationRow {
  readonly messages: readonly object[];
  readonly tools?: readonly object[] | undefined;
  readonly session: string;
  readonly reward?: number | undefined;
  readonly tags: readonly string[];
}

/**
 * The conversations of a session as rows of training data. Each answer is trained on in one row; elsewhere, and if it was
 * cut off or is not an answer of this session, it has `weight: 0`. Conversations without an answer to train on are left
 * out.
 */
export function conversationRows(record: SessionRecord, which: ExportedThreads = "main"): ConversationRow[] {
  const untrained = answersOf(record);
  return chosenThreads(record, which).flatMap(({ messages, tools }) => {
    let isTrained = false;
    const rows = messages.map((message) => {
      if (message.role !== "assistant") return messageRow(message);
      const isLearnt = untrained.delete(message);
      isTrained ||= isLearnt;
      return { ...messageRow(message), ...(!isLearnt && { weight: 0 }) };
    });
    if (!isTrained) return [];
    const { id, reward, tags } = record;
    return [
      {
        messages: rows,
        ...(tools.length > 0 && { tools: tools.map(toolRow) }),
        session: id,
        ...(reward !== undefined && { reward }),
        tags,
      },
    ];
  });
}

/** Sampled tokens as a row: `datum` is what `new Datum` and `forwardBackward` take. */
export interface DatumRow {
  readonly datum: DatumInit;
  readonly session: string;
  readonly thread: number;
  readonly reward?: number | undefined;
  readonly tags: readonly string[];
}

/**
 * The threads of a session as datums of exactly the sampled tokens, with their logprobs. `weights` are 1 at the tokens of
 * the thread's own answers. Answers that the agent requested again are left out, and so are prompts with more than text.
 */
export function datumRows(record: SessionRecord, which: ExportedThreads = "all"): DatumRow[] {
  const { id, reward, tags, threads } = record;
  return chosenThreads(record, which).flatMap((thread) => {
    const datum = datumOf(thread);
    if (datum === undefined) return [];
    const place = threads.indexOf(thread);
    return [{ datum, session: id, thread: place, ...(reward !== undefined && { reward }), tags }];
  });
}

function datumOf({ turns }: SessionThread): DatumInit | undefined {
  const last = turns.at(-1);
  if (last === undefined || last.prompt.length === 0 || !last.prompt.isText) return undefined;
  const tokens = [...last.prompt.toInts(), ...last.tokens];
  const weights = tokens.map(() => 0);
  const logprobs = tokens.map(() => 0);
  for (const { prompt, tokens: sampled, logprobs: own, isRepeated } of turns) {
    if (isRepeated) continue;
    for (let place = 0; place < sampled.length; place += 1) {
      weights[prompt.length + place] = 1;
      logprobs[prompt.length + place] = own[place]!;
    }
  }
  if (!weights.includes(1)) return undefined;
  return {
    modelInput: tokens.slice(0, -1),
    lossFnInputs: {
      targetTokens: tokens.slice(1),
      weights: weights.slice(1),
      logprobs: logprobs.slice(1).map((value) => Number(value.toPrecision(9))),
    },
  };
}

function chosenThreads(record: SessionRecord, which: ExportedThreads): readonly SessionThread[] {
  const main = mainThread(record) ?? longest(record.threads);
  if (main === undefined) return [];
  return which === "main" ? [main] : [main, ...record.threads.filter((thread) => thread !== main)];
}

/** If no tokens are known, the main thread is the one with the most messages. */
function longest(threads: readonly SessionThread[]): SessionThread | undefined {
  return threads.toSorted((one, other) => other.messages.length - one.messages.length)[0];
}

/** The complete answers of a session that its agent did not request again. */
function answersOf({ threads }: SessionRecord): Set<Message> {
  const answers = new Set<Message>();
  for (const { turns, passed = [], messages } of threads) {
    const given = [...turns.filter(({ isRepeated }) => !isRepeated), ...passed];
    for (const { messageCount, stopReason } of given) {
      const message = messages[messageCount];
      if (message?.role === "assistant" && !CUT_OFF.has(stopReason)) answers.add(message);
    }
  }
  return answers;
}

function messageRow(message: Message): object {
  const { role, content, toolCalls, unparsedToolCalls, toolCallId, name } = message;
  const hasImages = typeof content !== "string" && content.some(({ type }) => type === "image");
  const thinking = thinkingOf(message);
  return {
    role,
    content: hasImages ? content : textOf(message),
    ...(thinking !== "" && !hasImages && { reasoning_content: thinking }),
    ...(toolCalls && {
      tool_calls: toolCalls.map(({ id, name: called, arguments: given }) => ({
        type: "function",
        ...(id !== undefined && { id }),
        function: { name: called, arguments: given },
      })),
    }),
    ...(unparsedToolCalls && {
      unparsed_tool_calls: unparsedToolCalls.map(({ rawText, error }) => ({ raw_text: rawText, error })),
    }),
    ...(toolCallId !== undefined && { tool_call_id: toolCallId }),
    ...(name !== undefined && { name }),
  };
}

function toolRow({ name, description, parameters }: ToolDeclaration): object {
  return { type: "function", function: { name, description, parameters } };
}
