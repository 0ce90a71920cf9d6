import type { SamplingClient } from "../../clients/index.js";
import { ModelFormats } from "../../renderers/model-formats.js";
import { getRenderer } from "../../renderers/registry.js";
import type { Renderer } from "../../renderers/renderer.js";

/** Sampler that `chat` needs; a SamplingClient fits. Without `stream`, an answer arrives as a whole. */
export type ChatSampler = Pick<SamplingClient, "sample" | "getBaseModel" | "getTokenizer"> &
  Partial<Pick<SamplingClient, "stream">>;

const found = new WeakMap<object, Promise<ModelFormats>>();

/** The renderers of a sampler's base model, looked up once per sampler. */
export function formatsOf(
  sampler: Pick<ChatSampler, "getBaseModel" | "getTokenizer">,
): Promise<ModelFormats> {
  const known = found.get(sampler);
  if (known !== undefined) return known;
  const looking = Promise.all([sampler.getBaseModel(), sampler.getTokenizer()]).then(
    ([baseModel, tokenizer]) => new ModelFormats(baseModel, tokenizer),
  );
  looking.catch(() => found.delete(sampler));
  found.set(sampler, looking);
  return looking;
}

/** The renderer that fits a sampler's base model, looked up once per sampler; or the renderer with the given name. */
export async function rendererOf(sampler: ChatSampler, name?: string): Promise<Renderer> {
  if (name !== undefined) return getRenderer(name, await sampler.getTokenizer());
  return (await formatsOf(sampler)).usual;
}
