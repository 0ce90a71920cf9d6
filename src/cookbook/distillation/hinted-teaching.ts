import { type Datum, type ForwardBackwardOutput, type ModelInput, TensorData } from "../../wire/index.js";
import { meanMetrics } from "../evaluation/statistics.js";
import {
  type AdvantagePenalty,
  type PenaltyContext,
  type PolicyLoss,
  policyLoss,
  type RolloutDatum,
  StoredLoss,
} from "../reinforcement/index.js";
import { type HintedReading, hintedLogprobs, hintedTargets } from "./hints.js";
import { reverseKlLoss, reverseKlMetrics, reverseKlOfDatum } from "./reverse-kl-loss.js";
import { type SoftTarget, softTargetDatum } from "./soft-targets.js";
import type { TeacherSampler } from "./teacher.js";

/** How a teacher that knows good answers trains a student that does not. */
export interface HintedTeachingOptions {
  readonly teacher: TeacherSampler;
  /** The teacher's prompt for the answers of a group, by the group's number. */
  readonly promptOf: (group: number) => Promise<ModelInput>;
  readonly maxLength: number | undefined;
  /** Number of the teacher's likeliest tokens to train on; 0: only its logprobs of the sampled tokens. */
  readonly topk: number;
  readonly isReverse: boolean;
  /** Number of tokens at the beginning of each answer that are not trained on. */
  readonly skipTokens: number;
}

/** A penalty that asks the teacher to score sampled answers, and a loss that trains on its scores. */
export interface HintedTeaching {
  readonly penalty: AdvantagePenalty;
  readonly loss: PolicyLoss;
}

/** Trains on the teacher's likeliest tokens, or on its logprobs of the sampled ones. */
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

/** A token's advantage is the teacher's logprob less the student's. */
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
  const stored = new StoredLoss(reverseKlOfDatum, {
    inputs: { logprobs: 2, weights: 2 },
    name: "reverse_kl",
  });
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
        const trained = answers.flatMap(({ targets }) => targets);
        const entropy = trained.reduce((sum, { distribution }) => sum + distribution.entropy, 0);
        return {
          ...counts(answers),
          "sdft/topk": topk,
          "sdft/total_completion_tokens": answers.reduce((sum, { tokens }) => sum + tokens, 0),
          "sdft/total_completion_positions": trained.length,
          ...(trained.length > 0 && { "sdft/mean_teacher_entropy": entropy / trained.length }),
        };
      },
    },
    loss: {
      name: isReverse ? "reverse_kl" : "cross_entropy",
      ...(isReverse && { prepare: (training) => stored.prepare(training) }),
      forwardBackward: (training, data, requestOptions) => {
        const taught = data.map((datum) => soft.get(datum)!);
        const targets = taught.map(({ datum }) => datum);
        const pass = isReverse
          ? training.forwardBackwardCustom(targets, stored.of(training) ?? reverseKlLoss, requestOptions)
          : training.forwardBackward(targets, "cross_entropy", requestOptions);
        const answer = pass.then((output) => ({
          ...output,
          lossFnOutputs: ofSampledTokens(output, topk),
          metrics: {
            ...(stored.of(training) === undefined ? output.metrics : reverseKlMetrics(output.metrics)),
            ...(!isReverse && forwardKl(taught, output)),
          },
        }));
        // The one who awaits it gets the error.
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

/** Cross-entropy minus the teacher's entropy is the forward KL. */
function forwardKl(taught: readonly SoftDatum[], { metrics }: ForwardBackwardOutput): Record<string, number> {
  const trained = taught.flatMap(({ targets }) => targets);
  const entropy = trained.reduce((sum, { distribution }) => sum + distribution.entropy, 0);
  return trained.length === 0 || metrics["loss:sum"] === undefined
    ? {}
    : { "sdft/forward_kl_mean": (metrics["loss:sum"] - entropy) / trained.length };
}

/** The sampled targets are the last of all targets. */
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
