import { type Datum, type ForwardBackwardOutput, type ModelInput, TensorData } from "../../wire/index.js";
import {
  type AdvantagePenalty,
  meanMetrics,
  type PenaltyContext,
  type PolicyLoss,
  policyLoss,
  type RolloutDatum,
} from "../reinforcement/index.js";
import { type HintedReading, hintedLogprobs, hintedTargets } from "./hints.js";
import { reverseKlLoss } from "./reverse-kl-loss.js";
import { type SoftTarget, softTargetDatum } from "./soft-targets.js";
import type { TeacherSampler } from "./teacher.js";

/** How a teacher that knows good answers teaches a student that does not. */
export interface HintedTeachingOptions {
  readonly teacher: TeacherSampler;
  /** What the teacher reads before an answer of this group, by the group's number. */
  readonly promptOf: (group: number) => Promise<ModelInput>;
  readonly maxLength: number | undefined;
  /** The teacher's likeliest tokens that are learnt; 0: only what it thinks of those that were sampled. */
  readonly topk: number;
  readonly isReverse: boolean;
  /** Of each answer, so many tokens are not learnt. */
  readonly skipTokens: number;
}

/** What is asked of the teacher once answers are there, and how it is learnt. */
export interface HintedTeaching {
  readonly penalty: AdvantagePenalty;
  readonly loss: PolicyLoss;
}

/** By the teacher's likeliest tokens, or by its opinion of those that were sampled. */
export function hintedTeaching(options: HintedTeachingOptions): HintedTeaching {
  return options.topk === 0
    ? { penalty: opinions(options), loss: policyLoss("importance_sampling") }
    : likeliest(options);
}

type ReadAnswer = (datum: RolloutDatum) => Promise<HintedReading>;

function reader(
  { teacher, promptOf, maxLength }: HintedTeachingOptions,
  { groups, signal }: PenaltyContext,
): ReadAnswer {
  return async ({ group }) => ({ teacher, prompt: await promptOf(groups[group]!.index), maxLength, signal });
}

/** Each token is worth what the teacher thinks more of it than the student. */
function opinions(options: HintedTeachingOptions): AdvantagePenalty {
  return {
    apply: async (data, context) => {
      const read = reader(options, context);
      const answers = await Promise.all(data.map(async (datum) => hintedLogprobs(datum, await read(datum))));
      const sums = { advantage: 0, teacher: 0, student: 0, tokens: 0 };
      for (const [index, { advantages, logprobs }] of data.entries()) {
        advantages.fill(0);
        for (const [position, teacher] of answers[index]!.logprobs.entries()) {
          if (teacher === undefined) continue;
          const student = logprobs[position]!;
          advantages[position] = Math.fround(teacher) - student;
          sums.advantage += advantages[position]!;
          sums.teacher += teacher;
          sums.student += student;
          sums.tokens += 1;
        }
      }
      return {
        ...(sums.tokens > 0 && {
          "sdft/mean_advantage": sums.advantage / sums.tokens,
          "sdft/mean_teacher_lp": sums.teacher / sums.tokens,
          "sdft/mean_student_lp": sums.student / sums.tokens,
        }),
        ...counts(answers),
      };
    },
  };
}

function likeliest(options: HintedTeachingOptions): HintedTeaching {
  const { topk, skipTokens, isReverse } = options;
  const soft = new WeakMap<RolloutDatum, SoftDatum>();
  return {
    penalty: {
      apply: async (data, context) => {
        const read = reader(options, context);
        const answers = await Promise.all(
          data.map(async (datum) => hintedTargets(datum, { ...(await read(datum)), topk, skipTokens })),
        );
        for (const [index, { targets }] of answers.entries()) {
          const { input, targetTokens } = data[index]!;
          soft.set(data[index]!, { datum: softTargetDatum(input, topk, targets, targetTokens), targets });
        }
        const learnt = answers.flatMap(({ targets }) => targets);
        const entropy = learnt.reduce((sum, { distribution }) => sum + distribution.entropy, 0);
        return {
          ...counts(answers),
          "sdft/topk": topk,
          "sdft/total_completion_tokens": answers.reduce((sum, { tokens }) => sum + tokens, 0),
          "sdft/total_completion_positions": learnt.length,
          ...(learnt.length > 0 && { "sdft/mean_teacher_entropy": entropy / learnt.length }),
        };
      },
    },
    loss: {
      name: isReverse ? "reverse_kl" : "cross_entropy",
      forwardBackward: (training, data, requestOptions) => {
        const taught = data.map((datum) => soft.get(datum)!);
        const targets = taught.map(({ datum }) => datum);
        const pass = isReverse
          ? training.forwardBackwardCustom(targets, reverseKlLoss, requestOptions)
          : training.forwardBackward(targets, "cross_entropy", requestOptions);
        const answer = pass.then((output) => ({
          ...output,
          lossFnOutputs: ofSampledTokens(output, topk),
          metrics: { ...output.metrics, ...(!isReverse && forwardKl(taught, output)) },
        }));
        // Whoever awaits it hears of it.
        answer.catch(() => {});
        return answer;
      },
      measure: (outputs) =>
        meanMetrics(
          outputs.map(({ metrics }) =>
            Object.fromEntries(Object.entries(metrics).filter(([name]) => name.startsWith("sdft/"))),
          ),
        ),
    },
  };
}

interface SoftDatum {
  readonly datum: Datum;
  readonly targets: readonly SoftTarget[];
}

/** Cross-entropy less the teacher's entropy is the forward KL. */
function forwardKl(taught: readonly SoftDatum[], { metrics }: ForwardBackwardOutput): Record<string, number> {
  const learnt = taught.flatMap(({ targets }) => targets);
  const entropy = learnt.reduce((sum, { distribution }) => sum + distribution.entropy, 0);
  return learnt.length === 0 || metrics["loss:sum"] === undefined
    ? {}
    : { "sdft/forward_kl_mean": (metrics["loss:sum"] - entropy) / learnt.length };
}

/** Of all targets, those that were sampled stand last. */
function ofSampledTokens({ lossFnOutputs }: ForwardBackwardOutput, topk: number) {
  const columns = topk + 1;
  return lossFnOutputs.map(({ logprobs, ...others }) => {
    const all = logprobs!.toDense().data;
    const data = Float32Array.from({ length: all.length / columns }, (_, row) => all[row * columns + topk]!);
    return { ...others, logprobs: new TensorData({ dtype: "float32", data, shape: [data.length] }) };
  });
}

function counts(answers: readonly { readonly isCut: boolean }[]): Record<string, number> {
  return {
    "sdft/teacher_truncated_count": answers.filter(({ isCut }) => isCut).length,
    "sdft/num_datums": answers.length,
  };
}
