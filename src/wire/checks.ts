import { ValidationError } from "../errors.js";
import { checkObject, subfield } from "./check-keys.js";
import { describe } from "./describe.js";
import { ModelInput, type ModelInputLike } from "./model-input.js";
import {
  boolean,
  checkOptions,
  fraction,
  integer,
  nonNegative,
  nonNegativeInteger,
  positiveInteger,
  type Rules,
  rule,
  text,
} from "./option-rules.js";
import type { SampleRequest, SamplingParams } from "./sampling-types.js";
import { TensorData, type TensorLike } from "./tensor-data.js";
import type {
  AdamOptimizerConfig,
  AdamParams,
  DimuonOptimizerConfig,
  DimuonParams,
  LoraConfig,
  OptimizerConfig,
  OptimParams,
  OtherOptimParams,
} from "./training-types.js";

const ADAM_DEFAULTS: Required<AdamParams> = {
  learningRate: 1e-4,
  beta1: 0.9,
  beta2: 0.95,
  eps: 1e-12,
  weightDecay: 0,
  gradClipNorm: 0,
};

const ADAM_RULES: Rules<AdamParams> = {
  learningRate: nonNegative,
  beta1: fraction,
  beta2: fraction,
  eps: nonNegative,
  weightDecay: nonNegative,
  gradClipNorm: nonNegative,
};

/** Returns all six values: servers differ in what they assume for one that is left out. */
export function checkAdamParams(params: AdamParams, field = "adamParams"): Required<AdamParams> {
  return { ...ADAM_DEFAULTS, ...checkOptions(params, ADAM_RULES, field) };
}

const finite = rule("a finite number", (value) => typeof value === "number" && Number.isFinite(value));

const DIMUON_RULES: Rules<DimuonParams> = {
  type: text,
  learningRate: nonNegative,
  gradClipNorm: finite,
  beta1: fraction,
};

/** Checks by family: without `type` the parameters are Adam's; a family nobody knows here passes as it is. */
export function checkOptimParams(params: OptimParams, field = "optimParams"): OptimParams {
  checkObject(params, field);
  if (!("type" in params) || params.type === undefined) return checkAdamParams(params as AdamParams, field);
  text(params.type, subfield(field, "type"));
  if (params.type === "dimuon") {
    const checked = checkOptions(params, DIMUON_RULES, field, ["learningRate"]);
    return { gradClipNorm: 0, beta1: 0.9, ...checked };
  }
  return params as OtherOptimParams;
}

export function checkOptimizerConfig(config: OptimizerConfig, field = "optimizerConfig"): OptimizerConfig {
  checkObject(config, field);
  text(config.type, subfield(field, "type"));
  if (config.type === "adamw") return checkOptions<AdamOptimizerConfig>(config, { type: text }, field);
  if (config.type !== "dimuon") return config;
  const version = rule("1", (value) => value === 1);
  return checkOptions<DimuonOptimizerConfig>(config, { type: text, version }, field);
}

const LORA_RULES: Rules<LoraConfig> = {
  rank: positiveInteger,
  seed: integer,
  trainUnembed: boolean,
  trainMlp: boolean,
  trainAttn: boolean,
};

/** Returns the config with its defaults; at least one kind of layer must be trained. */
export function checkLoraConfig(config: LoraConfig, field = "loraConfig"): LoraConfig {
  const checked = {
    trainUnembed: true,
    trainMlp: true,
    trainAttn: true,
    ...checkOptions(config, LORA_RULES, field, ["rank"]),
  };
  if (!checked.trainUnembed && !checked.trainMlp && !checked.trainAttn) {
    throw new ValidationError(
      field,
      `${field} trains nothing: set one of trainUnembed, trainMlp and trainAttn`,
    );
  }
  return checked;
}

