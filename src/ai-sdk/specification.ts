/**
 * The AI SDK's language model, specification v3, as far as this model uses it. It is declared here so that compiling
 * does not need the AI SDK's packages; a test keeps it assignable to theirs.
 */

type JsonValue = null | string | number | boolean | JsonValue[] | { [key: string]: JsonValue | undefined };

/** Metadata that a provider adds to answers, by provider name. */
export type ProviderMetadata = Record<string, { [key: string]: JsonValue | undefined }>;

interface WithOptions {
  readonly providerOptions?: Readonly<Record<string, Readonly<Record<string, unknown>>>> | undefined;
}

/** Result of a tool, as the model reads it. */
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

/** Conversation that the model continues. */
export type Prompt = readonly (
  | { readonly role: "system"; readonly content: string }
  | { readonly role: "user" | "assistant" | "tool"; readonly content: readonly PromptPart[] }
)[];

/** A function of the caller, or a tool defined by a provider. */
export type ToolDefinition =
  | {
      readonly type: "function";
      readonly name: string;
      readonly description?: string | undefined;
      readonly inputSchema: object | boolean;
    }
  | { readonly type: "provider"; readonly id: string; readonly name: string };

/** Options of a call from the AI SDK to a model. */
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
  readonly tools?: readonly ToolDefinition[] | undefined;
  readonly toolChoice?:
    | { readonly type: "auto" | "none" | "required" }
    | { readonly type: "tool"; readonly toolName: string }
    | undefined;
  readonly abortSignal?: AbortSignal | undefined;
  readonly headers?: Readonly<Record<string, string | undefined>> | undefined;
  /** Reasoning effort; AI SDK 7 passes it, specification v3 does not define it. */
  readonly reasoning?: string | undefined;
}

/** Part of a call that was not carried out as requested. */
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

/** Token counts of a call: read and written. */
export interface Usage {
  inputTokens: {
    total: number;
    noCache: number;
    cacheRead: number;
    cacheWrite: undefined;
  };
  outputTokens: { total: number; text: number; reasoning: number };
}

/** Facts known once an answer is complete. */
export interface AnswerEnding {
  finishReason: FinishReason;
  usage: Usage;
  providerMetadata: ProviderMetadata;
}

/** Id, time and model name of an answer. */
export interface ResponseMetadata {
  id: string;
  timestamp: Date;
  modelId: string;
}

/** A complete answer to a call. */
export interface GenerateResult extends AnswerEnding {
  content: Content[];
  warnings: CallWarning[];
  response: ResponseMetadata;
}

/** A piece of an answer while it streams. */
export type StreamPart =
  | { type: "stream-start"; warnings: CallWarning[] }
  | ({ type: "response-metadata" } & ResponseMetadata)
  | { type: "text-start" | "text-end" | "reasoning-start" | "reasoning-end"; id: string }
  | { type: "text-delta" | "reasoning-delta"; id: string; delta: string }
  | { type: "tool-input-start"; id: string; toolName: string }
  | { type: "tool-input-delta"; id: string; delta: string }
  | { type: "tool-input-end"; id: string }
  | ToolCallContent
  | ({ type: "finish" } & AnswerEnding)
  | { type: "error"; error: unknown };

/** An answer as a stream of its pieces. */
export interface StreamResult {
  stream: ReadableStream<StreamPart>;
}
