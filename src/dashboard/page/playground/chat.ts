import type { ChatEvent, PlaygroundRequest } from "../../api.js";

/** The answer of a model so far. */
export interface Reply {
  readonly id: string;
  readonly text: string;
  readonly thinking: string;
  readonly answer?: Extract<ChatEvent, { type: "answer" }> | undefined;
  readonly problem?: string | undefined;
  readonly isRunning: boolean;
}

/** The answers of one column to a question; the conversation goes on from the chosen one. */
export interface Exchange {
  readonly samples: readonly Reply[];
  readonly chosen: number;
}

/** A question and the answers of all columns. */
export interface PlaygroundTurn {
  readonly id: string;
  readonly question: string;
  readonly exchanges: readonly Exchange[];
}

/** A conversation with up to four models side by side. */
export interface Chat {
  readonly id: string;
  /** One for each column. */
  readonly models: readonly string[];
  readonly system: string;
  readonly turns: readonly PlaygroundTurn[];
}

export const MAX_COLUMNS = 4;

/** An empty conversation with these models. */
export function newChat(models: readonly string[], system = ""): Chat {
  return { id: crypto.randomUUID(), models, system, turns: [] };
}

/** A conversation of its own that begins like another one, up to a turn. */
export function branch(chat: Chat, turns: number): Chat {
  return { ...chat, id: crypto.randomUUID(), turns: chat.turns.slice(0, turns) };
}

/** An answer that is being waited for. */
export function newReply(): Reply {
  return { id: crypto.randomUUID(), text: "", thinking: "", isRunning: true };
}

/** The conversation with another question; the replies to it are empty. */
export function withQuestion(chat: Chat, question: string, samples: number): Chat {
  const exchanges = chat.models.map(() => ({
    samples: Array.from({ length: samples }, newReply),
    chosen: 0,
  }));
  return { ...chat, turns: [...chat.turns, { id: crypto.randomUUID(), question, exchanges }] };
}

/** The conversation with one more answer in a column's last turn, which becomes the chosen one. */
export function withAnotherReply(chat: Chat, column: number, reply: Reply): Chat {
  return changeExchange(chat, chat.turns.length - 1, column, ({ samples }) => ({
    samples: [...samples, reply],
    chosen: samples.length,
  }));
}

/** The conversation with another chosen answer. */
export function withChosen(chat: Chat, turn: number, column: number, chosen: number): Chat {
  return changeExchange(chat, turn, column, ({ samples }) => ({ samples, chosen }));
}

function changeExchange(
  chat: Chat,
  turn: number,
  column: number,
  change: (exchange: Exchange) => Exchange,
): Chat {
  const turns = chat.turns.map((one, at) =>
    at === turn
      ? { ...one, exchanges: one.exchanges.map((old, place) => (place === column ? change(old) : old)) }
      : one,
  );
  return { ...chat, turns };
}

/** The conversation with a changed answer; an answer that is no longer part of it changes nothing. */
export function withReply(chat: Chat, id: string, change: (reply: Reply) => Reply): Chat {
  const isIn = ({ samples }: Exchange) => samples.some((reply) => reply.id === id);
  if (!chat.turns.some(({ exchanges }) => exchanges.some(isIn))) return chat;
  const changed = (exchange: Exchange) =>
    isIn(exchange)
      ? { ...exchange, samples: exchange.samples.map((reply) => (reply.id === id ? change(reply) : reply)) }
      : exchange;
  return {
    ...chat,
    turns: chat.turns.map((turn) => ({ ...turn, exchanges: turn.exchanges.map(changed) })),
  };
}

/** The text of an answer, or as much of it as has come. */
export function replyText({ answer, text }: Reply): string {
  return answer?.text ?? text;
}

/** The messages that a column's model reads, up to the question of a turn. */
export function promptMessages(chat: Chat, column: number, turn: number): PlaygroundRequest["messages"] {
  return [
    ...(chat.system.trim() === "" ? [] : [{ role: "system", content: chat.system }]),
    ...chat.turns.slice(0, turn).flatMap(({ question, exchanges }) => {
      const { samples, chosen } = exchanges[column]!;
      return [
        { role: "user", content: question },
        { role: "assistant", content: replyText(samples[chosen]!) },
      ];
    }),
    { role: "user", content: chat.turns[turn]!.question },
  ];
}

/** Ids of all answers of a conversation, or of one column, that are not whole yet. */
export function runningReplies(chat: Chat, column?: number): readonly string[] {
  return chat.turns.flatMap(({ exchanges }) =>
    exchanges
      .filter((_, place) => column === undefined || place === column)
      .flatMap(({ samples }) => samples.filter(({ isRunning }) => isRunning).map(({ id }) => id)),
  );
}
