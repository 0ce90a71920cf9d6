import { PageStore } from "../store.js";
import type { Chat, Exchange, PlaygroundTurn, Reply } from "./chat.js";

const KEY = "tinkerts-chats";
const MAX_CHATS = 30;
/** Browsers keep about 5 million characters for a page. */
const MAX_LENGTH = 2_000_000;

/** Conversations of the playground that this browser keeps, the newest first. */
export const keptChats = new PageStore<readonly Chat[]>(read());

/** Keeps a conversation, without the tokens of its answers; the oldest ones make room. */
export function keep(chat: Chat): void {
  if (chat.turns.length === 0) return;
  set([chat, ...keptChats.value.filter(({ id }) => id !== chat.id)]);
}

/** Removes a conversation. */
export function forget(id: string): void {
  set(keptChats.value.filter((chat) => chat.id !== id));
}

function set(all: readonly Chat[]): void {
  const chats = all.slice(0, MAX_CHATS);
  keptChats.set(chats);
  for (let count = chats.length; count > 0; count -= 1) {
    const text = JSON.stringify(chats.slice(0, count).map(plain));
    if (text.length > MAX_LENGTH) continue;
    try {
      localStorage.setItem(KEY, text);
      return;
    } catch {
      // Full: one less may fit.
    }
  }
  localStorage.removeItem(KEY);
}

/** The kept part of a conversation: its texts. */
function plain(chat: Chat): Chat {
  const textsOf = ({ id, text, thinking, answer, problem }: Reply): Reply => ({
    ...{ id, text: answer?.text ?? text, thinking, isRunning: false },
    ...(problem === undefined ? {} : { problem }),
  });
  const turns = chat.turns.map((turn) => ({
    ...turn,
    exchanges: turn.exchanges.map(({ samples, chosen }) => ({ samples: samples.map(textsOf), chosen })),
  }));
  return { ...chat, turns };
}

/** Another version of this page may have kept something else. */
function read(): readonly Chat[] {
  try {
    const kept: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(kept) ? kept.filter(isChat) : [];
  } catch {
    return [];
  }
}

function isChat(value: unknown): value is Chat {
  const { id, models, system, turns } = (value ?? {}) as Partial<Chat>;
  return (
    typeof id === "string" &&
    typeof system === "string" &&
    Array.isArray(models) &&
    models.every((model) => typeof model === "string") &&
    Array.isArray(turns) &&
    turns.every((turn) => isTurn(turn, models.length))
  );
}

function isTurn(value: unknown, columns: number): boolean {
  const { id, question, exchanges } = (value ?? {}) as Partial<PlaygroundTurn>;
  return (
    typeof id === "string" &&
    typeof question === "string" &&
    Array.isArray(exchanges) &&
    exchanges.length === columns &&
    exchanges.every(
      ({ samples, chosen }: Exchange) =>
        Array.isArray(samples) && samples.every(isReply) && samples[chosen] !== undefined,
    )
  );
}

function isReply(value: unknown): boolean {
  const { id, text, thinking } = (value ?? {}) as Partial<Reply>;
  return [id, text, thinking].every((item) => typeof item === "string");
}
