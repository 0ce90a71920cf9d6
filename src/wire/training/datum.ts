import { ValidationError } from "../../errors.js";
import * as f from "../fields/index.js";
import { snakeToCamel } from "../json-keys.js";
import { type ModelInput, type ModelInputLike, modelInputField } from "../sampling/model-input.js";
import { sparseTensorOf, type TensorData, type TensorLike, tensorOf } from "../tensors/tensor-data.js";
import { LOSS_INPUT_DTYPES, type LossFnInputsLike, type LossInputName } from "./losses.js";

/** Says where a run of tokens came from: the prompt of a sampled sequence, or what was sampled. */
export interface ProvenanceSpan {
  readonly type: "prompt" | "sampled";
  /** `SampledSequence.sequenceId` of the sequence in question. */
  readonly sequenceId: string;
  /** Position of the run within that prompt or sequence; 0. */
  readonly offset?: number | undefined;
  readonly length: number;
}

/** Parts that a datum is made from. */
export interface DatumInit<L extends string = string> {
  readonly modelInput: ModelInputLike;
  readonly lossFnInputs?: LossFnInputsLike<L> | undefined;
  /** Runs that cover `modelInput` without gaps, in order. */
  readonly modelInputSpans?: readonly ProvenanceSpan[] | undefined;
  /** Runs that cover `lossFnInputs.targetTokens` without gaps, in order. */
  readonly lossFnInputSpans?: readonly ProvenanceSpan[] | undefined;
}

/** One training example as it may be given; for a known loss its inputs are checked by the compiler. */
export type DatumLike<L extends string = string> = Datum | DatumInit<L>;

/** Inputs with one row per position of the model input. */
const PER_POSITION_KEYS = ["targetTokens", "weights", "advantages", "logprobs"] as const;
const SPARSE_KEYS: ReadonlySet<string> = new Set(["targetTokens", "weights"]);

interface DatumParts {
  readonly modelInput: ModelInput;
  readonly lossFnInputs: Readonly<Record<string, TensorData>>;
  readonly modelInputSpans?: readonly ProvenanceSpan[] | undefined;
  readonly lossFnInputSpans?: readonly ProvenanceSpan[] | undefined;
}

/** One training example: what the model reads and what the loss needs. Checked when it is made. */
export class Datum {
  readonly modelInput: ModelInput;
  readonly lossFnInputs: Readonly<Record<string, TensorData>>;
  readonly modelInputSpans: readonly ProvenanceSpan[] | undefined;
  readonly lossFnInputSpans: readonly ProvenanceSpan[] | undefined;

  constructor(init: DatumInit, field = "") {
    f.checkObject(init, field || "datum");
    const parts = datumInit.check(init, field);
    this.modelInput = parts.modelInput;
    this.lossFnInputs = parts.lossFnInputs;
    this.modelInputSpans = parts.modelInputSpans;
    this.lossFnInputSpans = parts.lossFnInputSpans;
    checkDatum(this, field);
  }

  /** Errors name the datum by its index in the batch, where one is given. */
  static from(value: DatumLike, index?: number): Datum {
    if (value instanceof Datum) return value;
    return new Datum(value, index === undefined ? "" : `data[${index}]`);
  }

  /** Takes what came over the wire without the checks a request of our own gets; see `checkDatum`. */
  static received(parts: DatumParts): Datum {
    return Object.assign(Object.create(Datum.prototype) as Datum, parts);
  }

  /** A copy that says where its tokens came from; the runs must cover each field exactly. */
  withProvenance(spans: {
    readonly modelInput: readonly ProvenanceSpan[];
    readonly lossFnInputs: readonly ProvenanceSpan[];
  }): Datum {
    return new Datum({
      modelInput: this.modelInput,
      lossFnInputs: this.lossFnInputs,
      modelInputSpans: spans.modelInput,
      lossFnInputSpans: spans.lossFnInputs,
    });
  }
}

function toInputs(given: unknown, path: string): Readonly<Record<string, TensorData>> {
  f.checkObject(given, path);
  const inputs: Record<string, TensorData> = {};
  for (const [key, value] of Object.entries(given))
    if (value !== undefined) inputs[key] = convertInput(key, value as TensorLike, f.subfield(path, key));
  return inputs;
}

