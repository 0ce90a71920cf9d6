import { ValidationError } from "../../errors.js";
import type { FutureKind } from "../endpoints/endpoint.js";
import { checkObject, subfield } from "../fields/check-keys.js";
import type { Field } from "../fields/fields.js";
import { camelToSnake, convertKeys, toWireJson } from "../json-keys.js";
import { isRecord, protobuf, readAnswer, shortTypeName } from "../reading.js";
import { modelInputField } from "../sampling/model-input.js";
import { tensorsFromJson, tensorToJson } from "../tensors/tensor-json.js";
import { Datum, type DatumInit } from "./datum.js";
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
        `${path} has provenance, which only servers with protobuf accept`,
      );
    }
    const inputs: Record<string, unknown> = {};
    for (const [key, tensor] of Object.entries(datum.lossFnInputs)) {
      // Servers that take only JSON may not know sparse tensors.
      inputs[camelToSnake(key)] = tensorToJson(tensor.toDense(), `${path}.lossFnInputs.${key}`);
    }
    return { model_input: modelInputField.write(datum.modelInput, path), loss_fn_inputs: inputs };
  },
};

/** The result of a pass, as protobuf if the server supports it. */
export function passFuture(requestType: string): FutureKind<ForwardBackwardOutput> {
  return {
    requestType,
    fromJson: outputFromJson,
    toJson: toWireJson,
    fromBytes: async (bytes) => (await protobuf()).decodeForwardBackwardOutput(bytes, { inPlace: true }),
  };
}

function outputFromJson(json: unknown): ForwardBackwardOutput {
  return readAnswer("ForwardBackwardOutput", () => {
    checkObject(json, "body");
    const { lossFnOutputType, lossFnOutputs, metrics } = convertKeys(json, "camel");
    const outputs = Array.isArray(lossFnOutputs) ? lossFnOutputs : [];
    const values = Object.entries(isRecord(metrics) ? metrics : {}).map(([name, value]) => {
      return [name, typeof value === "number" ? value : Number.NaN] as const;
    });
    return {
      lossFnOutputType: shortTypeName(String(lossFnOutputType ?? "")),
      lossFnOutputs: outputs.map((record, index) => tensorsFromJson(record, `lossFnOutputs[${index}]`)),
      metrics: Object.fromEntries(values),
    };
  });
}
