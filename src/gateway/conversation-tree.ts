import { isDeepStrictEqual } from "node:util";
import type { FinishedAnswer, SentConversation } from "../chat-api/index.js";
import type { Message, ToolDeclaration } from "../renderers/messages.js";
import { type PreparedAnswer, prepareAnswer } from "../renderers/prepare-answer.js";
import type { Renderer } from "../renderers/renderer.js";
import type { ModelInput } from "../wire/index.js";
import { AnswerNode } from "./answer-node.js";
import { type AnswerPlace, AnswerTree, isSameGiven } from "./answer-tree.js";
import { arranged, type GivenAnswer } from "./same-message.js";
import type { Fork, SampledTurn, SessionThread } from "./session-record.js";

/** A request of a session, ready to be sampled. */
export interface OpenedTurn {
  readonly prepared: PreparedAnswer;
  readonly parent: AnswerNode | undefined;
  readonly extendsParent: boolean;
  readonly given: readonly Message[];
  readonly messages: readonly Message[];
  readonly tools: readonly ToolDeclaration[];
  readonly request: number;
}

/** Which weights answered, and when. */
export interface AnswerOrigin {
  readonly model: string;
  readonly step: number | undefined;
  readonly at: number;
}

/** An answer with its place in the tree. */
export interface AddedAnswer extends AnswerPlace {
  readonly node: AnswerNode;
}

/**
 * The conversations of a session. A request continues from the last earlier answer in it, from exactly the tokens
 * that were sampled; only newer messages are rendered. Answers whose prompts continue each other form a thread.
 */
export class ConversationTree {
  readonly #tree = new AnswerTree<AnswerNode>();
  #requests = 0;
  #bytes = 0;

  /** Approximate bytes of the tokens and messages that are held. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Number of earlier answers that a conversation contains. */
  depthOf(conversation: SentConversation): number {
    return this.#tree.depthOf(conversation);
  }

  /** Prepares the answer to a request. What cannot be prepared is a `ConversationError`. */
  open(renderer: Renderer, { ids, ...request }: SentConversation): OpenedTurn {
    const sent = arranged(request.messages);
    const { node: parent, end } = this.#tree.deepest(sent, ids);
    const common = { tools: request.tools ?? [], request: ++this.#requests };
    if (parent === undefined) {
      const prepared = prepareAnswer(renderer, { ...request, messages: sent });
      return { ...common, prepared, parent, extendsParent: false, given: sent, messages: sent };
    }
    const given = sent.slice(end);
    const messages = [...parent.parts.messages, parent.parts.answer, ...given];
    const { conversation } = parent;
    const answered = { prepared: { conversation }, tokens: parent.parts.tokens };
    const prepared = prepareAnswer(renderer, { ...request, messages }, answered);
    const extendsParent = continues(prepared.prompt, conversation.prompt, parent.parts.tokens);
    return { ...common, prepared, parent, extendsParent, given, messages };
  }

  /** Adds a finished answer. */
  add(
    opened: OpenedTurn,
    { tokens, logprobs, stopReason, ...finished }: FinishedAnswer,
    origin: AnswerOrigin,
  ): AddedAnswer {
    const { prepared, parent, extendsParent } = opened;
    const known = knownAnswer(finished);
    const node = new AnswerNode({
      parent,
      extendsParent,
      given: opened.given,
      messages: opened.messages,
      tools: opened.tools,
      request: opened.request,
      renderer: prepared.renderer,
      conversation: prepared.conversation,
      prefill: prepared.prefillTokens,
      answer: withIds(prepared.read(tokens).message, known),
      known,
      tokens: Int32Array.from(tokens),
      logprobs: Float32Array.from(logprobs),
      stopReason,
      ...origin,
    });
    this.#bytes += node.bytes + bytesOf(opened.given) + 2 * known.text.length;
    const breaks = parent !== undefined && !extendsParent ? breakOf(node, parent) : undefined;
    return { node, ...this.#tree.add(node, breaks) };
  }

  threads(): SessionThread[] {
    return this.#tree.threads.map(({ nodes, fork }) => {
      const { messages, answer, tools } = nodes.at(-1)!.parts;
      return {
        turns: nodes.map((node) => turnOf(node, this.#tree.siblingsOf(node))),
        messages: [...messages, answer],
        tools,
        ...(fork && { fork }),
      };
    });
  }
}

/** Why the prompt of an answer does not continue the tokens of the answer before it. */
function breakOf({ parts: { given, messages, tools, renderer } }: AnswerNode, { parts }: AnswerNode): Fork {
  const answer = messages.length - given.length - 1;
  if (!isDeepStrictEqual(tools, parts.tools)) return { message: 0, why: toolChange(parts.tools, tools) };
  if (parts.stopReason === "length")
    return { message: answer, why: `the answer at message ${answer} was cut off` };
  return {
    message: answer,
    why:
      renderer === parts.renderer
        ? "the model's format writes earlier answers otherwise from here on"
        : "the model is asked with another mode of thinking",
  };
}

function toolChange(before: readonly ToolDeclaration[], now: readonly ToolDeclaration[]): string {
  const names = (tools: readonly ToolDeclaration[]) => new Set(tools.map(({ name }) => name));
  const [had, has] = [names(before), names(now)];
  const changes = [
    ...[...has].filter((name) => !had.has(name)).map((name) => `${name} was added`),
    ...[...had].filter((name) => !has.has(name)).map((name) => `${name} is gone`),
  ];
  return `the tools changed: ${changes.join(", ") || "a declaration differs"}`;
}

function turnOf(node: AnswerNode, siblings: readonly AnswerNode[]): SampledTurn {
  const { tokens, logprobs, stopReason, model, step, messages, at, request } = node.parts;
  const isRepeated =
    node.children.length === 0 &&
    siblings.some(
      (other) =>
        other.parts.request !== request &&
        (other.children.length > 0 || other.parts.request > request) &&
        isSameGiven(other, node),
    );
  return {
    prompt: node.prompt,
    tokens,
    logprobs,
    stopReason,
    model,
    ...(step !== undefined && { step }),
    messageCount: messages.length,
    isRepeated,
    at,
  };
}

/** Whether a prompt begins with another prompt and the tokens sampled after it. */
function continues(prompt: ModelInput, before: ModelInput, tokens: Int32Array): boolean {
  if (!prompt.isText || !before.isText) return false;
  const [now, then] = [prompt.toInts(), before.toInts()];
  return (
    now.length >= then.length + tokens.length &&
    then.every((token, at) => now[at] === token) &&
    tokens.every((token, at) => now[then.length + at] === token)
  );
}

function knownAnswer({ pieces, ids }: Pick<FinishedAnswer, "pieces" | "ids">): GivenAnswer {
  const text = pieces.map((piece) => (piece.type === "text" ? piece.text : "")).join("");
  return { text, calls: pieces.flatMap((piece) => (piece.type === "calls" ? piece.calls : [])), ids };
}

/** An answer with the ids that the agent knows its calls by: results name them. */
function withIds(message: Message, { calls }: GivenAnswer): Message {
  if (message.toolCalls === undefined || calls.length === 0) return message;
  return {
    ...message,
    toolCalls: message.toolCalls.map((call, at) => ({ ...call, id: calls[at]?.id ?? call.id })),
  };
}

function bytesOf(messages: readonly Message[]): number {
  return 2 * JSON.stringify(messages).length;
}
