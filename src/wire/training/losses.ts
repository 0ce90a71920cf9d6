import { ValidationError } from "../../errors.js";
import { checkObject, subfield, unknownField, wrongValue } from "../fields/check-keys.js";
import { closestName } from "../fields/describe.js";
import type { Field } from "../fields/fields.js";
import { convertKeys, snakeToCamel } from "../json-keys.js";
import type { TensorData, TensorLike } from "../tensors/tensor-data.js";
import type { TensorDtype } from "../tensors/tensor-values.js";

/** The dtype of each loss input. */
export const LOSS_INPUT_DTYPES = {
  targetTokens: "int64",
  weights: "float32",
  advantages: "float32",
  /** Logprobs of the tokens when they were sampled. */
  logprobs: "float32",
  /** Lowest and highest ratio, token by token. */
  clipLowThreshold: "float32",
  clipHighThreshold: "float32",
  sequenceRatioMask: "float32",
} as const satisfies Record<string, TensorDtype>;

/** The name of a loss input. */
export type LossInputName = keyof typeof LOSS_INPUT_DTYPES;

interface LossDescription {
  readonly inputs: Readonly<Partial<Record<LossInputName, "required" | "optional">>>;
  /** The settings of the loss with their defaults; undefined where the server alone knows the default. */
  readonly config: Readonly<Record<string, number | undefined>>;
  /** True where the full list of inputs and settings is not published. */
  readonly isOpen: boolean;
}

const RATIO_INPUTS = {
  targetTokens: "required",
  logprobs: "required",
  advantages: "required",
  weights: "optional",
} as const;
const CLIP_INPUTS = { clipLowThreshold: "optional", clipHighThreshold: "optional" } as const;
const CLIP_CONFIG = { clipLowThreshold: 0.8, clipHighThreshold: 1.2 } as const;

/**
 * Every loss we know: what it takes, and how it may be set. `ratio` is `exp(logprob - sampled logprob)`; what a sum adds for a
 * token is multiplied by its weight, 1 where there is none.
 */
export const LOSSES = {
  /** `-sum(logprob)`; `[N, K]` targets and weights are soft targets. */
  cross_entropy: { inputs: { targetTokens: "required", weights: "optional" }, config: {}, isOpen: false },
  /** `-sum(ratio * advantage)` */
  importance_sampling: { inputs: RATIO_INPUTS, config: {}, isOpen: false },
  /** `-sum(min(ratio * advantage, clip(ratio) * advantage))` */
  ppo: { inputs: { ...RATIO_INPUTS, ...CLIP_INPUTS }, config: CLIP_CONFIG, isOpen: false },
  /** `-sum(stopGradient(clip(ratio)) * logprob * advantage)` */
  cispo: { inputs: { ...RATIO_INPUTS, ...CLIP_INPUTS }, config: CLIP_CONFIG, isOpen: false },
  /** `-sum(logprob * advantage - beta / 2 * (logprob - sampled logprob)^2)` */
  dro: { inputs: RATIO_INPUTS, config: { beta: 0.05 }, isOpen: false },
  gspo: {
    inputs: { ...RATIO_INPUTS, ...CLIP_INPUTS, sequenceRatioMask: "optional" },
    config: { clipLowThreshold: undefined, clipHighThreshold: undefined },
    isOpen: true,
  },
  stable_reinforce: { inputs: {}, config: { klCoeff: undefined }, isOpen: true },
  /** A loss stored on the server; its inputs are the ones it was created with. */
  custom: { inputs: {}, config: {}, isOpen: true },
} as const satisfies Record<string, LossDescription>;

/** Clipping of the ratio of whole sequences, which varies far less than that of tokens. The paper's values. */
export const GSPO_CLIP = { clipLowThreshold: 1 - 3e-4, clipHighThreshold: 1 + 4e-4 } as const;

/** Defaults of the published losses. */
export const LOSS_CONFIG_DEFAULTS = { ...LOSSES.ppo.config, ...LOSSES.dro.config } as const;

type Losses = typeof LOSSES;

/** The losses these types know. */
export type LossFnName = keyof Losses;

/** The losses whose formula is published, which every Tinker server has. */
export type PublishedLoss = { [L in LossFnName]: Losses[L]["isOpen"] extends false ? L : never }[LossFnName];

type AnyConfig = Readonly<Record<string, number | string>>;
type AnyInputs = Readonly<Record<string, TensorLike>>;
type AnyOutputs = Readonly<Record<string, TensorData>>;

type KeysWith<T, V> = { [K in keyof T]: T[K] extends V ? K : never }[keyof T];
type KnownInputs<I> = { readonly [K in KeysWith<I, "required">]: TensorLike } & {
  readonly [K in KeysWith<I, "optional">]?: TensorLike | undefined;
};
type KnownConfig<C> = keyof C extends never
  ? Readonly<Record<string, never>>
  : { readonly [K in keyof C]?: number | undefined };

