import type { ServiceClient } from "../../clients/index.js";
import { NotFoundError } from "../../errors.js";
import { getRenderer, type Renderer } from "../../renderers/index.js";
import { usualRenderer } from "../../renderers/registry.js";
import { wrongField } from "../../wire/index.js";
import { isTinkerPath } from "../../wire/records/tinker-path.js";
import { LORA_OPTIONS, type RunOptions } from "./options.js";

/** The renderer of a run with its name: the given one, or the one that fits the model. */
export async function findRenderer(
  { service, model, renderer, tokenizer }: Pick<RunOptions, "service" | "model" | "renderer" | "tokenizer">,
  signal: AbortSignal,
): Promise<{ renderer: Renderer; rendererName: string }> {
  if (typeof renderer === "object") return { renderer, rendererName: renderer.constructor.name };
  const read = tokenizer ?? (await service.getTokenizer(model, { signal }));
  const rendererName = renderer ?? usualRenderer(model, read);
  return { renderer: getRenderer(rendererName, read), rendererName };
}

/** The model's context length according to the server, or undefined. Refuses a model that the server does not train. */
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
    throw wrongField(
      "model",
      `must be one that the server trains (${names.join(", ")}), got ${JSON.stringify(model)}`,
    );
  }
  return offered.maxContextLength ?? undefined;
}

/**
 * The path of the weights to start from; the adapter in a folder becomes a checkpoint. Refuses a checkpoint that does not
 * exist, or whose adapter has another shape.
 */
export async function findStart(
  options: RunOptions,
  startFrom: string,
  signal: AbortSignal | undefined,
): Promise<string> {
  const { service, model } = options;
  const path = isTinkerPath(startFrom) ? startFrom : await importStart(service, startFrom, model);
  const rest = service.createRestClient();
  const { loraRank, ...info } = await rest.getWeightsInfo(path, { signal }).catch((error: unknown) => {
    if (!(error instanceof NotFoundError)) throw error;
    throw wrongField(
      "startFrom",
      `must be a saved state that the server has (\`tinkerts checkpoint list\` shows them), got ${startFrom}`,
    );
  });
  const saved = { ...info, rank: loraRank };
  for (const field of Object.keys(LORA_OPTIONS) as (keyof typeof LORA_OPTIONS)[]) {
    const [given, there] = [options[field], saved[field]];
    if (given === undefined || there === undefined || there === null || given === there) continue;
    throw wrongField(field, `must be that of the adapter in startFrom (${there}) or left out, got ${given}`);
  }
  return path;
}

async function importStart(service: ServiceClient, folder: string, baseModel: string): Promise<string> {
  if (service.runData !== undefined) {
    return (await service.runData.importAdapter(folder, { baseModel })).statePath;
  }
  throw wrongField(
    "startFrom",
    `must be a tinker:// path here, got ${folder}: only the built-in backend in this process reads an adapter's folder (\`tinkerts checkpoint import\` makes a path of it)`,
  );
}

/** Before the first step there is nothing to save, so both signals end the preparations at once. */
export function preparationSignal({
  signal,
  pauseSignal,
}: Pick<RunOptions, "signal" | "pauseSignal">): AbortSignal {
  return AbortSignal.any([signal, pauseSignal].filter((each) => each !== undefined));
}
