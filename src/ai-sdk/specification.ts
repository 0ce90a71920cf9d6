/*
 * The AI SDK's language model, specification v3, as far as this model takes and gives it. Written down here, so that
 * nobody needs the AI SDK's packages to compile; a test keeps it assignable to theirs.
 */

type JsonValue = null | string | number | boolean | JsonValue[] | { [key: string]: JsonValue | undefined };

/** What a provider adds to answers, by the provider's name. */
export type ProviderMetadata = Record<string, { [key: string]: JsonValue | undefined }>;

interface WithOptions {
  readonly providerOptions?: Readonly<Record<string, Readonly<Record<string, unknown>>>> | undefined;
}

/** What a tool gave back, as the model is told. */
export type ToolResultOutput =
  | { readonly type: "text" | "error-text"; readonly value: string }
  | { readonly type: "json" | "error-json"; readonly value: unknown }
  | { readonly type: "execution-denied"; readonly reason?: string | undefined }
  | { readonly type: "content"; readonly value: readonly { readonly type: string }[] };

/** A piece of a message in a prompt. */
export type PromptPart = WithOptions &
  (
    | { readonly type: "text" | "reasoning"; readonly text: string }
    | { readonly type: "file"; readonly mediaType: string; readonly data: unknown }
    | {
        readonly type: "tool-call";
        readonly toolCallId: string;
        readonly toolName: string;
        readonly input: unknown;
      }
    | {
        readonly type: "tool-result";
        readonly toolCallId: string;
        readonly toolName: string;
        readonly output: ToolResultOutput;
      }
    | { readonly type: "tool-approval-response" }
  );

/** The conversation that is to be answered. */
export type Prompt = readonly (
  | { readonly role: "system"; readonly content: string }
  | { readonly role: "user" | "assistant" | "tool"; readonly content: readonly PromptPart[] }
)[];

/** A function of the caller's, or a tool of some provider's own. */
export type Tool =
  | {
      readonly type: "function";
      readonly name: string;
      readonly description?: string | undefined;
      readonly inputSchema: object | boolean;
    }
  | { readonly type: "provider"; readonly id: string; readonly name: string };

/** What the AI SDK asks of a model. */
export interface CallOptions extends WithOptions {
  readonly prompt: Prompt;
  readonly maxOutputTokens?: number | undefined;
  readonly temperature?: number | undefined;
  readonly stopSequences?: readonly string[] | undefined;
  readonly topP?: number | undefined;
  readonly topK?: number | undefined;
  readonly presencePenalty?: number | undefined;
  readonly frequencyPenalty?: number | undefined;
  readonly responseFormat?:
    | { readonly type: "text" }
    | {
        readonly type: "json";
        readonly schema?: object | boolean | undefined;
        readonly name?: string | undefined;
        readonly description?: string | undefined;
      }
    | undefined;
  readonly seed?: number | undefined;
  readonly tools?: readonly Tool[] | undefined;
  readonly toolChoice?:
    | { readonly type: "auto" | "none" | "required" }
    | { readonly type: "tool"; readonly toolName: string }
    | undefined;
  readonly abortSignal?: AbortSignal | undefined;
  readonly headers?: Readonly<Record<string, string | undefined>> | undefined;
  /** How much the model is to think; AI SDK 7 passes it on, specification v3 does not know it. */
  readonly reasoning?: string | undefined;
}

/** What of a call was not done as it was asked for. */
export type CallWarning =
  | { type: "unsupported"; feature: string; details?: string }
  | { type: "other"; message: string };

/** A call of a tool, with its arguments as JSON text. */
type ToolCallContent = {
  type: "tool-call";
  toolCallId: string;
  toolName: string;
  input: string;
  providerMetadata?: ProviderMetadata;
};

/** A piece of an answer. */
export type Content = { type: "text" | "reasoning"; text: string } | ToolCallContent;

/** Why an answer ended, in the AI SDK's words and in the server's. */
export interface FinishReason {
  unified: "stop" | "length" | "tool-calls" | "other";
  raw: string | undefined;
}

/** How many tokens were read and written. */
export interface Usage {
  inputTokens: {
    total: number;
    noCache: number;
    cacheRead: number;
    cacheWrite: undefined;
  };
  outputTokens: { total: number; text: number; reasoning: number };
}

/** What is known once an answer is whole. */
export interface Ending {
  finishReason: FinishReason;
  usage: Usage;
  providerMetadata: ProviderMetadata;
}

/** Which answer it is. */
export interface ResponseMetadata {
  id: string;
  timestamp: Date;
  modelId: string;
}

/** A whole answer. */
export interface GenerateResult extends Ending {
  content: Content[];
  warnings: CallWarning[];
  response: ResponseMetadata;
}

/** A piece of an answer as it comes. */
export type StreamPart =
  | { type: "stream-start"; warnings: CallWarning[] }
  | ({ type: "response-metadata" } & ResponseMetadata)
  | { type: "text-start" | "text-end" | "reasoning-start" | "reasoning-end"; id: string }
  | { type: "text-delta" | "reasoning-delta"; id: string; delta: string }
  | { type: "tool-input-start"; id: string; toolName: string }
  | { type: "tool-input-delta"; id: string; delta: string }
  | { type: "tool-input-end"; id: string }
  | ToolCallContent
  | ({ type: "finish" } & Ending)
  | { type: "error"; error: unknown };

/** An answer in pieces. */
export interface StreamResult {
  stream: ReadableStream<StreamPart>;
}