/** The config of a loss: its own keys for a known one, anything for one these types do not know. */
export type LossFnConfig<L extends string = string> = L extends PublishedLoss
  ? KnownConfig<Losses[L]["config"]>
  : L extends LossFnName
    ? { readonly [K in keyof Losses[L]["config"]]?: number } & AnyConfig
    : AnyConfig;

/** The `lossFnInputs` of a loss: its own keys for a known one, anything for one these types do not know. */
export type LossFnInputsLike<L extends string = string> = L extends "gspo" | PublishedLoss
  ? KnownInputs<Losses[L]["inputs"]>
  : AnyInputs;

/**
 * Tensors that a loss returns for one datum, by field name in camelCase: `logprobs`, one for each target token and in the shape
 * of `targetTokens`, for the usual losses, and other outputs that a server adds.
 */
export type LossFnOutput<L extends string = string> = AnyOutputs &
  (L extends PublishedLoss ? { readonly logprobs: TensorData } : unknown);

/** The metrics of a pass, by the server's own names; every published loss reports its sum. */
export type LossMetrics<L extends string = string> = Readonly<Record<string, number>> &
  (L extends PublishedLoss ? { readonly "loss:sum": number } : unknown);

/** Description of a loss; undefined for one that is not in this table. */
export function describeLoss(lossFn: string): LossDescription | undefined {
  return Object.hasOwn(LOSSES, lossFn) ? LOSSES[lossFn as LossFnName] : undefined;
}

/** The losses a server with nothing but the published formulas has. */
export const PUBLISHED_LOSSES = (Object.keys(LOSSES) as LossFnName[]).filter(
  (name): name is PublishedLoss => !LOSSES[name].isOpen,
);

/** Refuses what cannot be the name of a loss, and names that were probably meant to be a known one. */
export function checkLossFnName(lossFn: unknown, field = "lossFn"): asserts lossFn is string {
  if (typeof lossFn !== "string" || lossFn === "") throw wrongValue(field, "the name of a loss", lossFn);
  if (Object.hasOwn(LOSSES, lossFn)) return;
  const plain = (name: string) => name.replaceAll("_", "");
  const meant = closestName(lossFn, Object.keys(LOSSES).map(plain));
  const known = Object.keys(LOSSES).find((name) => plain(name) === meant);
  if (known !== undefined)
    throw new ValidationError(field, `unknown ${field} "${lossFn}"; did you mean ${known}?`);
}

/** Refuses keys a known loss does not have and values that are neither a finite number nor a text. */
export function checkLossFnConfig(
  lossFn: string,
  config: unknown,
  field = "config",
): Readonly<Record<string, number | string>> | undefined {
  if (config === undefined) return undefined;
  checkObject(config, field);
  const checked: Record<string, number | string> = {};
  for (const [key, value] of Object.entries(config)) {
    if (value === undefined) continue;
    checkConfigKey(key, describeLoss(lossFn), field);
    if (typeof value !== "string" && !(typeof value === "number" && Number.isFinite(value)))
      throw wrongValue(subfield(field, key), "a finite number or a text", value);
    checked[key] = value;
  }
  return checked;
}

function checkConfigKey(key: string, loss: LossDescription | undefined, field: string): void {
  const known = Object.keys(loss?.config ?? {});
  if (known.includes(key)) return;
  if (loss !== undefined && (!loss.isOpen || closestName(key, known) !== undefined))
    throw unknownField(key, known, field);
  const camel = snakeToCamel(key);
  if (camel === key) return;
  const path = subfield(field, key);
  throw new ValidationError(path, `unknown field ${path}; did you mean ${camel}?`);
}

/** Refuses a datum that lacks an input which a known loss cannot do without. */
export function checkLossFnInputs(
  lossFn: string,
  inputs: Readonly<Record<string, unknown>>,
  field: string,
): void {
  const known = Object.entries(describeLoss(lossFn)?.inputs ?? {});
  const required = known.filter(([, presence]) => presence === "required").map(([name]) => name);
  const missing = required.find((name) => inputs[name] === undefined);
  if (missing === undefined) return;
  const path = subfield(field, missing);
  throw new ValidationError(path, `${path} is missing: ${lossFn} needs ${required.join(", ")}`);
}

/** Settings of a loss on the wire. */
export const lossConfigField: Field<Readonly<Record<string, number | string>>> = {
  presence: "required",
  check: (given, path) => checkLossFnConfig("", given, path)!,
  read(json, path) {
    checkObject(json, path);
    return convertKeys(json as Record<string, number | string>, "camel");
  },
  write: (config) => convertKeys(config, "snake"),
};
