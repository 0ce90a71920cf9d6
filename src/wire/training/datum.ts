import { ValidationError } from "../../errors.js";
import { checkKeys, checkObject, subfield } from "../fields/check-keys.js";
import { closestName } from "../fields/describe.js";
import { type FieldsOf, list, message, nonNegativeInteger, oneOf, optional, text } from "../fields/fields.js";
import { snakeToCamel } from "../json-keys.js";
import { ModelInput, type ModelInputLike } from "../sampling/model-input.js";
import { TensorData, type TensorLike } from "../tensors/tensor-data.js";
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

/** What a datum is made from. */
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

const DATUM_KEYS: ReadonlySet<string> = new Set([
  "modelInput",
  "lossFnInputs",
  "modelInputSpans",
  "lossFnInputSpans",
] satisfies (keyof DatumInit)[]);

/** Inputs with one row per position of the model input. */
const PER_POSITION_KEYS = ["targetTokens", "weights", "advantages", "logprobs"] as const;
const SPARSE_KEYS: ReadonlySet<string> = new Set(["targetTokens", "weights"]);

interface DatumParts {
  readonly modelInput: ModelInput;
  readonly lossFnInputs: Readonly<Record<string, TensorData>>;
  readonly modelInputSpans?: readonly ProvenanceSpan[] | undefined;
  readonly lossFnInputSpans?: readonly ProvenanceSpan[] | undefined;
}

/** Marks parts that came over the wire and are taken as they are. */
class ReceivedParts {
  readonly parts: DatumParts;
  constructor(parts: DatumParts) {
    this.parts = parts;
  }
}

/** One training example: what the model reads and what the loss needs. Checked when it is made. */
export class Datum {
  readonly modelInput: ModelInput;
  readonly lossFnInputs: Readonly<Record<string, TensorData>>;
  readonly modelInputSpans: readonly ProvenanceSpan[] | undefined;
  readonly lossFnInputSpans: readonly ProvenanceSpan[] | undefined;

  constructor(init: DatumInit, field?: string);
  /** @internal */
  constructor(init: ReceivedParts);
  constructor(init: DatumInit | ReceivedParts, field = "") {
    const parts = init instanceof ReceivedParts ? init.parts : convert(init, field);
    this.modelInput = parts.modelInput;
    this.lossFnInputs = parts.lossFnInputs;
    this.modelInputSpans = parts.modelInputSpans;
    this.lossFnInputSpans = parts.lossFnInputSpans;
    if (!(init instanceof ReceivedParts)) checkDatum(this, field);
  }

  /** Errors name the datum by its index in the batch, where one is given. */
  static from(value: DatumLike, index?: number): Datum {
    if (value instanceof Datum) return value;
    return new Datum(value, index === undefined ? "" : `data[${index}]`);
  }

