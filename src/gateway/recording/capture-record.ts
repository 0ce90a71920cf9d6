import { shortNumbers } from "../record-json.js";
import type { SampledTurn } from "../session-record.js";

/** Keys and values that say what a sample belongs to, as in the Python cookbook's scopes. */
export type CaptureScope = Readonly<Record<string, string | number | boolean | null>>;

/** The file of the Python cookbook's capture records. */
export const CAPTURE_FILE = "sample.jsonl";
/** The folder of that file. */
export const CAPTURE_FOLDER = "capture";

/** Keys of the Python cookbook's addresses, and the fields of a scope that they stand for. */
const ADDRESS_KEYS: Readonly<Record<string, string>> = {
  run: "run_id",
  attempt: "run_attempt",
  split: "split",
  iter: "iteration",
  group: "group_idx",
  traj: "traj_idx",
  purpose: "purpose",
};
const WHOLE_NUMBERS = new Set(["run_attempt", "iteration", "group_idx", "traj_idx"]);
const MAX_INT32 = 2 ** 31 - 1;

/** The scope of a session: its tags of the form KEY=VALUE, as in an address. */
export function scopeOfTags(tags: readonly string[]): CaptureScope {
  const scope: Record<string, string | number> = {};
  for (const tag of tags) {
    const at = tag.indexOf("=");
    if (at < 1) continue;
    const [short, value] = [tag.slice(0, at), tag.slice(at + 1)];
    const key = ADDRESS_KEYS[short] ?? short;
    if (!WHOLE_NUMBERS.has(key)) scope[key] = value;
    else if (/^\d{1,10}$/.test(value) && Number(value) <= MAX_INT32) scope[key] = Number(value);
  }
  return scope;
}

/** One call of `sample`, with what identifies it. */
export interface CapturedSample {
  readonly scope: CaptureScope;
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly samplingSessionId: string;
  /** Tells the samples of one sampling session apart. */
  readonly number: number;
  /** Names the weights: a path, a model, or the step of a run. */
  readonly policyVersion: string | undefined;
  readonly baseModel?: string | undefined;
  readonly prompt: readonly number[] | undefined;
  readonly promptLength: number;
  readonly numSamples?: number | undefined;
  readonly samplingParams?: object | undefined;
  readonly latencyMs?: number | undefined;
  readonly sequences: readonly Pick<SampledTurn, "tokens" | "logprobs" | "stopReason">[];
  readonly error?: string | undefined;
  readonly status?: "ok" | "error" | "cancelled" | undefined;
}

/** A sample as a line of the Python cookbook's `capture/sample.jsonl`, which its store reads as rows. */
export function captureRecord(sample: CapturedSample): object {
  const { prompt, baseModel, samplingParams, latencyMs, error } = sample;
  return {
    kind: "sample",
    scope: sample.scope,
    created_at: sample.at / 1000,
    num_samples: sample.numSamples ?? sample.sequences.length,
    sampling_session_id: sample.samplingSessionId,
    seq_id: sample.number,
    policy_version: sample.policyVersion ?? null,
    ...(baseModel !== undefined && { base_model: baseModel }),
    ...(prompt && { prompt_tokens: prompt }),
    prompt_length: sample.promptLength,
    ...(samplingParams && { sampling_params: samplingParams }),
    samples: sample.sequences.map(({ tokens, logprobs, stopReason }) => ({
      tokens: Array.from(tokens),
      logprobs: shortNumbers(logprobs),
      stop_reason: stopReason,
    })),
    status: sample.status ?? "ok",
    ...(latencyMs !== undefined && { latency_sec: latencyMs / 1000 }),
    ...(error !== undefined && { error }),
  };
}
