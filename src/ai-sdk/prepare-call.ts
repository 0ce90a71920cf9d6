import { type ChatSampler, formatsOf, rendererOf } from "../cookbook/chat/renderer-of.js";
import type { Message, ToolDeclaration } from "../renderers/messages.js";
import {
  type AnswerRequest,
  chooseRenderer,
  type PreparedAnswer,
  prepareAnswer,
  type ToolChoice,
} from "../renderers/prepare-answer.js";
import type { Renderer } from "../renderers/renderer.js";
import { REASONING_EFFORTS, type ReasoningEffort } from "../renderers/thinking.js";
import type { TokenSettings } from "../renderers/token-source.js";
import {
  boolean,
  eitherOf,
  type Field,
  type FieldsOf,
  isRecord,
  message,
  oneOf,
  opaque,
  optional,
  text,
  withDefault,
} from "../wire/index.js";
import { PROVIDER } from "./answer-metadata.js";
import { messagesOf } from "./prompt.js";
import type { CallOptions, CallWarning } from "./specification.js";

/** Settings of a model for all its calls. */
export interface ModelSettings {
  /** Renderer, or its name. Default: the one that fits the base model and the requested reasoning. */
  readonly renderer?: Renderer | string | undefined;
  /** `false` for a model that was trained on its tools and does not need their declarations. Default: `true`. */
  readonly declareTools?: boolean | undefined;
}

/** Settings of a model for all its calls, with defaults filled in. */
export const MODEL_SETTINGS = {
  renderer: optional(eitherOf(isRecord, opaque as Field<Renderer>, text)),
  declareTools: withDefault(boolean, true),
} satisfies FieldsOf<ModelSettings>;

/** A call of the AI SDK that is ready to be sampled. */
export interface PreparedCall {
  readonly prepared: PreparedAnswer;
  readonly settings: Omit<TokenSettings, "isLive">;
  readonly warnings: CallWarning[];
}

export async function prepareCall(
  sampler: ChatSampler,
  modelSettings: ModelSettings,
  options: CallOptions,
): Promise<PreparedCall> {
  const { maxOutputTokens: maxTokens, temperature, topK, topP, seed, abortSignal: signal } = options;
  const warnings: CallWarning[] = unsupportedSettings(options);
  const request: AnswerRequest = {
    messages: withJsonInstruction(messagesOf(options.prompt), options, warnings),
    tools: offeredTools(options, warnings),
    declareTools: modelSettings.declareTools,
    toolChoice: toolChoiceOf(options.toolChoice),
    thinking: effortOf(options),
    stop: (options.stopSequences ?? []).filter((text) => text !== ""),
  };
  const renderer = await rendererFor(sampler, modelSettings.renderer, request, warnings);
  const prepared = prepareAnswer(renderer, request);
  signal?.throwIfAborted();
  return { prepared, settings: { maxTokens, temperature, topK, topP, seed }, warnings };
}

function unsupportedSettings({ presencePenalty, frequencyPenalty }: CallOptions): CallWarning[] {
  const details = "Tinker samples without penalties.";
  return Object.entries({ presencePenalty, frequencyPenalty })
    .filter(([, value]) => value !== undefined && value !== 0)
    .map(([feature]) => ({ type: "unsupported", feature, details }));
}

const CALL_SETTINGS = message({
  reasoningEffort: optional(oneOf(...REASONING_EFFORTS, "provider-default")),
});

/** The renderer of the model, or the one that thinks as requested; a warning if the model has none. */
async function rendererFor(
  sampler: ChatSampler,
  given: ModelSettings["renderer"],
  request: AnswerRequest,
  warnings: CallWarning[],
): Promise<Renderer> {
  const { thinking } = request;
  if (given !== undefined) {
    const details = "The model was made with a renderer of its own, which decides how much is thought.";
    if (thinking !== undefined) warnings.push({ type: "unsupported", feature: "reasoning", details });
    return typeof given === "object" ? given : rendererOf(sampler, given);
  }
  const formats = await formatsOf(sampler);
  const isKnown = thinking === undefined || formats.withThinking(thinking) !== undefined;
  if (!isKnown && !(thinking === "none" && formats.usual.thinking === "absent")) {
    const details = `The format of ${formats.model} has no way to ask for "${thinking}".`;
    warnings.push({ type: "unsupported", feature: "reasoning", details });
  }
  return chooseRenderer(formats, isKnown ? request : { ...request, thinking: undefined });
}

function effortOf({ providerOptions, reasoning }: CallOptions): ReasoningEffort | undefined {
  const own = providerOptions?.[PROVIDER] ?? {};
  const given = own["reasoningEffort"] === undefined ? { ...own, reasoningEffort: reasoning } : own;
  const { reasoningEffort } = CALL_SETTINGS.check(given, `providerOptions.${PROVIDER}`);
  return reasoningEffort === "provider-default" ? undefined : reasoningEffort;
}

function toolChoiceOf(choice: CallOptions["toolChoice"]): ToolChoice | undefined {
  return choice?.type === "tool" ? { name: choice.toolName } : choice?.type;
}

function offeredTools({ tools = [] }: CallOptions, warnings: CallWarning[]): ToolDeclaration[] {
  return tools.flatMap((tool) => {
    if (tool.type === "function") {
      const { name, description = "", inputSchema } = tool;
      return [{ name, description, parameters: withoutDialect(inputSchema) }];
    }
    warnings.push({ type: "unsupported", feature: `provider-defined tool ${tool.id}` });
    return [];
  });
}

/** A schema without `$schema`, which means nothing to a model. */
function withoutDialect(schema: object | boolean): Readonly<Record<string, unknown>> {
  const { $schema: _, ...rest } = schema === true ? {} : (schema as Readonly<Record<string, unknown>>);
  return rest;
}

function withJsonInstruction(
  messages: readonly Message[],
  { responseFormat }: CallOptions,
  warnings: CallWarning[],
): readonly Message[] {
  if (responseFormat?.type !== "json") return messages;
  const details = "The schema is part of the prompt; the server does not force the model to keep to it.";
  warnings.push({ type: "unsupported", feature: "responseFormat", details });
  const { schema, name, description } = responseFormat;
  const about = [name, description].filter(Boolean).join(": ");
  const instruction = [
    `Answer with JSON${about === "" ? "" : ` (${about})`} and nothing else.`,
    ...(schema === undefined
      ? []
      : [`It must fit this JSON schema:\n${JSON.stringify(withoutDialect(schema))}`]),
  ].join(" ");
  const [first, ...rest] = messages;
  return first?.role === "system"
    ? [{ role: "system", content: `${first.content}\n\n${instruction}` }, ...rest]
    : [{ role: "system", content: instruction }, ...messages];
}