  /** Takes what came over the wire without the checks a request of our own gets; see `checkDatum`. */
  static received(parts: DatumParts): Datum {
    return new Datum(new ReceivedParts(parts));
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

function convert(init: DatumInit, field: string): DatumParts {
  checkObject(init, field || "datum");
  checkKeys(init, DATUM_KEYS, field);
  const inputsField = subfield(field, "lossFnInputs");
  const inputs: unknown = init.lossFnInputs ?? {};
  checkObject(inputs, inputsField);
  const lossFnInputs: Record<string, TensorData> = {};
  for (const [key, value] of Object.entries(inputs)) {
    if (value === undefined) continue;
    lossFnInputs[key] = convertInput(key, value as TensorLike, subfield(inputsField, key));
  }
  return {
    modelInput: ModelInput.from(init.modelInput, subfield(field, "modelInput")),
    lossFnInputs,
    modelInputSpans: init.modelInputSpans,
    lossFnInputSpans: init.lossFnInputSpans,
  };
}

function convertInput(key: string, value: TensorLike, field: string): TensorData {
  const dtype = Object.hasOwn(LOSS_INPUT_DTYPES, key) ? LOSS_INPUT_DTYPES[key as LossInputName] : undefined;
  if (dtype === undefined) {
    const meant = meantInput(key);
    if (meant !== undefined)
      throw new ValidationError(field, `unknown field ${field}; did you mean ${meant}?`);
    if (Array.isArray(value) || typeof value === "number") {
      throw new ValidationError(
        field,
        `${field} is not an input with a known dtype: give a typed array or a TensorData instead`,
      );
    }
  }
  const explicit = typeof value === "object" && value !== null && "data" in value;
  return SPARSE_KEYS.has(key) && !explicit
    ? TensorData.sparse(value, { dtype, field })
    : TensorData.from(value, { dtype, field });
}

/** The input a misspelt or snake_case key was meant to be; undefined for a new name, such as `refLogprobs`. */
function meantInput(key: string): string | undefined {
  const camel = snakeToCamel(key);
  if (camel !== key) return camel;
  const meant = closestName(key, Object.keys(LOSS_INPUT_DTYPES));
  if (meant === undefined) return undefined;
  const capitalised = meant[0]!.toUpperCase() + meant.slice(1);
  const buildsOn =
    key.endsWith(capitalised) || (key.startsWith(meant) && /[A-Z0-9]/.test(key[meant.length] ?? ""));
  return buildsOn ? undefined : meant;
}

/** Refuses a datum that a server would refuse; errors begin with `field`, for example `data[3]`. */
export function checkDatum(datum: Datum, field = ""): void {
  const inputsField = subfield(field, "lossFnInputs");
  let rows: number | undefined;
  let rowsOf = "";
  if (datum.modelInput.isText) {
    rows = datum.modelInput.length;
    rowsOf = "the model input";
  }
  for (const key of PER_POSITION_KEYS) {
    const tensor = datum.lossFnInputs[key];
    // A scalar stands for every position: inputs of stored custom losses may be one.
    if (tensor === undefined || tensor.shape.length === 0) continue;
    const found = tensor.shape[0]!;
    rows ??= found;
    rowsOf ||= key;
    if (found !== rows) {
      const path = subfield(inputsField, key);
      throw new ValidationError(path, `${path} must have ${rows} rows, as ${rowsOf} has, got ${found}`);
    }
  }
  for (const [key, tensor] of Object.entries(datum.lossFnInputs)) {
    checkValues(key, tensor, subfield(inputsField, key));
  }
  checkProvenance(datum, field);
}

function checkValues(key: string, tensor: TensorData, field: string): void {
  const { data } = tensor;
  if (tensor.dtype === "float32") {
    for (let index = 0; index < data.length; index++) {
      if (Number.isNaN(data[index]))
        throw new ValidationError(`${field}[${index}]`, `${field}[${index}] is NaN`);
    }
  } else if (key === "targetTokens") {
    for (let index = 0; index < data.length; index++) {
      if (data[index]! >= 0) continue;
      const path = `${field}[${index}]`;
      throw new ValidationError(
        path,
        `${path} must be a token id (a non-negative integer), got ${data[index]}`,
      );
    }
  }
}

function checkProvenance(datum: Datum, field: string): void {
  const { modelInputSpans, lossFnInputSpans } = datum;
  if (modelInputSpans === undefined && lossFnInputSpans === undefined) return;
  const inputPath = subfield(field, "modelInputSpans");
  const lossPath = subfield(field, "lossFnInputSpans");
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

const span = message({
  type: oneOf("prompt", "sampled"),
  sequenceId: text,
  offset: optional(nonNegativeInteger),
  length: nonNegativeInteger,
} satisfies FieldsOf<ProvenanceSpan>);

function checkSpans(spans: readonly ProvenanceSpan[], field: string, positions: number | undefined): void {
  const covered = list(span)
    .check(spans, field)
    .reduce((total, { length }) => total + length, 0);
  if (positions !== undefined && covered !== positions)
    throw new ValidationError(field, `${field} must cover ${positions} positions, got ${covered}`);
}
