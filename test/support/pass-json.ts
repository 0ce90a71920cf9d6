/** A pass over a batch as servers without protobuf get it: the body of `/forward_backward`, or of `/forward`. */
import { endpoints, type ForwardBackwardRequest } from "../../src/wire/index.js";

export function passToJson(request: ForwardBackwardRequest): Record<string, unknown> {
  const { modelId, seqId, data, lossFn, lossFnConfig } = request;
  const input = { data, lossFn, lossFnConfig };
  return request.forwardOnly
    ? endpoints.forward.request.write({ modelId, seqId, forwardInput: input })
    : endpoints.forwardBackward.request.write({ modelId, seqId, forwardBackwardInput: input });
}

/** Reads either body as a server does. */
export function passFromJson(json: unknown): ForwardBackwardRequest {
  const forwardOnly = typeof json === "object" && json !== null && "forward_input" in json;
  if (forwardOnly) {
    const { forwardInput, seqId = 0, ...rest } = endpoints.forward.request.read(json, "");
    return { ...rest, ...forwardInput, seqId, forwardOnly };
  }
  const { forwardBackwardInput, seqId = 0, ...rest } = endpoints.forwardBackward.request.read(json, "");
  return { ...rest, ...forwardBackwardInput, seqId, forwardOnly };
}