function convertInput(key: string, value: TensorLike, field: string): TensorData {
  const dtype = Object.hasOwn(LOSS_INPUT_DTYPES, key) ? LOSS_INPUT_DTYPES[key as LossInputName] : undefined;
  const meant = dtype === undefined ? meantInput(key) : undefined;
  if (meant !== undefined) throw new ValidationError(field, `unknown field ${field}; did you mean ${meant}?`);
  if (dtype === undefined && (Array.isArray(value) || typeof value === "number")) {
    throw new ValidationError(
      field,
      `${field} is not an input with a known dtype: give a typed array or a TensorData instead`,
    );
  }
  const explicit = typeof value === "object" && value !== null && "data" in value;
  return SPARSE_KEYS.has(key) && !explicit
    ? sparseTensorOf(value, { dtype, field })
    : tensorOf(value, { dtype, field });
}

/** The input a misspelt or snake_case key was meant to be; undefined for a new name, such as `refLogprobs`. */
function meantInput(key: string): string | undefined {
  const camel = snakeToCamel(key);
  if (camel !== key) return camel;
  const meant = f.closestName(key, Object.keys(LOSS_INPUT_DTYPES));
  if (meant === undefined) return undefined;
  const capitalised = meant[0]!.toUpperCase() + meant.slice(1);
  const buildsOn =
    key.endsWith(capitalised) || (key.startsWith(meant) && /[A-Z0-9]/.test(key[meant.length] ?? ""));
  return buildsOn ? undefined : meant;
}

/** Refuses a datum that a server would refuse; errors begin with `field`, for example `data[3]`. */
export function checkDatum(datum: Datum, field = ""): void {
  const inputsField = f.subfield(field, "lossFnInputs");
  let rows = datum.modelInput.isText ? datum.modelInput.length : undefined;
  let rowsOf = datum.modelInput.isText ? "the model input" : "";
  for (const key of PER_POSITION_KEYS) {
    const tensor = datum.lossFnInputs[key];
    // A scalar stands for every position: inputs of stored custom losses may be one.
    if (tensor === undefined || tensor.shape.length === 0) continue;
    const found = tensor.shape[0]!;
    rows ??= found;
    rowsOf ||= key;
    if (found !== rows) {
      const path = f.subfield(inputsField, key);
      throw new ValidationError(path, `${path} must have ${rows} rows, as ${rowsOf} has, got ${found}`);
    }
  }
  for (const [key, tensor] of Object.entries(datum.lossFnInputs)) {
    checkValues(key, tensor, f.subfield(inputsField, key));
  }
  checkProvenance(datum, field);
}

/** Plain loops, one for each kind of array: a callback for each value would cost more than all of the encoding. */
function checkValues(key: string, { data, dtype }: TensorData, field: string): void {
  if (dtype === "float32") {
    for (let index = 0; index < data.length; index++) {
      if (!Number.isNaN(data[index])) continue;
      throw new ValidationError(`${field}[${index}]`, `${field}[${index}] is NaN`);
    }
  } else if (key === "targetTokens") {
    for (let index = 0; index < data.length; index++) {
      if (data[index]! >= 0) continue;
      throw f.wrongValue(`${field}[${index}]`, "a token id (a non-negative integer)", data[index]);
    }
  }
}

function checkProvenance(datum: Datum, field: string): void {
  const { modelInputSpans, lossFnInputSpans } = datum;
  if (modelInputSpans === undefined && lossFnInputSpans === undefined) return;
  const inputPath = f.subfield(field, "modelInputSpans");
  const lossPath = f.subfield(field, "lossFnInputSpans");
  if (modelInputSpans === undefined || lossFnInputSpans === undefined) {
    throw new ValidationError(
      modelInputSpans === undefined ? inputPath : lossPath,
      `${inputPath} and ${lossPath} must be given together, or neither`,
    );
  }
  checkSpans(modelInputSpans, inputPath, datum.modelInput.length);
  const targets = datum.lossFnInputs["targetTokens"];
  checkSpans(lossFnInputSpans, lossPath, targets?.shape.length === 1 ? targets.shape[0] : undefined);
}

function checkSpans(spans: readonly ProvenanceSpan[], field: string, positions: number | undefined): void {
  const covered = spans.reduce((total, { length }) => total + length, 0);
  if (positions !== undefined && covered !== positions)
    throw new ValidationError(field, `${field} must cover ${positions} positions, got ${covered}`);
}

const spans = f.list(
  f.message({
    type: f.oneOf("prompt", "sampled"),
    sequenceId: f.text,
    offset: f.optional(f.nonNegativeInteger),
    length: f.nonNegativeInteger,
  } satisfies f.FieldsOf<ProvenanceSpan>),
);

const datumInit = f.message({
  modelInput: modelInputField,
  lossFnInputs: f.withDefault(f.customField(toInputs), {}),
  modelInputSpans: f.optional(spans),
  lossFnInputSpans: f.optional(spans),
});
