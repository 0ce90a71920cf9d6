import type { ServiceClient } from "../../clients/index.js";
import { ValidationError } from "../../errors.js";
import { getRenderer, type Renderer } from "../../renderers/index.js";
import { rendererNameFor } from "../chat/renderer-of.js";
import type { RunOptions } from "./options.js";

/** The renderer of a run with its name: the given one, or what fits the model. */
export async function findRenderer(
  { service, model, renderer, tokenizer }: Pick<RunOptions, "service" | "model" | "renderer" | "tokenizer">,
  signal: AbortSignal,
): Promise<{ renderer: Renderer; rendererName: string }> {
  if (typeof renderer === "object") return { renderer, rendererName: renderer.constructor.name };
  const read = tokenizer ?? (await service.getTokenizer(model, { signal }));
  const rendererName = renderer ?? rendererNameFor(model, read);
  return { renderer: getRenderer(rendererName, read), rendererName };
}

/** What the server says that the model can read; undefined where it does not say. A model it does not train is refused. */
export async function longestInput(
  service: ServiceClient,
  model: string,
  signal: AbortSignal | undefined,
): Promise<number | undefined> {
  const { supportedModels } = await service.getServerCapabilities({ signal });
  const offered = supportedModels.find(({ modelName }) => modelName === model);
  if (offered === undefined || offered.trainable === false) {
    const names = supportedModels.flatMap(({ modelName, trainable }) =>
      typeof modelName === "string" && trainable !== false ? [modelName] : [],
    );
    throw new ValidationError(
      "model",
      `model must be one that the server trains (${names.join(", ")}), got ${JSON.stringify(model)}`,
    );
  }
  return offered.maxContextLength ?? undefined;
}

/** Before the first step there is nothing to save: both signals end the preparations at once. */
export function preparationSignal({
  signal,
  pauseSignal,
}: Pick<RunOptions, "signal" | "pauseSignal">): AbortSignal {
  return AbortSignal.any([signal, pauseSignal].filter((each) => each !== undefined));
}
