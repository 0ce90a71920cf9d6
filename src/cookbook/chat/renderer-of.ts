import type { SamplingClient } from "../../clients/index.js";
import { TinkerError } from "../../errors.js";
import { knownRenderers, renderersOf } from "../renderers/models.js";
import { getRenderer, rendererNames } from "../renderers/registry.js";
import type { Renderer } from "../renderers/renderer.js";

/** What talking needs of a sampler: a SamplingClient has it. */
export type ChatSampler = Pick<SamplingClient, "sample" | "getBaseModel" | "getTokenizer">;

const found = new WeakMap<ChatSampler, Promise<Renderer>>();

/**
 * The renderer that fits a sampler: the recommended one of its base model, else the model's own chat template. It is
 * looked up once for each sampler. With a name, that renderer for the sampler's tokenizer.
 */
export function rendererOf(sampler: ChatSampler, name?: string): Promise<Renderer> {
  if (name !== undefined) return sampler.getTokenizer().then((tokenizer) => getRenderer(name, tokenizer));
  const known = found.get(sampler);
  if (known !== undefined) return known;
  const looking = findRenderer(sampler).catch((error: unknown) => {
    found.delete(sampler);
    throw error;
  });
  found.set(sampler, looking);
  return looking;
}

async function findRenderer(sampler: ChatSampler): Promise<Renderer> {
  const [baseModel, tokenizer] = await Promise.all([sampler.getBaseModel(), sampler.getTokenizer()]);
  const names = rendererNames();
  const name = knownRenderers(baseModel)?.find((candidate) => names.includes(candidate));
  if (name !== undefined) return getRenderer(name, tokenizer);
  if (tokenizer.hasChatTemplate) return getRenderer("template", tokenizer);
  if (knownRenderers(baseModel) === undefined) {
    throw new TinkerError(
      `${baseModel} has no chat format: it is in no table of renderers, and its tokenizer has no chat template. ` +
        `Name a renderer (role_colon suits base models), one of ${names.join(", ")}.`,
    );
  }
  return getRenderer(renderersOf(baseModel)[0]!, tokenizer);
}