const isStopText = (value: unknown) => typeof value === "string" && value !== "";
const isToken = (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0;

const SAMPLING_RULES: Rules<SamplingParams> = {
  maxTokens: positiveInteger,
  seed: integer,
  stop: rule("a text, a list of texts or a list of token ids", (value) => {
    if (isStopText(value)) return true;
    return Array.isArray(value) && (value.every(isStopText) || value.every(isToken));
  }),
  temperature: nonNegative,
  topK: rule("-1 or a positive integer", (value) => value === -1 || (isToken(value) && value !== 0)),
  topP: rule(
    "a number above 0 and at most 1",
    (value) => typeof value === "number" && value > 0 && value <= 1,
  ),
};

export function checkSamplingParams(params: SamplingParams, field = "samplingParams"): SamplingParams {
  return checkOptions(params, SAMPLING_RULES, field);
}

const anything = () => {};

const SAMPLE_RULES: Rules<SampleRequest> = {
  prompt: anything,
  numSamples: positiveInteger,
  samplingParams: anything,
  baseModel: text,
  modelPath: checkTinkerPath,
  samplingSessionId: text,
  seqId: nonNegativeInteger,
  promptLogprobs: boolean,
  topkPromptLogprobs: nonNegativeInteger,
  topkSampleLogprobs: nonNegativeInteger,
  targetPromptLogprobs: anything,
  promptAltTokensK: nonNegativeInteger,
  promptLogprobsLastN: positiveInteger,
  recordStabilityInfo: boolean,
};

/** A sample request as it may be given: the prompt as tokens, the targets as lists. */
export type SampleRequestLike = Omit<SampleRequest, "prompt" | "targetPromptLogprobs"> & {
  readonly prompt: ModelInputLike;
  readonly targetPromptLogprobs?: TensorLike | undefined;
};

export function checkSampleRequest(request: SampleRequestLike): SampleRequest {
  const fields = checkOptions(request as SampleRequest, SAMPLE_RULES, "");
  const prompt = ModelInput.from(request.prompt, "prompt");
  const checked: SampleRequest = {
    ...fields,
    prompt,
    samplingParams: checkSamplingParams(fields.samplingParams ?? {}),
    ...(request.targetPromptLogprobs !== undefined && {
      targetPromptLogprobs: checkTargets(request.targetPromptLogprobs, prompt),
    }),
  };
  const { promptLogprobsLastN: lastN } = checked;
  if (lastN !== undefined) {
    if (checked.promptLogprobs !== true) {
      throw new ValidationError(
        "promptLogprobsLastN",
        "promptLogprobsLastN needs prompt logprobs to be asked for",
      );
    }
    if (prompt.isText && lastN > prompt.length - 1) {
      throw new ValidationError(
        "promptLogprobsLastN",
        `promptLogprobsLastN must be at most ${prompt.length - 1}, the prompt's length less one, got ${lastN}`,
      );
    }
  }
  return checked;
}

function checkTargets(value: TensorLike, prompt: ModelInput): TensorData {
  const field = "targetPromptLogprobs";
  const tensor = TensorData.from(value, { dtype: "int64", field });
  if (tensor.shape.length !== 2 || (prompt.isText && tensor.shape[0] !== prompt.length - 1)) {
    const rows = prompt.isText ? `${prompt.length - 1}` : "prompt length - 1";
    const got = tensor.shape.join(", ");
    throw new ValidationError(field, `${field} must have the shape [${rows}, K], got [${got}]`);
  }
  for (let index = 0; index < tensor.data.length; index++) {
    if (tensor.data[index]! >= -1) continue;
    const path = `${field}[${index}]`;
    throw new ValidationError(path, `${path} must be a token id, or -1 for none, got ${tensor.data[index]}`);
  }
  return tensor;
}

/** Undefined means that nothing was said, and passes. */
export function checkTtlSeconds(ttlSeconds: number | undefined, field = "ttlSeconds"): void {
  if (ttlSeconds !== undefined) positiveInteger(ttlSeconds, field);
}

export function checkTinkerPath(path: unknown, field = "path"): void {
  if (typeof path === "string" && path.startsWith("tinker://") && path.length > "tinker://".length) return;
  throw new ValidationError(field, `${field} must begin with "tinker://", got ${describe(path)}`);
}
