import { value } from "../../wire/index.js";
import { batches, type Conversation, type ConversationSource } from "../data/index.js";
import type { OpenRows } from "../data/rows.js";
import { type GroupSource, type Problem, problemGroups, withTags } from "../environments/index.js";
import type { EnvironmentsContext, TrainReinforcementOptions } from "../reinforcement/index.js";
import type { ReinforcementKind } from "../reinforcement/train-reinforcement.js";

/**
 * Prompts for a student: texts, rows with a `prompt` or `messages`, or conversations, whose last answer is left out.
 * Each pass has another order.
 */
export type Prompts = readonly (string | Problem)[] | ConversationSource;

/** A run that trains on its own answers, and its open teachers. */
export interface TaughtRun extends AsyncDisposable {
  readonly options: TrainReinforcementOptions;
  readonly kind: ReinforcementKind;
}

/** Field type of prompts in an option table. */
export const promptsField = value<Prompts>(
  "a list of at least one text or row with a prompt, or conversations",
  (given) =>
    (Array.isArray(given) && given.length > 0) ||
    typeof (given as Partial<ConversationSource> | null | undefined)?.open === "function",
);

/** The first prompts as problems. */
export async function firstPrompts(prompts: Prompts, most: number): Promise<readonly Problem[]> {
  if (Array.isArray(prompts)) return problemsOf(prompts.slice(0, most));
  await using rows = await (prompts as ConversationSource).open();
  const places = Array.from({ length: Math.min(most, rows.length) }, (_, place) => place);
  return (await rows.read(places)).map((row) => ({ messages: withoutAnswer(row) }));
}

function problemsOf(prompts: readonly (string | Problem)[]): readonly Problem[] {
  return prompts.map((prompt) => (typeof prompt === "string" ? { prompt } : prompt));
}

/** Groups of answers without a reward; the teacher scores them. */
export async function promptGroups(prompts: Prompts, context: EnvironmentsContext): Promise<GroupSource> {
  const reward = () => 0;
  if (Array.isArray(prompts)) return problemGroups({ problems: problemsOf(prompts), reward, ...context });
  const rows = await (prompts as ConversationSource).open();
  const conversationAt = shuffledRows(rows, context.seed);
  const problems = async (index: number) => ({ messages: withoutAnswer(await conversationAt(index)) });
  const groups = problemGroups({ problems, reward, ...context });
  return {
    length: rows.length,
    group: (index) => groups.group(index),
    close: async () => {
      await groups.close?.();
      await rows.close();
    },
  };
}

/** Rows by number, repeated, in another order each pass. */
export function shuffledRows<T>(rows: OpenRows<T>, seed: number): (index: number) => Promise<T> {
  const order = batches(rows, { batchSize: 1, seed });
  return async (index) => (await rows.read(order.indices(index)))[0]!;
}

function withoutAnswer({ messages }: Conversation): Conversation["messages"] {
  return messages.at(-1)?.role === "assistant" ? messages.slice(0, -1) : messages;
}

/** A source's part of every batch. */
export interface BatchShare {
  readonly source: GroupSource;
  readonly groupsPerBatch: number;
  /** Tags added to its groups. */
  readonly tag: string;
}

/**
 * Several sources as one, each with a fixed share of every batch. An epoch ends when all groups of each source have
 * come; shorter sources repeat.
 */
export function sharedBatches(shares: readonly BatchShare[]): GroupSource {
  const batchSize = shares.reduce((sum, { groupsPerBatch }) => sum + groupsPerBatch, 0);
  const owners = shares.flatMap(({ groupsPerBatch }, share) => new Array<number>(groupsPerBatch).fill(share));
  const steps = shares.map(({ source, groupsPerBatch }) =>
    Math.ceil((source.length ?? Number.NaN) / groupsPerBatch),
  );
  const length = Math.max(...steps) * batchSize;
  return {
    length: Number.isNaN(length) ? undefined : length,
    group: async (index) => {
      const place = index % batchSize;
      const { source, groupsPerBatch, tag } = shares[owners[place]!]!;
      const first = owners.indexOf(owners[place]!);
      const group = await source.group(Math.floor(index / batchSize) * groupsPerBatch + place - first);
      return group && withTags(group, [tag]);
    },
    close: async () => {
      await Promise.all(shares.map(({ source }) => source.close?.()));
    },
  };
}
