import { TinkerError } from "../../errors.js";
import type { Message } from "../../renderers/index.js";
import * as f from "../../wire/fields/index.js";
import {
  type EnvironmentGroup,
  type GroupSource,
  PROBLEM_GROUP_OPTIONS,
  type Problem,
  type ProblemGroupOptions,
  problemGroups,
  type Trajectory,
} from "../environments/index.js";
import { RolloutPool } from "../rollouts/index.js";
import type { Comparison } from "./comparison.js";
import type { Compare } from "./preference-model.js";

const PATTERNS = ["all_pairs_both_ways", "all_pairs_one_way"] as const;

/** Pairs of answers that are compared: every two in both orders, or in one. */
export type TournamentPattern = (typeof PATTERNS)[number];

/** How answers are compared with each other. */
export interface TournamentRules {
  /** A preference model, or any function of two answers. */
  readonly compare: Compare;
  /** Pairs of answers to compare. Default: `all_pairs_both_ways`. */
  readonly pattern?: TournamentPattern | undefined;
  /** Answers per tournament; a larger group is split into tournaments of this size. Default: 4. */
  readonly matchupSize?: number | undefined;
  /** Comparisons that run at the same time, over all groups. Default: 64. */
  readonly concurrency?: number | undefined;
  /** Prepares an answer for comparison, for example by removing thoughts. Default: the whole answer. */
  readonly prepare?: ((message: Message) => Message) | undefined;
}

/** Field type of a judge of two answers in an option table. */
export const compareField = f.functionOf<Compare>("a function of a comparison");

/** The option table for comparing answers. */
export const TOURNAMENT_OPTIONS = f.optionTable({
  compare: f.option(compareField, "says which of two answers is better"),
  pattern: f.option(f.withDefault(f.oneOf(...PATTERNS), PATTERNS[0]), "pairs of answers to compare"),
  matchupSize: f.option(f.withDefault(f.twoOrMore, 4), "answers that meet each other"),
  concurrency: f.option(f.withDefault(f.positiveInteger, 64), "comparisons at a time, over all groups"),
  prepare: f.option(
    f.optional(f.functionOf<NonNullable<TournamentRules["prepare"]>>()),
    "prepares an answer for comparison",
    { otherwise: "the whole answer" },
  ),
} satisfies f.OptionsOf<TournamentRules>);

/** The matches as pairs of positions: the first player against the second. */
export function matchups(
  players: number,
  pattern: TournamentPattern,
  matchupSize: number,
): readonly (readonly [number, number])[] {
  const pairs: [number, number][] = [];
  for (let player = 0; player < players; player += 1) {
    const start = player - (player % matchupSize);
    const end = Math.min(start + matchupSize, players);
    const first = pattern === "all_pairs_both_ways" ? start : player + 1;
    for (let other = first; other < end; other += 1) if (other !== player) pairs.push([player, other]);
  }
  return pairs;
}

/**
 * Rewards each episode of a group by its results against the others: (wins - losses) / matches, from -1 to 1. Works
 * with every group whose environments have conversations.
 */
