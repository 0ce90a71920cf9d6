import type { Env } from "hono";
import { z } from "zod";
import type { ChatHost } from "./chat-host.js";
import { refuseOf } from "./lenience.js";
import { readFields } from "./openai-request.js";
import { encodeTexts } from "./prompt-room.js";

/** Next to `/v1`, because evaluation harnesses remove the API's path from its address. */
const PLACES = ["", "/oai/api"] as const;

/** Bounds the work: texts are tokenized one request at a time, at some hundred bytes per token. */
const MAX_CHARACTERS = 2 ** 19;

const modelName = z.string().min(1).nullish();

const tokenizeSchema = z.object({
  model: modelName,
  prompt: z.string().max(MAX_CHARACTERS, `must have at most ${MAX_CHARACTERS} characters`),
  add_special_tokens: z.boolean().nullish(),
  return_token_strs: z.boolean().nullish(),
});

const detokenizeSchema = z.object({ model: modelName, tokens: z.array(z.number().int().nonnegative()) });

/** Routes to a model's tokenizer, in vLLM's format. Without a model name, the first model of the server is used. */
export function addTokenizeRoutes<E extends Env>(host: ChatHost<E>): void {
  const { app } = host;
  for (const place of PLACES) {
    app.post(`${place}/tokenize`, async (call) => {
      const request = readFields(await host.readJson(call), tokenizeSchema, refuseOf(host, call));
      const model = await host.models(call).find(request.model ?? undefined);
      const [tokens = []] = await encodeTexts([request.prompt], model, {
        addSpecialTokens: request.add_special_tokens ?? true,
      });
      return call.json({
        count: tokens.length,
        max_model_len: model.maxContextLength,
        tokens,
        token_strs: request.return_token_strs ? tokens.map((token) => model.tokenNames.of(token).text) : null,
      });
    });

    app.post(`${place}/detokenize`, async (call) => {
      const request = readFields(await host.readJson(call), detokenizeSchema, refuseOf(host, call));
      const { tokenizer } = await host.models(call).find(request.model ?? undefined);
      return call.json({ prompt: tokenizer.decode(request.tokens) });
    });

    app.get(`${place}/tokenizer_info`, async (call) => {
      const model = await host.models(call).find(call.req.query("model"));
      const settings = await model.tokenizerSettings?.();
      const { bosToken = null, eosToken = null } = model.tokenizer;
      return call.json({ ...settings, bos_token: bosToken, eos_token: eosToken });
    });
  }
}
