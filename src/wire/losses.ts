import { ValidationError } from "../errors.js";
import { checkObject, subfield, unknownField } from "./check-keys.js";
import { closestName, describe } from "./describe.js";
import type { TensorData, TensorLike } from "./tensor-data.js";
import type { TensorDtype } from "./tensor-values.js";

type RatioInputs = {
  readonly targetTokens: TensorLike;
  /** Logprobs of the tokens when they were sampled. */
  readonly logprobs: TensorLike;
  readonly advantages: TensorLike;
};

type ClipConfig = {
  /** Lowest ratio, for example 0.8. */
  readonly clipLowThreshold?: number | undefined;
  /** Highest ratio, for example 1.2. */
  readonly clipHighThreshold?: number | undefined;
};

type PerTokenClip = {
  readonly clipLowThreshold?: TensorLike | undefined;
  readonly clipHighThreshold?: TensorLike | undefined;
};

/** One logprob for each target token, in the shape of `targetTokens`. */
type LogprobOutputs = { readonly logprobs: TensorData };

// Types, not interfaces: only a type can be handed on as a plain record.
type NoConfig = Readonly<Record<string, never>>;
type AnyConfig = Readonly<Record<string, number | string>>;
type AnyInputs = Readonly<Record<string, TensorLike>>;
type AnyOutputs = Readonly<Record<string, TensorData>>;

/** Every loss the types know, with its inputs, its config and what it returns. Other losses pass as plain strings. */
export interface LossFns {
  /** `-sum(weights * logprob)`; `[N, K]` targets and weights are soft targets. */
  readonly cross_entropy: {
    readonly inputs: { readonly targetTokens: TensorLike; readonly weights?: TensorLike | undefined };
    readonly config: NoConfig;
    readonly outputs: LogprobOutputs;
  };
  /** `-sum(ratio * advantage)` */
  readonly importance_sampling: {
    readonly inputs: RatioInputs;
    readonly config: NoConfig;
    readonly outputs: LogprobOutputs;
  };
  /** `-sum(min(ratio * advantage, clip(ratio) * advantage))` */
  readonly ppo: {
    readonly inputs: RatioInputs & PerTokenClip;
    readonly config: ClipConfig;
    readonly outputs: LogprobOutputs;
  };
  /** `-sum(stopGradient(clip(ratio)) * logprob * advantage)` */
  readonly cispo: {
    readonly inputs: RatioInputs & PerTokenClip;
    readonly config: ClipConfig;
    readonly outputs: LogprobOutputs;
  };
  /** `-sum(logprob * advantage - beta / 2 * (logprob - sampled logprob)^2)` */
  readonly dro: {
    readonly inputs: RatioInputs;
    readonly config: { readonly beta?: number | undefined };
    readonly outputs: LogprobOutputs;
  };
  readonly gspo: {
    readonly inputs: RatioInputs & PerTokenClip & { readonly sequenceRatioMask?: TensorLike | undefined };
    readonly config: ClipConfig & AnyConfig;
    readonly outputs: AnyOutputs;
  };
  readonly stable_reinforce: {
    readonly inputs: AnyInputs;
    readonly config: { readonly klCoeff?: number } & AnyConfig;
    readonly outputs: AnyOutputs;
  };
  /** A loss stored on the server; its inputs are the ones it was created with. */
  readonly custom: { readonly inputs: AnyInputs; readonly config: AnyConfig; readonly outputs: AnyOutputs };
}

export type LossFnName = keyof LossFns;

/** The config of a loss: its own keys for a known one, anything for one these types do not know. */
export type LossFnConfig<L extends string = string> = L extends LossFnName ? LossFns[L]["config"] : AnyConfig;

/** The `lossFnInputs` of a loss: its own keys for a known one, anything for one these types do not know. */
export type LossFnInputsLike<L extends string = string> = L extends LossFnName
  ? LossFns[L]["inputs"]
  : AnyInputs;

/**
 * What a loss returns for one datum, by field name in camelCase: `logprobs` for the usual losses, and whatever else a
 * server adds.
 */