export function tournamentRewards(given: TournamentRules): NonNullable<EnvironmentGroup["groupRewards"]> {
  const rules = TOURNAMENT_OPTIONS.check(given, "tournamentRewards");
  const { compare, pattern, matchupSize, concurrency } = rules;
  const pool = new RolloutPool({ maxRollouts: concurrency });
  return async (trajectories, { signal }) => {
    // An episode without an answer, because its prompt was too long, plays no matches.
    const players = trajectories.flatMap((trajectory, place) =>
      numAnswers(trajectory) === 0 ? [] : [{ place, ...played(trajectory, rules) }],
    );
    const pairs = matchups(players.length, pattern, matchupSize);
    const meet = async ([first, second]: readonly [number, number]) => {
      const { prompt, completion: completionA } = players[first]!;
      const comparison = { prompt, completionA, completionB: players[second]!.completion };
      const result = await pool.run(async () => compare(comparison, { signal }), signal);
      if (!Number.isFinite(result)) throw f.wrongValue("compare", "a function that gives a number", result);
      return result;
    };
    const results = await Promise.all(pairs.map(meet));
    const scores = trajectories.map(() => ({ sum: 0, matches: 0 }));
    // In the order of the pairs, so that the sums do not depend on the order of the answers.
    for (const [match, [first, second]] of pairs.entries()) {
      const [one, other] = [scores[players[first]!.place]!, scores[players[second]!.place]!];
      one.sum -= results[match]!;
      other.sum += results[match]!;
      one.matches += 1;
      other.matches += 1;
    }
    return scores.map(({ sum, matches }) => {
      const reward = matches === 0 ? 0 : sum / matches;
      return { reward, metrics: { win_minus_loss: reward } };
    });
  };
}

/** An episode that ended before its first answer still has a turn, in which nothing was sampled. */
function numAnswers({ turns }: Trajectory): number {
  return turns.filter(({ action }) => action.tokens.length > 0).length;
}

function played(
  trajectory: Trajectory,
  { prepare = (message) => message }: Pick<TournamentRules, "prepare">,
): Pick<Comparison, "prompt"> & { readonly completion: readonly Message[] } {
  const { messages } = trajectory;
  if (messages === undefined)
    throw new TinkerError("A tournament needs environments with the method messages(), and these have none.");
  const answers = messages.flatMap(({ role }, place) => (role === "assistant" ? [place] : []));
  // Earlier messages were given, not sampled.
  const start = answers.at(-numAnswers(trajectory)) ?? answers[0] ?? messages.length;
  return {
    prompt: messages.slice(0, start),
    completion: messages
      .slice(start)
      .map((message) => (message.role === "assistant" ? prepare(message) : message)),
  };
}

/** Prompts whose answers are compared with each other. */
export interface TournamentOptions<P extends Problem>
  extends TournamentRules,
    Pick<ProblemGroupOptions<P>, "groupSize" | "renderer" | "seed" | "tags"> {
  /**
   * Prompts. An array is shuffled in each epoch; another iterable keeps its order; a function is called with the
   * prompt's number.
   */
  readonly prompts: ProblemGroupOptions<P>["problems"];
}

/** The option table of `tournament`. */
export const TOURNAMENT_GROUP_OPTIONS = f.optionTable({
  ...TOURNAMENT_OPTIONS.fields,
  prompts: PROBLEM_GROUP_OPTIONS.fields.problems,
  groupSize: f.option(f.twoOrMore, "answers that are compared with each other"),
  renderer: PROBLEM_GROUP_OPTIONS.fields.renderer,
  seed: PROBLEM_GROUP_OPTIONS.fields.seed,
  tags: PROBLEM_GROUP_OPTIONS.fields.tags,
} satisfies f.OptionsOf<TournamentOptions<Problem>>);

/**
 * Groups of answers that are rewarded by a tournament among them. An answer without its stop sequence loses 1 in
 * addition.
 */
export function tournament<P extends Problem>(options: TournamentOptions<P>): GroupSource {
  TOURNAMENT_GROUP_OPTIONS.check(options, "tournament");
  const { prompts: problems, groupSize, renderer, seed, tags = ["pair_pref"] } = options;
  const { compare, pattern, matchupSize, concurrency, prepare } = options;
  const groupRewards = tournamentRewards({ compare, pattern, matchupSize, concurrency, prepare });
  const reward: ProblemGroupOptions<P>["reward"] = ({ termination }) => {
    const format = termination === "stop_sequence" ? 1 : 0;
    return { reward: format - 1, metrics: { format } };
  };
  const source = problemGroups<P>({ problems, groupSize, renderer, seed, tags, reward });
  return {
    ...source,
    group: async (index) => {
      const group = await source.group(index);
      return group && { ...group, groupRewards };
    },
  };
}
