import { isRecord } from "../wire/reading.js";
import type { ProviderMetadata } from "./specification.js";

/** The name under which answers carry what this provider adds. */
export const PROVIDER = "tinkerts";

/** Tokens read and sampled for an answer: `providerMetadata.tinkerts` of a result and of each of its steps. */
export interface AnswerMetadata {
  /** Tokens of the prompt; undefined if it has images. */
  readonly promptTokens?: readonly number[] | undefined;
  readonly tokens: readonly number[];
  /** Logprob of each token when it was sampled; undefined if the server sent none. */
  readonly logprobs?: readonly number[] | undefined;
  readonly stopReason: string;
}

/** Reads the metadata that this provider added to an answer; undefined for answers of other providers. */
export function readAnswerMetadata(providerMetadata: unknown): AnswerMetadata | undefined {
  const found = isRecord(providerMetadata) ? providerMetadata[PROVIDER] : undefined;
  return isRecord(found) && Array.isArray(found["tokens"]) ? (found as unknown as AnswerMetadata) : undefined;
}

/** A tool call as the model wrote it, so that the next prompt repeats it token for token. */
export interface WrittenCall {
  /** The format's own id of the call. */
  readonly id?: string | undefined;
  readonly arguments: string;
}

export function callMetadata({ id, arguments: written }: WrittenCall): ProviderMetadata {
  return { [PROVIDER]: { ...(id !== undefined && { id }), arguments: written } };
}

export function readCallMetadata(providerOptions: unknown): Partial<WrittenCall> {
  const found = isRecord(providerOptions) ? providerOptions[PROVIDER] : undefined;
  if (!isRecord(found)) return {};
  const { id, arguments: written } = found;
  return {
    ...(typeof id === "string" && { id }),
    ...(typeof written === "string" && { arguments: written }),
  };
}
