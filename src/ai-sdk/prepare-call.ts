import { type PreparedChat, prepareChat } from "../cookbook/chat/chat.js";
import { type ChatSampler, rendererOf } from "../cookbook/chat/renderer-of.js";
import { TinkerError } from "../errors.js";
import type { Message, ToolDeclaration } from "../renderers/messages.js";
import {
  REASONING_EFFORTS,
  type ReasoningEffort,
  rendererWithEffort,
} from "../renderers/reasoning-effort.js";
import { getRenderer } from "../renderers/registry.js";
import type { Renderer } from "../renderers/renderer.js";
import { checkKeys, wrongValue } from "../wire/fields/check-keys.js";
import { PROVIDER } from "./answer-metadata.js";
import { messagesOf } from "./prompt.js";
import type { CallOptions, CallWarning } from "./specification.js";

/** How a model is used in all its calls. */
export interface ModelSettings {
  /** How conversations are written, or its name. Default: what fits the base model and the reasoning asked for. */
  readonly renderer?: Renderer | string | undefined;
  /** `false` for a model that was trained on its tools and need not be told of them. Default: `true`. */
  readonly declareTools?: boolean | undefined;
}

/** A call of the AI SDK that is ready to be sampled. */
export interface PreparedCall extends PreparedChat {
  readonly messages: readonly Message[];
  readonly warnings: CallWarning[];
  /** The caller's own; the answer ends before them. */
  readonly stopTexts: readonly string[];
  /** Whether calls in the answer are calls, or text like any other. */
  readonly offersTools: boolean;
}

export async function prepareCall(
  sampler: ChatSampler,
  settings: ModelSettings,
  options: CallOptions,
): Promise<PreparedCall> {
  const { maxOutputTokens: maxTokens, temperature, topK, topP, seed, abortSignal: signal } = options;
  const warnings: CallWarning[] = unsupportedSettings(options);
  const renderer = await chooseRenderer(sampler, settings, options, warnings);
  const tools = offeredTools(options, warnings);
  const stopTexts = (options.stopSequences ?? []).filter((text) => text !== "");
  const messages = withJsonInstruction(messagesOf(options.prompt), options, warnings);
  const chat = await prepareChat(sampler, messages, {
    renderer,
    tools: settings.declareTools === false ? [] : tools,
    prefill: callOpening(renderer, options, tools),
    maxTokens,
    temperature,
    topK,
    topP,
    seed,
    signal,
    stop: stopsOf(renderer, stopTexts),
  });
  return { ...chat, messages, warnings, stopTexts, offersTools: tools.length > 0 };
}

function unsupportedSettings({ presencePenalty, frequencyPenalty }: CallOptions): CallWarning[] {
  const details = "Tinker samples without penalties.";
  return Object.entries({ presencePenalty, frequencyPenalty })
    .filter(([, value]) => value !== undefined && value !== 0)
    .map(([feature]) => ({ type: "unsupported", feature, details }));
}

const OPTION_KEYS: ReadonlySet<string> = new Set(["reasoningEffort"]);

async function chooseRenderer(
  sampler: ChatSampler,
  { renderer: given }: ModelSettings,
  { providerOptions, reasoning, toolChoice }: CallOptions,
  warnings: CallWarning[],
): Promise<Renderer> {
  const own = providerOptions?.[PROVIDER] ?? {};
  checkKeys(own, OPTION_KEYS, `providerOptions.${PROVIDER}`);
  const asked = checkEffort(own["reasoningEffort"] ?? reasoning);
  const usual = () => (typeof given === "object" ? given : rendererOf(sampler, given));
  // The beginning of a call leaves no place for thoughts.
  const effort = isForced(toolChoice) ? "none" : asked;
  if (effort === undefined) return await usual();
  const baseModel = await sampler.getBaseModel();
  const chosen = given === undefined ? rendererWithEffort(baseModel, effort) : undefined;
  if (chosen !== undefined) return getRenderer(chosen.name, await sampler.getTokenizer(), chosen.options);
  if (asked !== undefined) {
    const details =
      given === undefined
        ? `The format of ${baseModel} has no way to ask for "${effort}".`
        : "The model was made with a renderer of its own, which decides how much is thought.";
    warnings.push({ type: "unsupported", feature: "reasoning", details });
  }
  return await usual();
}

function isForced(toolChoice: CallOptions["toolChoice"]): boolean {
  return toolChoice?.type === "required" || toolChoice?.type === "tool";
}

function checkEffort(value: unknown): ReasoningEffort | undefined {
  if (value === undefined || value === "provider-default") return undefined;
  if ((REASONING_EFFORTS as readonly unknown[]).includes(value)) return value as ReasoningEffort;
  throw wrongValue(
    `providerOptions.${PROVIDER}.reasoningEffort`,
    `one of ${REASONING_EFFORTS.join(", ")}`,
    value,
  );
}

function offeredTools({ tools = [], toolChoice }: CallOptions, warnings: CallWarning[]): ToolDeclaration[] {
  if (toolChoice?.type === "none") return [];
  return tools.flatMap((tool) => {
    if (tool.type === "function") {
      const { name, description = "", inputSchema } = tool;
      return [{ name, description, parameters: withoutDialect(inputSchema) }];
    }
    warnings.push({ type: "unsupported", feature: `provider-defined tool ${tool.id}` });
    return [];
  });
}

/** A schema without the address of its dialect, which says nothing to a model. */
function withoutDialect(schema: object | boolean): Readonly<Record<string, unknown>> {
  const { $schema: _, ...rest } = schema === true ? {} : (schema as Readonly<Record<string, unknown>>);
  return rest;
}

/** A call that must come is begun in the prompt, so that the model can only go on with it. */
function callOpening(
  renderer: Renderer,
  { toolChoice }: CallOptions,
  tools: readonly ToolDeclaration[],
): string | undefined {
  if (!isForced(toolChoice)) return undefined;
  const [only, ...others] = tools;
  const name = toolChoice?.type === "tool" ? toolChoice.toolName : others.length > 0 ? undefined : only?.name;
  if (only === undefined || (name !== undefined && !tools.some((tool) => tool.name === name))) {
    throw new TinkerError(`toolChoice asks for ${name ?? "a call"}, and there is no such tool.`);
  }
  const opening = renderer.callOpening(name);
  if (opening !== undefined) return opening;
  throw new TinkerError(
    `toolChoice "${toolChoice?.type}" is not possible here: in this model's format an answer cannot be made to begin ` +
      'with a call. Ask for it in the prompt with toolChoice "auto", or take a renderer of the family that does not think.',
  );
}

/** Tinker takes texts or tokens, never both. */
function stopsOf({ stopSequences, tokenizer }: Renderer, stopTexts: readonly string[]) {
  if (stopTexts.length === 0) return undefined;
  const own = stopSequences.map((stop) => (typeof stop === "number" ? tokenizer.decode([stop]) : stop));
  return [...own, ...stopTexts];
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
