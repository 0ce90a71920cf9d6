import { ValidationError } from "../errors.js";
import { Datum } from "./datum.js";
import { describe } from "./describe.js";
import { camelToSnake, snakeToCamel } from "./json-keys.js";
import type { LossFnOutput } from "./losses.js";
import { modelInputFromJson, modelInputToJson } from "./model-input-json.js";
import { isRecord, readAnswer, shortTypeName } from "./reading.js";
import { tensorsFromJson, tensorToJson } from "./tensor-json.js";
import type { ForwardBackwardOutput, ForwardBackwardRequest } from "./training-types.js";

/** The body for servers without protobuf: of `/forward_backward`, or of `/forward` when only the forward pass runs. */
export function forwardBackwardRequestToJson(request: ForwardBackwardRequest): Record<string, unknown> {
  const input: Record<string, unknown> = {
    data: request.data.map((datum, index) => datumToJson(datum, `data[${index}]`)),
    loss_fn: request.lossFn,
  };
  if (request.lossFnConfig !== undefined)
    input["loss_fn_config"] = convertKeys(request.lossFnConfig, camelToSnake);
  return {
    [request.forwardOnly ? "forward_input" : "forward_backward_input"]: input,
    model_id: request.modelId,
    seq_id: request.seqId,
  };
}

function datumToJson(datum: Datum, field: string): Record<string, unknown> {
  if (datum.modelInputSpans !== undefined) {
    throw new ValidationError(
      `${field}.modelInputSpans`,
      `${field} says where its tokens came from, which only servers with protobuf can be told`,
    );
  }
  const inputs: Record<string, unknown> = {};
  for (const [key, tensor] of Object.entries(datum.lossFnInputs)) {
    // Servers that want JSON are the ones that may not know sparse tensors.
    inputs[camelToSnake(key)] = tensorToJson(tensor.toDense(), "refuse", `${field}.lossFnInputs.${key}`);
  }
  return { model_input: modelInputToJson(datum.modelInput), loss_fn_inputs: inputs };
}

/** Reads either body as a server gets it; what cannot be read is a ValidationError. Datums are not checked further. */
export function forwardBackwardRequestFromJson(json: unknown): ForwardBackwardRequest {
  const body = requireRecord(json, "body");
  const forwardOnly = body["forward_input"] !== undefined;
  const inputKey = forwardOnly ? "forward_input" : "forward_backward_input";
  const input = requireRecord(body[inputKey], inputKey);
  const { data, loss_fn: lossFn, loss_fn_config: lossFnConfig } = input as Record<string, unknown>;
  if (!Array.isArray(data))
    throw new ValidationError("data", `data must be a list of datums, got ${describe(data)}`);
  return {
    modelId: requireText(body["model_id"], "model_id"),
    seqId: typeof body["seq_id"] === "number" ? body["seq_id"] : 0,
    data: data.map((datum, index) => datumFromJson(datum, `data[${index}]`)),
    lossFn: requireText(lossFn, "loss_fn"),
    forwardOnly,
    ...(isRecord(lossFnConfig) && {
      lossFnConfig: convertKeys(lossFnConfig as Record<string, number | string>, snakeToCamel),
    }),
  };
}

function datumFromJson(json: unknown, field: string): Datum {
  const datum = requireRecord(json, field);
  return Datum.received({
    modelInput: modelInputFromJson(datum["model_input"], `${field}.modelInput`),
    lossFnInputs: tensorsFromJson(datum["loss_fn_inputs"], `${field}.lossFnInputs`),
  });
}

export function forwardBackwardOutputToJson(output: ForwardBackwardOutput): Record<string, unknown> {
  return {
    loss_fn_output_type: output.lossFnOutputType,
    loss_fn_outputs: output.lossFnOutputs.map((record) => {
      const fields: Record<string, unknown> = {};
      for (const [key, tensor] of Object.entries(record))
        fields[camelToSnake(key)] = tensorToJson(tensor, "null");
      return fields;
    }),
    metrics: output.metrics,
  };
}

export function forwardBackwardOutputFromJson(json: unknown): ForwardBackwardOutput {
  return readAnswer("ForwardBackwardOutput", () => {
    const body = requireRecord(json, "body");
    const outputs = Array.isArray(body["loss_fn_outputs"]) ? body["loss_fn_outputs"] : [];
    const metrics: Record<string, number> = {};
    for (const [key, value] of Object.entries(isRecord(body["metrics"]) ? body["metrics"] : {})) {
      metrics[key] = typeof value === "number" ? value : Number.NaN;
    }
    return {
      lossFnOutputType: shortTypeName(String(body["loss_fn_output_type"] ?? "")),
      lossFnOutputs: outputs.map(
        (record, index): LossFnOutput => tensorsFromJson(record, `lossFnOutputs[${index}]`),
      ),
      metrics,
    };
  });
}

function convertKeys<T>(
  record: Readonly<Record<string, T>>,
  convert: (key: string) => string,
): Record<string, T> {
  return Object.fromEntries(Object.entries(record).map(([key, value]) => [convert(key), value]));
}

function requireRecord(value: unknown, field: string): Record<string, unknown> {
  if (isRecord(value)) return value;
  throw new ValidationError(field, `${field} must be an object, got ${describe(value)}`);
}

function requireText(value: unknown, field: string): string {
  if (typeof value === "string" && value !== "") return value;
  throw new ValidationError(field, `${field} must be a non-empty string, got ${describe(value)}`);
}
