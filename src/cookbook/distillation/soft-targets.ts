import { TinkerError } from "../../errors.js";
import { Datum, type ModelInput, type TopkLogprobs } from "../../wire/index.js";
import type { TeacherSampler } from "./teacher.js";

/** The likeliest tokens at a position with their logprobs, likeliest first. */
export type Candidates = NonNullable<TopkLogprobs[number]>;

/** Candidates as a distribution over themselves alone. */
export interface Distribution {
  readonly tokens: readonly number[];
  readonly probabilities: Float32Array;
  readonly entropy: number;
}

/** What is learnt at one position. */
export interface SoftTarget {
  readonly position: number;
  readonly distribution: Distribution;
  /** What the position counts. */
  readonly weight: number;
}

/** What a teacher would have written at each token of a sequence, its `topk` likeliest tokens; nothing for the first. */
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

/** Shares the whole probability out among the first `topk` candidates. */
export function renormalized(candidates: Candidates, topk: number): Distribution {
  const kept = candidates.slice(0, topk).filter(([, logprob]) => logprob > Number.NEGATIVE_INFINITY);
  const logprobs = logSoftmax(kept.map(([, logprob]) => logprob));
  return {
    tokens: kept.map(([token]) => token),
    probabilities: Float32Array.from(logprobs, Math.exp),
    entropy: -logprobs.reduce((sum, logprob) => sum + Math.exp(logprob) * logprob, 0),
  };
}

/** Finite numbers as the logarithms of a distribution. */
export function logSoftmax(values: readonly number[]): readonly number[] {
  const highest = Math.max(...values);
  const logTotal = Math.log(values.reduce((sum, value) => sum + Math.exp(value - highest), 0));
  return values.map((value) => value - highest - logTotal);
}

/**
 * The data of `cross_entropy` with `topk` targets for each token of the input; positions that are not named weigh 0. With
 * `beside`, a token of weight 0 stands behind them in each position, so that its logprob is known too.
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

/** What a teacher makes of a datum with one target for each token. */
export interface TaughtDatum {
  readonly datum: Datum;
  /** Of the teacher over its candidates, each position by its weight. */
  readonly entropy: number;
  readonly weight: number;
  /** How many positions are learnt. */
  readonly positions: number;
}

/** The datum with the teacher's likeliest tokens instead of the one that stands there; weights stay what they are. */
export async function taughtDatum(
  { modelInput, lossFnInputs }: Datum,
  {
    teacher,
    topk,
    signal,
  }: { teacher: Pick<TeacherSampler, "sample">; topk: number; signal?: AbortSignal | undefined },
): Promise<TaughtDatum> {
  const sequence = modelInput.appendInt(Number(lossFnInputs["targetTokens"]!.data.at(-1)));
  const likeliest = await likeliestTokens(teacher, sequence, topk, signal);
  const targets: SoftTarget[] = [];
  for (const [position, weight] of lossFnInputs["weights"]!.toDense().data.entries()) {
    // Those of the next token: there is none for the first.
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
