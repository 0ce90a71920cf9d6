import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import type { BodyReader } from "../http/body.js";
import type { App, Identity } from "../http/route.js";
import { findModel, type ModelServices } from "./models.js";
import { readRequest } from "./openai-request.js";
import type { TextModel, TextModels } from "./text-models.js";

/** Beside `/v1`, where evaluation harnesses look: they take the API's path off its address. */
const PLACES = ["", "/oai/api"] as const;

const model = z.string().min(1).nullish();

const tokenizeSchema = z.object({
  model,
  prompt: z.string(),
  add_special_tokens: z.boolean().nullish(),
  return_token_strs: z.boolean().nullish(),
});

const detokenizeSchema = z.object({ model, tokens: z.array(z.number().int().nonnegative()) });

/** What the routes of tokenizers need of the server. */
export interface TokenizeServices extends ModelServices {
  readonly reader: BodyReader;
  readonly textModelOf: TextModels;
}

/** A model's tokenizer over HTTP, in vLLM's shapes. Without a model the first of the server is meant. */
export function addTokenizeRoutes(app: App, services: TokenizeServices): void {
  const { reader, baseModels, textModelOf } = services;

  function textModel(identity: Identity, name: string | null | undefined): Promise<TextModel> {
    const [first] = baseModels.keys();
    return textModelOf(findModel(services, identity, name ?? first ?? "").info);
  }

  for (const place of PLACES) {
    app.post(`${place}/tokenize`, async (call) => {
      const request = await readRequest(call, reader, tokenizeSchema);
      const { tokenizer, tokenNames, info } = await textModel(call.get("identity"), request.model);
      const [tokens = []] = await tokenizer.encodeBatch([request.prompt], {
        addSpecialTokens: request.add_special_tokens ?? true,
      });
      return call.json({
        count: tokens.length,
        max_model_len: info.maxContextLength,
        tokens,
        token_strs: request.return_token_strs ? tokens.map((token) => tokenNames.of(token).text) : null,
      });
    });

    app.post(`${place}/detokenize`, async (call) => {
      const request = await readRequest(call, reader, detokenizeSchema);
      const { tokenizer } = await textModel(call.get("identity"), request.model);
      return call.json({ prompt: tokenizer.decode(request.tokens) });
    });

    app.get(`${place}/tokenizer_info`, async (call) => {
      const { tokenizer, info } = await textModel(call.get("identity"), call.req.query("model"));
      const file = join(info.tokenizerPath, "tokenizer_config.json");
      const settings = JSON.parse(await readFile(file, "utf8").catch(() => "{}")) as object;
      const { bosToken = null, eosToken = null } = tokenizer;
      return call.json({ ...settings, bos_token: bosToken, eos_token: eosToken });
    });
  }
}
