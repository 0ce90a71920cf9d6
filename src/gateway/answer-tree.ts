import type { SentConversation } from "../chat-api/index.js";
import type { Message } from "../renderers/messages.js";
import {
  arranged,
  commonMessages,
  type GivenAnswer,
  isAnswer,
  isSameMessage,
  type MessageIds,
} from "./same-message.js";
import type { Fork } from "./session-record.js";

/** An answer in a tree of conversations. */
export interface TreeAnswer<N> {
  readonly parts: {
    /** The answer before it in the conversation. */
    readonly parent: N | undefined;
    /** The messages between the parent's answer and this one, as the agent sent them. */
    readonly given: readonly Message[];
    /** The conversation before the answer. */
    readonly messages: readonly Message[];
    readonly known: GivenAnswer;
    /** The number of the request that it answers. */
    readonly request: number;
  };
  readonly children: readonly N[];
}

/** Position of an answer. Answers are numbered in the order in which they were added. */
export interface AnswerPlace {
  readonly number: number;
  /** The number of its thread. */
  readonly thread: number;
  /** Why its thread begins; only with the first answer of a thread. */
  readonly fork?: Fork | undefined;
  /** The number of the answer before it. */
  readonly parent?: number | undefined;
  /** The number of the first answer to the same messages. */
  readonly sameAs?: number | undefined;
}

/** Answers that continue each other. */
export interface AnswerThread<N> {
  readonly nodes: N[];
  readonly fork: Fork | undefined;
}

/** The answer that a request continues from, and where what is new begins. */
export interface FoundAnswer<N> {
  readonly node: N | undefined;
  readonly end: number;
  /** Number of earlier answers in the request. */
  readonly depth: number;
}

/** The answers of a session as a tree of conversations, and the threads they form. */
export class AnswerTree<N extends TreeAnswer<N>> {
  readonly #roots: N[] = [];
  readonly #threads: AnswerThread<N>[] = [];
  readonly #threadOf = new Map<N, AnswerThread<N>>();
  readonly #numbers = new Map<N, number>();

  get threads(): readonly AnswerThread<N>[] {
    return this.#threads;
  }

  /** Number of earlier answers that a conversation contains. */
  depthOf({ messages, ids }: Pick<SentConversation, "messages" | "ids">): number {
    return this.deepest(arranged(messages), ids).depth;
  }

  /** The last earlier answer that a conversation contains, with its position. */
  deepest(messages: readonly Message[], ids: MessageIds | undefined): FoundAnswer<N> {
    let node: N | undefined;
    let end = 0;
    for (let depth = 0; ; depth += 1) {
      const start: number = end;
      const matching = (node?.children ?? this.#roots).filter((each) =>
        isBroughtBack(each, messages, start, ids),
      );
      // If two answers have the same text, take the one that the agent continued before.
      const next: N | undefined = matching.find(({ children }) => children.length > 0) ?? matching.at(-1);
      if (next === undefined) return { node, end, depth };
      node = next;
      end += next.parts.given.length + 1;
    }
  }

  /** All answers with the same parent, including this one. */
  siblingsOf({ parts: { parent } }: N): readonly N[] {
    return parent?.children ?? this.#roots;
  }

  /** Adds an answer, which is among its parent's children. `breaks` says why it does not continue its parent, if so. */
  add(node: N, breaks?: Fork): AnswerPlace {
    const { parent } = node.parts;
    if (parent === undefined) this.#roots.push(node);
    const siblings = this.siblingsOf(node).filter((each) => each !== node);
    const before = parent && this.#threadOf.get(parent);
    const isNext = breaks === undefined && before !== undefined && before.nodes.at(-1) === parent;
    const fork =
      isNext || this.#threads.length === 0 ? undefined : (breaks ?? this.#fork(node, siblings, before));
    const thread = isNext ? before : { nodes: [], fork };
    if (!isNext) this.#threads.push(thread);
    thread.nodes.push(node);
    this.#threadOf.set(node, thread);
    const number = this.#numbers.size;
    this.#numbers.set(node, number);
    const same = siblings.find((each) => isSameGiven(each, node));
    return {
      number,
      thread: this.#threads.lastIndexOf(thread),
      ...(fork && { fork }),
      ...(parent && { parent: this.#numbers.get(parent) }),
      ...(same && { sameAs: this.#numbers.get(same) }),
    };
  }

  /** Why a new thread begins. */
  #fork(node: N, siblings: readonly N[], before: AnswerThread<N> | undefined): Fork {
    const { parent, given, messages, request } = node.parts;
    const from = before && {
      thread: this.#threads.indexOf(before),
      turns: before.nodes.indexOf(parent!) + 1,
    };
    const same = siblings.find((each) => isSameGiven(each, node));
    if (same !== undefined) {
      const why =
        same.parts.request === request ? "one of several answers to one request" : "the same request again";
      return { message: messages.length, why, ...(from && { from }) };
    }
    const behind = messages.length - given.length;
    const common = Math.max(0, ...siblings.map((each) => commonMessages(each.parts.given, given)));
    return {
      message: behind + common,
      why: difference(siblings, given, common, behind),
      ...(from && { from }),
    };
  }
}

/** Whether two answers of one parent answer the same messages. */
export function isSameGiven<N extends TreeAnswer<N>>({ parts: { given } }: N, node: N): boolean {
  return given.length === node.parts.given.length && commonMessages(given, node.parts.given) === given.length;
}

function isBroughtBack<N extends TreeAnswer<N>>(
  { parts: { given, known } }: N,
  messages: readonly Message[],
  start: number,
  ids: MessageIds | undefined,
): boolean {
  const end = start + given.length;
  return (
    end < messages.length &&
    isAnswer(messages[end]!, known, ids) &&
    given.every((message, at) => isSameMessage(message, messages[start + at]!))
  );
}

function difference<N extends TreeAnswer<N>>(
  siblings: readonly N[],
  given: readonly Message[],
  common: number,
  behind: number,
): string {
  const at = behind + common;
  const role = given[common]?.role;
  if (role === undefined) return `the conversation ends before message ${at}`;
  const isBehindAll = siblings.some(
    ({ parts }) => parts.given.length === common && commonMessages(parts.given, given) === common,
  );
  if (isBehindAll && role === "assistant")
    return `message ${at} (assistant) is not an answer of this session, or was changed`;
  return `message ${at} (${role}) differs`;
}
