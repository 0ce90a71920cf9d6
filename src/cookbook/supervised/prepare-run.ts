import type { ServiceClient } from "../../clients/index.js";
import { ValidationError } from "../../errors.js";
import { getRenderer, type Renderer } from "../../renderers/index.js";
import { throwIfAborted } from "../../transport/index.js";
import { rendererNameFor } from "../chat/renderer-of.js";
import { checkOptions, type TrainSupervisedOptions } from "./options.js";
import { configOf, describeRun, type RunSettings, runSettings } from "./run-settings.js";
import { openTrainingData, type TrainingData } from "./training-data.js";

/** What a run would do, for `tinkerts train sft --dry-run` and whoever wants to know beforehand. */
export interface SupervisedPlan {
  /** Settings and counts, as they would stand in `config.json`. */
  readonly config: Readonly<Record<string, unknown>>;
  /** The same for people, a line for each. */
  readonly description: string;
}

/** All that is known of a run before its first step. */
export interface PreparedRun extends SupervisedPlan {
  readonly renderer: Renderer;
  readonly data: TrainingData;
  readonly settings: RunSettings;
}

/** Reads and counts the rows, and decides every setting, without training anything. */
export async function planSupervised(options: TrainSupervisedOptions): Promise<SupervisedPlan> {
  const { data, config, description } = await prepareRun(options);
  await data[Symbol.asyncDispose]();
  return { config, description };
}

/** Whoever calls this closes `data`. */
export async function prepareRun(options: TrainSupervisedOptions): Promise<PreparedRun> {
  checkOptions(options);
  const { service, model, trainOn = "all_assistant_messages", reduction = "mean", seed = 0 } = options;
  // Before the first step there is nothing to save: both end it at once.
  const signal = AbortSignal.any([options.signal, options.pauseSignal].filter((each) => each !== undefined));
  const maxLength = options.maxLength ?? (await longestInput(service, model, signal));
  const { renderer, rendererName } = await findRenderer(options, signal);
  const data = await openTrainingData({ ...options, renderer, trainOn, maxLength, reduction, seed, signal });
  try {
    throwIfAborted(signal, "The run");
    const settings = runSettings(options, { data, rendererName, maxLength });
    const { pricePerMillionTokens, folder } = options;
    const description = describeRun(settings, { remarks: data.remarks, pricePerMillionTokens, folder });
    return { renderer, data, settings, config: configOf(settings), description };
  } catch (error) {
    await data[Symbol.asyncDispose]();
    throw error;
  }
}

async function findRenderer(
  { service, model, renderer, tokenizer }: TrainSupervisedOptions,
  signal: AbortSignal,
): Promise<{ renderer: Renderer; rendererName: string }> {
  if (typeof renderer === "object") return { renderer, rendererName: renderer.constructor.name };
  const read = tokenizer ?? (await service.getTokenizer(model, { signal }));
  const rendererName = renderer ?? rendererNameFor(model, read);
  return { renderer: getRenderer(rendererName, read), rendererName };
}

/** What the server says that the model can read; undefined where it does not say. */
async function longestInput(
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
