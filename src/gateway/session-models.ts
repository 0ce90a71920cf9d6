import {
  type ChatModel,
  type ChatModels,
  type ModelEntry,
  ParamError,
  type SentConversation,
} from "../chat-api/index.js";
import { canConstrain } from "../renderers/token-source.js";
import type { AgentSession, AskedModel } from "./agent-session.js";
import type { SessionSampler } from "./gateway.js";
import { type GatewayModels, withRenderer } from "./models.js";
import { samplingError } from "./sampling-error.js";

/** Finds the session of a request by its address, or else by its conversation. */
export type SessionOf = (conversation: SentConversation | undefined) => AgentSession;

/** The models that a request may use. `fixed` is the session that its address names. */
export function sessionModels(
  models: GatewayModels,
  fixed: AgentSession | undefined,
  sessionOf: SessionOf,
  startedSeconds: number,
): ChatModels {
  const entry = (id: string, maxContextLength: number): ModelEntry => ({
    id,
    object: "model",
    created: startedSeconds,
    owned_by: "tinkerts",
    max_model_len: maxContextLength,
    parent: null,
  });

  async function find(asked?: string): Promise<ChatModel> {
    const given = fixed?.options.sampler;
    if (given !== undefined) return ofSampler(asked, typeof given === "function" ? given() : given);
    const name = models.nameFor(asked);
    if (name === undefined)
      throw new ParamError(
        400,
        "model_not_found",
        "This gateway has no models: open a session with a sampler.",
        "model",
      );
    return chatModel({ model: await models.find(name), step: undefined }, sessionOf);
  }

  async function ofSampler(asked: string | undefined, { sampler, step }: SessionSampler): Promise<ChatModel> {
    const { renderer, maxContextLength } = fixed!.options;
    const known = await models.textOf(sampler);
    const read = renderer === undefined ? known : withRenderer(known, renderer);
    const text = maxContextLength === undefined ? read : { ...read, maxContextLength };
    const model = {
      ...{ name: asked ?? known.baseModel, sampler, text, explain: samplingError },
      canConstrain: await canConstrain(sampler),
    };
    return chatModel({ model, step }, sessionOf);
  }

  return {
    find,
    list: async () => {
      const names = models.names.length > 0 ? models.names : [undefined];
      const found = await Promise.all(names.map(find));
      return found.map(({ name, maxContextLength }) => entry(name, maxContextLength));
    },
    entry: async (name) => {
      const model = await find(name);
      return entry(name, model.maxContextLength);
    },
  };
}

function chatModel(asked: AskedModel, sessionOf: SessionOf): ChatModel {
  const { name, text } = asked.model;
  return {
    name,
    maxContextLength: text.maxContextLength,
    endTokens: [],
    formats: text.formats,
    tokenizer: text.tokenizer,
    tokenNames: text.tokenNames,
    open: (conversation: SentConversation, renderer) =>
      sessionOf(conversation).open(asked, conversation, renderer),
    complete: (prompts, _isLive, signal) => sessionOf(undefined).complete(asked, prompts, signal),
  };
}
