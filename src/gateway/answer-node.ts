import { beginPrompt, type ConversationPrompt } from "../renderers/conversation-prompt.js";
import type { Message, ToolDeclaration } from "../renderers/messages.js";
import type { Renderer } from "../renderers/renderer.js";
import { ModelInput, type StopReason } from "../wire/index.js";
import type { GivenAnswer } from "./same-message.js";

/** Fields of a new answer node. */
export interface AnswerNodeParts {
  /** The answer before it in the conversation. */
  readonly parent: AnswerNode | undefined;
  /** True where its prompt begins with the parent's prompt and answer, token for token. */
  readonly extendsParent: boolean;
  /** The messages between the parent's answer and this one, as the agent sent them. */
  readonly given: readonly Message[];
  /** The conversation before the answer, with the model's own answers as they were sampled. */
  readonly messages: readonly Message[];
  readonly tools: readonly ToolDeclaration[];
  readonly renderer: Renderer;
  readonly conversation: ConversationPrompt;
  readonly prefill: readonly number[];
  readonly answer: Message;
  readonly known: GivenAnswer;
  readonly tokens: Int32Array;
  readonly logprobs: Float32Array;
  readonly stopReason: StopReason;
  readonly model: string;
  readonly step: number | undefined;
  readonly at: number;
  /** The number of the request that it answers. */
  readonly request: number;
}

/** An answer in the tree of a session's conversations. It stores only the part of its prompt that its parent does not have. */
export class AnswerNode {
  readonly parts: Omit<AnswerNodeParts, "conversation">;
  readonly children: AnswerNode[] = [];
  readonly #promptRest: ModelInput;
  readonly #declared: readonly Message[];
  /** Kept for the next turn, which usually continues here; made again if a later turn continues elsewhere. */
  #conversation: ConversationPrompt | undefined;

  constructor({ conversation, ...parts }: AnswerNodeParts) {
    this.parts = parts;
    this.#conversation = conversation;
    this.#declared = conversation.messages;
    const { parent, extendsParent } = parts;
    this.#promptRest =
      parent !== undefined && extendsParent && conversation.prompt.isText
        ? ModelInput.fromInts(conversation.prompt.toInts().slice(parent.length))
        : conversation.prompt;
    if (parent !== undefined) {
      parent.children.push(this);
      parent.#conversation = undefined;
    }
  }

  /** Tokens of the prompt and the answer. */
  get length(): number {
    return this.#readLength + this.parts.tokens.length;
  }

  get #readLength(): number {
    let length = 0;
    for (const [place, node] of this.#chain().entries())
      length += node.#promptRest.length + (place === 0 ? 0 : node.parts.tokens.length);
    return length;
  }

  /** The part of the prompt after the parent's tokens; the whole prompt if it does not extend the parent's. */
  get promptRest(): ModelInput {
    return this.#promptRest;
  }

  /** Bytes that this node holds beside its messages. */
  get bytes(): number {
    return 4 * (this.#promptRest.length + 2 * this.parts.tokens.length);
  }

  get prompt(): ModelInput {
    const chain = this.#chain();
    if (chain.length === 1) return this.#promptRest;
    const tokens: number[] = [];
    for (const [place, node] of chain.reverse().entries()) {
      for (const token of node.#promptRest.toInts()) tokens.push(token);
      if (place < chain.length - 1) for (const token of node.parts.tokens) tokens.push(token);
    }
    return ModelInput.fromInts(tokens);
  }

  /** The prompt in the form that `continuePrompt` takes. */
  get conversation(): ConversationPrompt {
    if (this.#conversation !== undefined) return this.#conversation;
    const { renderer, prefill } = this.parts;
    const { rendered } = beginPrompt(renderer, this.#declared);
    const whole = prefill.length === 0 ? rendered : ModelInput.fromInts([...rendered.toInts(), ...prefill]);
    return { messages: this.#declared, prompt: this.prompt, rendered: whole, isExtension: true };
  }

  /** This node and the earlier ones whose tokens its prompt begins with, newest first. */
  #chain(): AnswerNode[] {
    const chain: AnswerNode[] = [this];
    for (let node: AnswerNode = this; node.#sharesText; node = node.parts.parent!)
      chain.push(node.parts.parent!);
    return chain;
  }

  get #sharesText(): boolean {
    const { parent, extendsParent } = this.parts;
    return parent !== undefined && extendsParent && this.#promptRest.isText;
  }
}
