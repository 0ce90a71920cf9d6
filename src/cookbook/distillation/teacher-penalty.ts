import { TinkerError } from "../../errors.js";
import * as f from "../../wire/fields/index.js";
import {
  type AdvantagePenalty,
  countTrainedTokens,
  discountedSums,
  type LogprobSource,
  logprobDifferences,
  logprobsUnder,
  type PenaltyContext,
} from "../reinforcement/index.js";
import { divergenceMetrics } from "./domains.js";

/** Teachers, and how much they count. */
export interface TeacherPenaltyOptions {
  /** Teachers by the tag of the groups that they score; a single teacher scores all groups. */
  readonly teachers: Readonly<Record<string, LogprobSource>>;
  /** Factor of the reverse KL. Default: 1. */
  readonly coefficient?: number | undefined;
  /** How much a token is held responsible for the reverse KL of later tokens, from 0 (default) to 1. */
  readonly discount?: number | undefined;
}

/** How a teacher's scores count, also for `trainOnPolicyDistillation`. */
export const TEACHER_KL_OPTIONS = {
  coefficient: f.option(f.withDefault(f.positive, 1), "factor of the reverse KL to the teacher", {
    config: "teacher_kl_coef",
  }),
  discount: f.option(
    f.withDefault(f.portion, 0),
    "how much a token answers for the reverse KL of later tokens",
    { config: "teacher_kl_discount_factor" },
  ),
};
/** The option table of `teacherPenalty`. */
export const TEACHER_PENALTY_OPTIONS = f.optionTable({
  teachers: f.option(
    f.opaque as f.Field<TeacherPenaltyOptions["teachers"]>,
    "teachers, by the tag of their groups",
  ),
  ...TEACHER_KL_OPTIONS,
} satisfies f.OptionsOf<TeacherPenaltyOptions>);

/**
 * A penalty by a teacher: each token's advantage is reduced by the student's logprob minus the teacher's. Measures
 * `teacher_kl`, the reverse KL, and `teacher_kl/TAG` for each teacher.
 */
export function teacherPenalty(options: TeacherPenaltyOptions): AdvantagePenalty {
  const { teachers, coefficient, discount } = TEACHER_PENALTY_OPTIONS.check(options, "teacherPenalty");
  const tags = Object.keys(teachers);
  if (tags.length === 0) throw f.wrongField("teachers", "must have at least one teacher");
  return {
    apply: async (data, { groups, signal }) => {
      const tagOf = data.map(({ group }) => (tags.length === 1 ? tags[0]! : tagOfGroup(group, groups, tags)));
      // All teachers answer before anything is changed, so that a retry starts from unchanged data.
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
        return { name, divergence, weight: countTrainedTokens(taught) };
      });
      return divergenceMetrics(sums);
    },
  };
}

function tagOfGroup(group: number, groups: PenaltyContext["groups"], tags: readonly string[]): string {
  const found = groups[group]!.group.tags.filter((tag) => tags.includes(tag));
  if (found.length === 1) return found[0]!;
  const which = found.length === 0 ? "none" : `those of ${found.join(" and ")}`;
  throw new TinkerError(
    `Group ${groups[group]!.index} must have the tag of one teacher (${tags.join(", ")}), and has ${which}.`,
  );
}
