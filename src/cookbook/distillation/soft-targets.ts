import { TinkerError } from "../../errors.js";
import * as f from "../../wire/fields/index.js";
import { Datum, type ModelInput, type TopkLogprobs } from "../../wire/index.js";
import type { TeacherSampler } from "./teacher.js";

/** The likeliest tokens at a position with their logprobs, likeliest first. */
export type Candidates = NonNullable<TopkLogprobs[number]>;

/** Normalizes candidates to a distribution. */
export interface Distribution {
  readonly tokens: readonly number[];
  readonly probabilities: Float32Array;
  readonly entropy: number;
}

/** Target distribution at one position. */
export interface SoftTarget {
  readonly position: number;
  readonly distribution: Distribution;
  /** Weight of the position in the loss. */
  readonly weight: number;
}

/** The teacher's `topk` likeliest tokens at each position of a sequence; none for the first. */
export async function likeliestTokens(
  teacher: Pick<TeacherSampler, "sample">,
  sequence: ModelInput,
  topk: number,
  signal?: AbortSignal | undefined,
): Promise<TopkLogprobs> {
  const request = {
    prompt: sequence,
    numSamples: 1,
    samplingParams: { maxTokens: 1 },
    includePromptLogprobs: true,
    topkPromptLogprobs: topk,
  };
  const { topkPromptLogprobs } = await teacher.sample(request, { signal });
  if (topkPromptLogprobs === null) {
    throw new TinkerError(
      "The server returned no topkPromptLogprobs: it cannot say what a teacher thinks of a text.",
    );
  }
  if (topkPromptLogprobs.length !== sequence.length) {
    throw new TinkerError(
      `The server returned topkPromptLogprobs of ${topkPromptLogprobs.length} tokens for ${sequence.length}.`,
    );
  }
  return topkPromptLogprobs;
}

/** Distributes the whole probability over the first `topk` candidates. */
export function renormalized(candidates: Candidates, topk: number): Distribution {
  const kept = candidates.slice(0, topk).filter(([, logprob]) => logprob > Number.NEGATIVE_INFINITY);
  const logprobs = logSoftmax(kept.map(([, logprob]) => logprob));
  return {
    tokens: kept.map(([token]) => token),
    probabilities: Float32Array.from(logprobs, Math.exp),
    entropy: -logprobs.reduce((sum, logprob) => sum + Math.exp(logprob) * logprob, 0),
  };
}

/** Normalizes finite numbers to the logarithms of a distribution. */
export function logSoftmax(values: readonly number[]): readonly number[] {
  const highest = Math.max(...values);
  const logTotal = Math.log(values.reduce((sum, value) => sum + Math.exp(value - highest), 0));
  return values.map((value) => value - highest - logTotal);
}

/**
 * A datum for `cross_entropy` with `topk` targets for each token of the input; other positions have weight 0. With
 * `beside`, each position gets one more token of weight 0 at the end, to learn its logprob too.
 */
export function softTargetDatum(
  input: ModelInput,
  topk: number,
  targets: Iterable<SoftTarget>,
  beside?: Int32Array,
): Datum {
  const columns = beside === undefined ? topk : topk + 1;
  const shape = [input.length, columns];
  const targetTokens = new Int32Array(input.length * columns);
  const weights = new Float32Array(input.length * columns);
  for (const { position, distribution, weight } of targets) {
    for (const [rank, token] of distribution.tokens.entries()) {
      targetTokens[position * columns + rank] = token;
      weights[position * columns + rank] = weight * distribution.probabilities[rank]!;
    }
  }
  beside?.forEach((token, position) => {
    targetTokens[position * columns + topk] = token;
  });
  return new Datum({
    modelInput: input,
    lossFnInputs: { targetTokens: { data: targetTokens, shape }, weights: { data: weights, shape } },
  });
}

/** A datum with soft targets from a teacher, and measures of them. */
export interface DistillationDatum {
  readonly datum: Datum;
  /** Entropy of the teacher over its candidates, weighted by position. */
  readonly entropy: number;
  readonly weight: number;
  /** Number of positions that are trained on. */
  readonly positions: number;
}

/** Where soft targets come from. */
export interface SoftTargetOptions {
  /** Sampler of the teacher. */
  readonly teacher: Pick<TeacherSampler, "sample">;
  /** Number of likeliest tokens at each position. */
  readonly topk: number;
  readonly signal?: AbortSignal | undefined;
}

/** The option table of `distillationDatum`. */
export const SOFT_TARGET_OPTIONS = f.optionTable({
  teacher: f.option(f.having<SoftTargetOptions["teacher"]>("a sampler", "sample"), "sampler of the teacher"),
  topk: f.option(f.positiveInteger, "likeliest tokens at each position"),
  signal: f.option(f.optional(f.abortSignal), "ends the call"),
} satisfies f.OptionsOf<SoftTargetOptions>);

/** Replaces the target of each token by the teacher's likeliest tokens; weights are kept. */
export async function distillationDatum(
  { modelInput, lossFnInputs }: Datum,
  options: SoftTargetOptions,
): Promise<DistillationDatum> {
  const { teacher, topk, signal } = SOFT_TARGET_OPTIONS.check(options, "distillationDatum");
  const sequence = modelInput.appendInt(Number(lossFnInputs["targetTokens"]!.data.at(-1)));
  const likeliest = await likeliestTokens(teacher, sequence, topk, signal);
  const targets: SoftTarget[] = [];
  for (const [position, weight] of lossFnInputs["weights"]!.toDense().data.entries()) {
    // Candidates for the next token: the first token has none.
    const candidates = likeliest[position + 1];
    if (!(weight > 0) || candidates === null || candidates === undefined) continue;
    targets.push({ position, weight, distribution: renormalized(candidates, topk) });
  }
  return {
    datum: softTargetDatum(modelInput, topk, targets),
    entropy: targets.reduce((sum, { distribution, weight }) => sum + weight * distribution.entropy, 0),
    weight: targets.reduce((sum, { weight }) => sum + weight, 0),
    positions: targets.length,
  };
}
