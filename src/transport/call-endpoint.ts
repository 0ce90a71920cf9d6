import { type Endpoint, encodeRequest, type GivenMessage, type Shape } from "../wire/index.js";
import type { HttpClient } from "./http-client.js";
import type { APIRequest } from "./types.js";

/** Settings that a caller of an endpoint may add to its request. */
export type SendOptions = Omit<APIRequest, "method" | "path" | "pool" | "query" | "json" | "body">;

/** The HTTP request that carries a message to an endpoint. */
export function requestTo<S extends Shape>(
  endpoint: Pick<Endpoint<S>, "method" | "path" | "pool" | "tag" | "request">,
  message: GivenMessage<S>,
  options: SendOptions = {},
): APIRequest {
  return { ...options, ...encodeRequest(endpoint, message) };
}

/** Sends a message to an endpoint and reads its answer. */
export async function callEndpoint<S extends Shape, Answer>(
  http: HttpClient,
  endpoint: Endpoint<S, Answer>,
  message: GivenMessage<S>,
  options: SendOptions = {},
): Promise<Answer> {
  const response = await http.exchange({ ...requestTo(endpoint, message, options), expect: "json" });
  return endpoint.answer.fromJson(response.json());
}
