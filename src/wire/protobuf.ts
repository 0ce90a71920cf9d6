/**
 * The codecs that stand on the generated code and the protobuf library. That library is more than half of what
 * importing the SDK would load, so the way here is `await import("./protobuf.js")` wherever start-up matters.
 */

export { decodeSampleResponse, encodeSampleResponse } from "./sampling/sample-response-proto.js";
export {
  decodeForwardBackwardOutput,
  encodeForwardBackwardOutput,
} from "./training/forward-backward-output-proto.js";
export {
  decodeForwardBackwardRequest,
  peekRequest,
  readForwardBackwardRequest,
} from "./training/forward-backward-request-proto.js";
