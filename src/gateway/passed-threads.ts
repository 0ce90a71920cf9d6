import { isDeepStrictEqual } from "node:util";
import type { SentConversation } from "../chat-api/index.js";
import type { Message, ToolDeclaration } from "../renderers/messages.js";
import { AnswerTree } from "./answer-tree.js";
import { arranged, type GivenAnswer } from "./same-message.js";
import type { PassedAnswer } from "./session-answer.js";
import type { SessionThread } from "./session-record.js";

/** An answer of another service, as it was read. */
export interface ForeignAnswer {
  readonly message: Message;
  readonly known: GivenAnswer;
  /** The model that answered, as the service names it. */
  readonly model: string;
  /** Why the answer ended, in the service's words. */
  readonly stopReason: string;
}

/** A conversation that is passed to another service, and its place among the answered ones. */
export interface OpenedPass {
  readonly parent: PassedNode | undefined;
  readonly given: readonly Message[];
  readonly messages: readonly Message[];
  readonly tools: readonly ToolDeclaration[];
  readonly request: number;
}

interface PassedNode {
  readonly parts: OpenedPass & ForeignAnswer & { readonly at: number };
  readonly children: PassedNode[];
}

/** The conversations of a session that another service has answered. */
export class PassedThreads {
  readonly #tree = new AnswerTree<PassedNode>();
  #requests = 0;
  #bytes = 0;

  /** Approximate bytes of the messages that are held. */
  get bytes(): number {
    return this.#bytes;
  }

  depthOf(conversation: SentConversation): number {
    return this.#tree.depthOf(conversation);
  }

  open({ messages: sent, ids, tools = [] }: SentConversation): OpenedPass {
    const all = arranged(sent);
    const { node: parent, end } = this.#tree.deepest(all, ids);
    const given = all.slice(end);
    const messages =
      parent === undefined ? given : [...parent.parts.messages, parent.parts.message, ...given];
    return { parent, given, messages, tools, request: ++this.#requests };
  }

  add(opened: OpenedPass, answer: ForeignAnswer, at: number): PassedAnswer {
    const { parent, given, tools, request } = opened;
    const { message, known, model, stopReason } = answer;
    const node: PassedNode = { parts: { ...opened, ...answer, at }, children: [] };
    parent?.children.push(node);
    const isSameTools = parent !== undefined && isDeepStrictEqual(tools, parent.parts.tools);
    this.#bytes += 2 * JSON.stringify([given, message, isSameTools ? [] : tools]).length;
    return {
      kind: "passed",
      ...this.#tree.add(node),
      ...{ request, model, stopReason, at, given, message, known },
      ...(!isSameTools && tools.length + (parent?.parts.tools.length ?? 0) > 0 && { tools }),
    };
  }

  threads(): SessionThread[] {
    return this.#tree.threads.map(({ nodes, fork }) => {
      const { messages, message, tools } = nodes.at(-1)!.parts;
      return {
        turns: [],
        messages: [...messages, message],
        tools,
        ...(fork && { fork }),
        passed: nodes.map(({ parts: { model, stopReason, at, messages: before } }) => ({
          ...{ model, stopReason, at, messageCount: before.length },
        })),
      };
    });
  }
}
