import { TinkerError, ValidationError } from "../../errors.js";
import { wrongValue } from "../../wire/index.js";
import {
  type AdvantagePenalty,
  countTaught,
  discountedSums,
  type LogprobSource,
  logprobDifferences,
  logprobsUnder,
  type PenaltyContext,
} from "../reinforcement/index.js";
import { divergenceMetrics } from "./domains.js";

/** Who teaches, and how much it counts. */
export interface TeacherPenaltyOptions {
  /** By the tag of the groups that each teaches; a single one teaches all groups. */
  readonly teachers: Readonly<Record<string, LogprobSource>>;
  /** What the reverse KL is multiplied with. Default: 1. */
  readonly coefficient?: number | undefined;
  /** How much a token answers for the reverse KL of those behind it, from 0 (default) to 1. */
  readonly discount?: number | undefined;
}

/**
 * Teaches by what a teacher thinks of the student's own words: each token's advantage falls by the reverse KL there, the
 * student's logprob less the teacher's. Measures `teacher_kl`, and `teacher_kl/TAG` for each teacher.
 */
export function teacherPenalty(options: TeacherPenaltyOptions): AdvantagePenalty {
  const { teachers, coefficient = 1, discount = 0 } = options;
  const tags = Object.keys(teachers);
  if (tags.length === 0) throw new ValidationError("teachers", "teachers must have at least one teacher");
  checkTeaching({ coefficient, discount });
  return {
    apply: async (data, { groups, signal }) => {
      const tagOf = data.map(({ group }) => (tags.length === 1 ? tags[0]! : tagOfGroup(group, groups, tags)));
      // All are asked before anything is changed: who tries again begins with the data as they were.
      const answers = await Promise.all(
        tags.map(async (name) => {
          const taught = data.filter((_, index) => tagOf[index] === name);
          const logprobs = await logprobsUnder(teachers[name]!, taught, signal);
          return { name, taught, divergences: logprobDifferences(taught, logprobs) };
        }),
      );
      const sums = answers.map(({ name, taught, divergences }) => {
        for (const [index, { advantages, mask }] of taught.entries()) {
          const penalties = divergences[index]!.map((each) => -coefficient * each);
          const counted = discountedSums(penalties, discount);
          for (let at = 0; at < mask.length; at++) if (mask[at]! > 0) advantages[at]! += counted[at]!;
        }
        const divergence = divergences.reduce(
          (sum, values) => values.reduce((some, each) => some + each, sum),
          0,
        );
        return { name, divergence, weight: countTaught(taught) };
      });
      return divergenceMetrics(sums);
    },
  };
}

/** Refuses settings that make no sense. */
export function checkTeaching({
  coefficient = 1,
  discount = 0,
}: Omit<TeacherPenaltyOptions, "teachers">): void {
  if (!(coefficient > 0 && coefficient < Number.POSITIVE_INFINITY))
    throw wrongValue("coefficient", "a number above 0", coefficient);
  if (!(discount >= 0 && discount <= 1)) throw wrongValue("discount", "a number from 0 to 1", discount);
}

function tagOfGroup(group: number, groups: PenaltyContext["groups"], tags: readonly string[]): string {
  const found = groups[group]!.group.tags.filter((tag) => tags.includes(tag));
  if (found.length === 1) return found[0]!;
  const which = found.length === 0 ? "none" : `those of ${found.join(" and ")}`;
  throw new TinkerError(
    `Group ${groups[group]!.index} must have the tag of one teacher (${tags.join(", ")}), and has ${which}.`,
  );
}
