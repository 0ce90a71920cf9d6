import { ValidationError } from "../../errors.js";
import type { FutureKind } from "../endpoints/endpoint.js";
import { checkObject, subfield } from "../fields/check-keys.js";
import type { Field } from "../fields/fields.js";
import { camelToSnake } from "../json-keys.js";
import { isRecord, protobuf, readAnswer, shortTypeName } from "../reading.js";
import { modelInputField, modelInputToJson } from "../sampling/model-input-json.js";
import { tensorsFromJson, tensorToJson } from "../tensors/tensor-json.js";
import { Datum, type DatumInit } from "./datum.js";
import type { LossFnOutput } from "./losses.js";
import type { ForwardBackwardOutput } from "./training-types.js";

/** A datum as JSON carries it; read without the checks a datum of our own gets. */
export const datumField: Field<Datum> = {
  presence: "required",
  check: (given, path) => (given instanceof Datum ? given : new Datum(given as DatumInit, path)),
  read(json, path) {
    checkObject(json, path);
    return Datum.received({
      modelInput: modelInputField.read(json["model_input"], subfield(path, "modelInput")),
      lossFnInputs: tensorsFromJson(json["loss_fn_inputs"], subfield(path, "lossFnInputs")),
    });
  },
  write(datum, path) {
    if (datum.modelInputSpans !== undefined) {
      throw new ValidationError(
        subfield(path, "modelInputSpans"),
        `${path} says where its tokens came from, which only servers with protobuf can be told`,
      );
    }
    const inputs: Record<string, unknown> = {};
    const inputsPath = subfield(path, "lossFnInputs");
    for (const [key, tensor] of Object.entries(datum.lossFnInputs)) {
      // Servers that want JSON are the ones that may not know sparse tensors.
      inputs[camelToSnake(key)] = tensorToJson(tensor.toDense(), "refuse", subfield(inputsPath, key));
    }
    return { model_input: modelInputToJson(datum.modelInput), loss_fn_inputs: inputs };
  },
};

/** What becomes of a pass; its result comes as protobuf where the server has it. */
export function passFuture(requestType: string): FutureKind<ForwardBackwardOutput> {
  return {
    requestType,
    fromJson: forwardBackwardOutputFromJson,
    toJson: forwardBackwardOutputToJson,
    fromBytes: async (bytes) => (await protobuf()).decodeForwardBackwardOutput(bytes),
  };
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
    checkObject(json, "body");
    const body = json;
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
