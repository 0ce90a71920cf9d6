/**
 * The codecs that stand on the generated code and the protobuf library. That library is more than half of what
 * importing the SDK would load, so the way here is `await import("../wire/protobuf.js")` wherever start-up matters.
 */
export { decodeForwardBackwardOutput, encodeForwardBackwardOutput } from "./forward-backward-output-proto.js";
export { decodeForwardBackwardRequest } from "./forward-backward-request-proto.js";
export { decodeSampleResponse, encodeSampleResponse } from "./sample-response-proto.js";
