import { wrongValue } from "../../wire/index.js";
import { batches, type Conversation, type ConversationSource } from "../data/index.js";
import type { OpenRows } from "../data/rows.js";
import {
  type EnvironmentGroup,
  type GroupSource,
  type Problem,
  problemGroups,
} from "../environments/index.js";
import { ACTING_KEYS } from "../reinforcement/group-source.js";
import type {
  EnvironmentsContext,
  ReinforcementSettings,
  TrainReinforcementOptions,
} from "../reinforcement/index.js";
import type { ReinforcementKind } from "../reinforcement/train-reinforcement.js";

/**
 * What a student answers: texts, rows with a `prompt` or `messages`, or conversations, whose last answer is left out. They
 * come in another order each time they are through.
 */
export type Prompts = readonly (string | Problem)[] | ConversationSource;

/** The options of training by reward that all ways to learn from one's own answers take. */
export const ON_POLICY_KEYS = [
  ...ACTING_KEYS,
  ...(["groupSize", "steps", "substeps", "mode", "minibatches", "maxStepsOffPolicy", "onRollouts"] as const),
] satisfies (keyof ReinforcementSettings)[];

/** A run that learns from its own answers, and the teachers that are open for it. */
export interface TaughtRun extends AsyncDisposable {
  readonly options: TrainReinforcementOptions;
  readonly kind: ReinforcementKind;
}

/** Refuses what nothing could be asked from. */
export function checkPrompts(prompts: unknown, field: string): asserts prompts is Prompts {
  if (Array.isArray(prompts) && prompts.length > 0) return;
  if (typeof (prompts as Partial<ConversationSource> | undefined)?.open === "function") return;
  throw wrongValue(field, "a list of at least one text or row with a prompt, or conversations", prompts);
}

/** Groups of answers that are rewarded by nothing: what they are worth is for the teacher to say. */
export async function promptGroups(prompts: Prompts, context: EnvironmentsContext): Promise<GroupSource> {
  const reward = () => 0;
  if (Array.isArray(prompts)) {
    const problems = prompts.map((prompt) => (typeof prompt === "string" ? { prompt } : prompt));
    return problemGroups({ problems, reward, ...context });
  }
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

/** Rows by number, over and over, in another order each time. */
export function shuffledRows<T>(rows: OpenRows<T>, seed: number): (index: number) => Promise<T> {
  const order = batches(rows, { batchSize: 1, seed });
  return async (index) => (await rows.read(order.indices(index)))[0]!;
}

function withoutAnswer({ messages }: Conversation): Conversation["messages"] {
  return messages.at(-1)?.role === "assistant" ? messages.slice(0, -1) : messages;
}

/** A part of every batch. */
export interface BatchShare {
  readonly source: GroupSource;
  readonly groupsPerBatch: number;
  /** Put on its groups. */
  readonly tag: string;
}

/**
 * Several sources as one, of which each batch has a fixed share. It is as long as it takes until all groups of each have
 * come; those of shorter sources come again.
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
      return group && tagged(group, tag);
    },
    close: async () => {
      await Promise.all(shares.map(({ source }) => source.close?.()));
    },
  };
}

function tagged(group: EnvironmentGroup, tag: string): EnvironmentGroup {
  return {
    makeEnvironments: () => group.makeEnvironments(),
    ...(group.groupRewards && {
      groupRewards: (trajectories, context) => group.groupRewards!(trajectories, context),
    }),
    close: () => group.close?.(),
    tags: [...(group.tags ?? []), tag],
  };
}
