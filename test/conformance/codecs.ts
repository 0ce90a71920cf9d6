/** How each JSON type is made, written and read by us: the conversion of names for most, codecs of their own for a few. */
import {
  endpoints,
  fromWireJson,
  ModelInput,
  modelInputField,
  type TensorData,
  tensorFromJson,
  tensorToJson,
  toWireJson,
} from "../../src/wire/index.js";
import { passFromJson, passToJson } from "../support/pass-json.js";
import { chunks, datum, forwardBackwardRequest, modelInput, sampleRequest, tensor } from "./messages.js";
import { integer, type Make, text } from "./random.js";
import { adamParams, dimuonParams, requests, shapes } from "./shapes.js";

export interface Codec {
  readonly make: Make<unknown>;
  write(value: unknown): unknown;
  read(json: unknown): unknown;
}

const named = (make: Make<unknown>): Codec => ({ make, write: toWireJson, read: fromWireJson });

const chunkCodec = (make: Make<unknown>): Codec => ({
  make,
  write: (chunk) => {
    const written = modelInputField.write(ModelInput.from({ chunks: [chunk as never] }), "input");
    return (written as { chunks: unknown[] }).chunks[0];
  },
  read: (json) => modelInputField.read({ chunks: [json] }, "input").chunks[0],
});

/** Both are parts of a request, so they are read and written inside one. */
const inRequest = (data: unknown[], rest: object = {}) =>
  passFromJson({
    forward_backward_input: { data, loss_fn: "custom", ...rest },
    model_id: "m",
    seq_id: 1,
  });

type InputBody = { forward_backward_input?: { data: unknown[] }; forward_input?: unknown };
const requestInput = (request: unknown): unknown => {
  const body = passToJson(request as ReturnType<typeof inRequest>) as InputBody;
  return body.forward_backward_input ?? body.forward_input;
};

const special: Record<string, Codec> = {
  ModelInput: {
    make: modelInput(true),
    write: (value) => modelInputField.write(value as ModelInput, "input"),
    read: (json) => modelInputField.read(json, "input"),
  },
  EncodedTextChunk: chunkCodec(chunks.EncodedTextChunk),
  ImageChunk: chunkCodec(chunks.ImageChunk),
  ImageAssetPointerChunk: chunkCodec(chunks.ImageAssetPointerChunk),
  DmelChunk: chunkCodec(chunks.DmelChunk),
  TensorDataModel: {
    make: tensor("finite"),
    write: (value) => tensorToJson(value as TensorData),
    read: (json) => tensorFromJson(json, "tensor"),
  },
  DatumModel: {
    make: datum("json"),
    write: (value) => {
      const request = { ...inRequest([]), data: [value as never] };
      return (requestInput(request) as { data: unknown[] }).data[0];
    },
    read: (json) => inRequest([json]).data[0],
  },
  ForwardBackwardInputModel: {
    make: forwardBackwardRequest("json"),
    write: requestInput,
    read: (json) => passFromJson({ forward_backward_input: json, model_id: "m", seq_id: 1 }),
  },
  SampleRequest: {
    make: sampleRequest,
    write: (value) => endpoints.sample.request.write(value as never),
    // The generators know no bounds, which the table would ask for.
    read: (json) => {
      const { prompt, target_prompt_logprobs: targets, ...rest } = json as Record<string, unknown>;
      return {
        ...(fromWireJson(rest) as object),
        prompt: modelInputField.read(prompt, "prompt"),
        ...(targets !== undefined &&
          targets !== null && { targetPromptLogprobs: tensorFromJson(targets, "targets") }),
      };
    },
  },
  OptimStepRequest: named((random) => ({
    ...(random.chance(0.5) ? { adamParams: adamParams(random) } : { optimizerParams: dimuonParams(random) }),
    modelId: text(random),
    seqId: integer(random),
    type: "optim_step",
  })),
  OptimParamsBase: named((random) => ({ type: text(random), someValue: integer(random) })),
  OptimizerConfigBase: named((random) => ({ type: text(random), someValue: integer(random) })),
  SessionHeartbeatResponse: named(() => ({ type: "session_heartbeat" })),
  GetBillingUsageRequest: named((random) => {
    const hour = random.integer(0, 1_000_000);
    const at = (hours: number) => new Date(hours * 3_600_000).toISOString().replace(".000", "");
    return { startingOn: at(hour), endingBefore: at(hour + random.integer(1, 336)) };
  }),
  GetCurrentCheckpointStorageUsageRequest: named((random) => ({ projectId: text(random) })),
};

/** Requests are written by the table, as the clients do it. */
const written = Object.entries(requests).flatMap(([name, endpoint]): [string, Codec][] => {
  if (!Object.hasOwn(shapes, name)) return [];
  const write = (value: unknown) => endpoint.request.write(value as never);
  return [[name, { make: shapes[name as keyof typeof shapes], write, read: fromWireJson }]];
});

export const codecs: Readonly<Record<string, Codec>> = {
  ...Object.fromEntries(Object.entries(shapes).map(([name, make]) => [name, named(make)])),
  ...Object.fromEntries(written),
  ...special,
};
