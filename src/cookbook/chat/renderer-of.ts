import type { SamplingClient } from "../../clients/index.js";
import { TinkerError } from "../../errors.js";
import { knownRenderers } from "../../renderers/models.js";
import { getRenderer, rendererNames } from "../../renderers/registry.js";
import type { Renderer, RendererTokenizer } from "../../renderers/renderer.js";
import type { Tokenizer } from "../../tokenizers/index.js";

/** What talking needs of a sampler: a SamplingClient has it. Without `stream`, answers come whole. */
export type ChatSampler = Pick<SamplingClient, "sample" | "getBaseModel" | "getTokenizer"> &
  Partial<Pick<SamplingClient, "stream">>;

const found = new WeakMap<ChatSampler, Promise<Renderer>>();

/** The renderer that fits a sampler's base model, looked up once for each sampler; or the one of a name. */
export function rendererOf(sampler: ChatSampler, name?: string): Promise<Renderer> {
  if (name !== undefined) return sampler.getTokenizer().then((tokenizer) => getRenderer(name, tokenizer));
  const known = found.get(sampler);
  if (known !== undefined) return known;
  const looking = Promise.all([sampler.getBaseModel(), sampler.getTokenizer()]).then(
    ([baseModel, tokenizer]) => rendererFor(baseModel, tokenizer),
  );
  looking.catch(() => found.delete(sampler));
  found.set(sampler, looking);
  return looking;
}

/** The renderer that fits a base model: the recommended one, else its own chat template; or the one of a name. */
export function rendererFor(baseModel: string, tokenizer: Tokenizer, name?: string): Renderer {
  return getRenderer(name ?? rendererNameFor(baseModel, tokenizer), tokenizer);
}

/** The name of that renderer. */
export function rendererNameFor(
  baseModel: string,
  tokenizer: RendererTokenizer & { readonly hasChatTemplate?: boolean },
): string {
  const names = rendererNames();
  const recommended = knownRenderers(baseModel);
  const best = recommended?.find((candidate) => names.includes(candidate));
  if (best !== undefined) return best;
  if (tokenizer.hasChatTemplate) return "template";
  if (recommended !== undefined) return recommended[0]!;
  throw new TinkerError(
    `${baseModel} has no chat format: it is in no table of renderers, and its tokenizer has no chat template. ` +
      `Name a renderer (role_colon suits base models), one of ${names.join(", ")}.`,
  );
}