export type LossFnOutput<L extends string = string> = AnyOutputs &
  (L extends LossFnName ? LossFns[L]["outputs"] : unknown);

/** The dtype a loss input has on the wire. */
export const LOSS_INPUT_DTYPES: Readonly<Record<string, TensorDtype>> = Object.freeze({
  targetTokens: "int64",
  weights: "float32",
  advantages: "float32",
  logprobs: "float32",
  clipLowThreshold: "float32",
  clipHighThreshold: "float32",
  sequenceRatioMask: "float32",
});

interface ConfigRule {
  readonly keys: readonly string[];
  /** True where the full list of keys is not published: only near misses of known keys are refused. */
  readonly open: boolean;
}

const CONFIG_RULES: Readonly<Record<LossFnName, ConfigRule>> = {
  cross_entropy: { keys: [], open: false },
  importance_sampling: { keys: [], open: false },
  ppo: { keys: ["clipLowThreshold", "clipHighThreshold"], open: false },
  cispo: { keys: ["clipLowThreshold", "clipHighThreshold"], open: false },
  dro: { keys: ["beta"], open: false },
  gspo: { keys: ["clipLowThreshold", "clipHighThreshold"], open: true },
  stable_reinforce: { keys: ["klCoeff"], open: true },
  custom: { keys: [], open: true },
};

/** Refuses keys a known loss does not have and values that are neither a finite number nor a text. */
export function checkLossFnConfig(
  lossFn: string,
  config: unknown,
  field = "lossFnConfig",
): Readonly<Record<string, number | string>> | undefined {
  if (typeof lossFn !== "string" || lossFn === "") {
    throw new ValidationError("lossFn", `lossFn must be the name of a loss, got ${describe(lossFn)}`);
  }
  if (config === undefined) return undefined;
  checkObject(config, field);
  const checked: Record<string, number | string> = {};
  const rule = Object.hasOwn(CONFIG_RULES, lossFn) ? CONFIG_RULES[lossFn as LossFnName] : undefined;
  for (const [key, value] of Object.entries(config)) {
    if (value === undefined) continue;
    checkConfigKey(key, rule, field);
    if (typeof value !== "string" && !(typeof value === "number" && Number.isFinite(value))) {
      const path = subfield(field, key);
      throw new ValidationError(path, `${path} must be a finite number or a text, got ${describe(value)}`);
    }
    checked[key] = value;
  }
  return checked;
}

function checkConfigKey(key: string, rule: ConfigRule | undefined, field: string): void {
  if (rule?.keys.includes(key)) return;
  if (rule !== undefined && (!rule.open || closestName(key, rule.keys) !== undefined)) {
    throw unknownField(key, rule.keys, field);
  }
  if (/_[a-z]/.test(key)) {
    const path = subfield(field, key);
    const camel = key.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
    throw new ValidationError(path, `unknown field ${path}; did you mean ${camel}?`);
  }
}

const RATIO_INPUTS = ["targetTokens", "logprobs", "advantages"];

const REQUIRED_INPUTS: Readonly<Record<LossFnName, readonly string[]>> = {
  cross_entropy: ["targetTokens"],
  importance_sampling: RATIO_INPUTS,
  ppo: RATIO_INPUTS,
  cispo: RATIO_INPUTS,
  dro: RATIO_INPUTS,
  gspo: RATIO_INPUTS,
  stable_reinforce: [],
  custom: [],
};

/** Refuses a datum that lacks an input which a known loss cannot do without. */
export function checkLossFnInputs(
  lossFn: string,
  inputs: Readonly<Record<string, unknown>>,
  field: string,
): void {
  if (!Object.hasOwn(REQUIRED_INPUTS, lossFn)) return;
  const required = REQUIRED_INPUTS[lossFn as LossFnName];
  const missing = required.find((name) => inputs[name] === undefined);
  if (missing === undefined) return;
  const path = subfield(field, missing);
  throw new ValidationError(path, `${path} is missing: ${lossFn} needs ${required.join(", ")}`);
}
