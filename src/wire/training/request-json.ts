import { endpoints } from "../endpoints/index.js";
import { isRecord } from "../reading.js";
import type { ForwardBackwardRequest } from "./training-types.js";

/** The body for servers without protobuf: of `/forward_backward`, or of `/forward` when only the forward pass runs. */
export function forwardBackwardRequestToJson(request: ForwardBackwardRequest): Record<string, unknown> {
  const { modelId, seqId, data, lossFn, lossFnConfig } = request;
  const input = { data, lossFn, lossFnConfig };
  return request.forwardOnly
    ? endpoints.forward.request.write({ modelId, seqId, forwardInput: input })
    : endpoints.forwardBackward.request.write({ modelId, seqId, forwardBackwardInput: input });
}

/** Reads either body as a server gets it. */
export function forwardBackwardRequestFromJson(json: unknown): ForwardBackwardRequest {
  const forwardOnly = isRecord(json) && json["forward_input"] !== undefined;
  const { modelId, seqId, input } = forwardOnly ? readForward(json) : readForwardBackward(json);
  return { modelId, seqId: seqId ?? 0, forwardOnly, ...input };
}

function readForward(json: unknown) {
  const { forwardInput: input, ...rest } = endpoints.forward.request.read(json, "");
  return { ...rest, input };
}

function readForwardBackward(json: unknown) {
  const { forwardBackwardInput: input, ...rest } = endpoints.forwardBackward.request.read(json, "");
  return { ...rest, input };
}

/** The digits of a sample request's number, also of one beyond 2^53, which `JSON.parse` has rounded; undefined beyond 2^63. */
export function exactSeqId(seqId: number, bodyText: string): string | undefined {
  if (Number.isSafeInteger(seqId)) return String(seqId);
  return /"seq_id"\s*:\s*(\d{1,19})\s*[,}]/.exec(bodyText)?.[1];
}
