import { encodeSampleResponse } from "../../src/wire/protobuf.js";
import { sampleResponse } from "../protocol/client.js";
import { type ProtocolServer, startProtocolServer } from "../support/protocol-server.js";

export const SAMPLED_TOKENS = [101, 7, 65_535];
export const SAMPLED_LOGPROBS = [-0.5, -0.25, -0.125];

const response = sampleResponse(SAMPLED_TOKENS.length);
const RESPONSE = {
  ...response,
  sequences: response.sequences.map((sequence) => ({
    ...sequence,
    tokens: Int32Array.from(SAMPLED_TOKENS),
    logprobs: Float32Array.from(SAMPLED_LOGPROBS),
  })),
};

/** A Tinker server that answers each sample with the same tokens, after one "try again". */
export async function samplingServer(): Promise<ProtocolServer> {
  const server = await startProtocolServer({ cors: true });
  server.accept("POST /api/v1/asample", [
    { json: { type: "try_again", queue_state: "active" } },
    { bytes: encodeSampleResponse(RESPONSE) },
  ]);
  return server;
}
