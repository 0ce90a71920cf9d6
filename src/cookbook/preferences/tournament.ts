import { TinkerError, ValidationError } from "../../errors.js";
import type { Message } from "../../renderers/index.js";
import { wrongValue } from "../../wire/index.js";
import { checkWhole } from "../data/rows.js";
import {
  type EnvironmentGroup,
  type GroupSource,
  type Problem,
  type ProblemGroupOptions,
  problemGroups,
  type Trajectory,
} from "../environments/index.js";
import { RolloutPool } from "../rollouts/index.js";
import type { Comparison } from "./comparison.js";
import type { Compare } from "./preference-model.js";

/** Who meets whom: every two answers in both orders, or in one. */
export type TournamentPattern = "all_pairs_both_ways" | "all_pairs_one_way";

/** How answers are compared with each other. */
export interface TournamentRules {
  /** A preference model, or any function of two answers. */
  readonly compare: Compare;
  /** Default: `all_pairs_both_ways`. */
  readonly pattern?: TournamentPattern | undefined;
  /** Answers that meet each other; a larger group is cut into tournaments of this size. Default: 4. */
  readonly matchupSize?: number | undefined;
  /** Comparisons under way at a time, over all groups. Default: 64. */
  readonly concurrency?: number | undefined;
  /** What is compared of an answer: without its thoughts, for example. Default: all of it. */
  readonly prepare?: ((message: Message) => Message) | undefined;
}

const MATCHUP_SIZE = 4;
const CONCURRENCY = 64;

/** The players that meet, by their places: the first of a pair against the second. */
export function matchups(
  players: number,
  pattern: TournamentPattern = "all_pairs_both_ways",
  matchupSize = MATCHUP_SIZE,
): readonly (readonly [number, number])[] {
  if (pattern !== "all_pairs_both_ways" && pattern !== "all_pairs_one_way")
    throw wrongValue("pattern", "all_pairs_both_ways or all_pairs_one_way", pattern satisfies never);
  checkWhole("matchupSize", matchupSize, 2);
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
 * Rewards each episode of a group by how it does against the others: (wins - losses) / matches, from -1 to 1. Fits every
 * group whose environments tell their messages.
 */
export function tournamentRewards(rules: TournamentRules): NonNullable<EnvironmentGroup["groupRewards"]> {
  const { compare, pattern, matchupSize, concurrency = CONCURRENCY } = rules;
  if (typeof compare !== "function") throw wrongValue("compare", "a function of a comparison", compare);
  matchups(0, pattern, matchupSize);
  checkWhole("concurrency", concurrency, 1);
  const pool = new RolloutPool({ maxRollouts: concurrency });
  return async (trajectories, { signal }) => {
    // An episode without an answer, since its prompt was too long, meets nobody.
    const players = trajectories.flatMap((trajectory, place) =>
      numAnswers(trajectory) === 0 ? [] : [{ place, ...played(trajectory, rules) }],
    );
    const pairs = matchups(players.length, pattern, matchupSize);
    const meet = async ([first, second]: readonly [number, number]) => {
      const { prompt, completion: completionA } = players[first]!;
      const comparison = { prompt, completionA, completionB: players[second]!.completion };
      const result = await pool.run(async () => compare(comparison, { signal }), signal);
      if (!Number.isFinite(result)) throw wrongValue("compare", "a function that gives a number", result);
      return result;
    };
    const results = await Promise.all(pairs.map(meet));
    const scores = trajectories.map(() => ({ sum: 0, matches: 0 }));
    // In the order of the pairs, so that the sums are the same however the answers came.
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

/** An episode that ended before its first answer has a turn all the same, in which nothing was sampled. */
function numAnswers({ turns }: Trajectory): number {
  return turns.filter(({ action }) => action.tokens.length > 0).length;
}

function played(
  trajectory: Trajectory,
  { prepare = (message) => message }: TournamentRules,
): Pick<Comparison, "prompt"> & { readonly completion: readonly Message[] } {
  const { messages } = trajectory;
  if (messages === undefined)
    throw new TinkerError("A tournament needs environments that tell their messages, and these do not.");
  const answers = messages.flatMap(({ role }, place) => (role === "assistant" ? [place] : []));
  // Those before were given, not sampled.
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
  /** An array is shuffled in each epoch; what else can be iterated comes in its order; a function is asked by number. */
  readonly prompts: ProblemGroupOptions<P>["problems"];
}

/** Groups of answers that are rewarded by a tournament among them. An answer without its stop sign loses 1 besides. */
export function tournament<P extends Problem>(options: TournamentOptions<P>): GroupSource {
  const { prompts: problems, groupSize, renderer, seed, tags = ["pair_pref"] } = options;
  if (groupSize < 2)
    throw new ValidationError(
      "groupSize",
      `groupSize must be at least 2 to compare answers, got ${groupSize}`,
    );
  const groupRewards = tournamentRewards(options);
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
