import type { Renderer } from "../../renderers/index.js";
import { throwIfAborted } from "../../transport/index.js";
import { findRenderer, longestInput, preparationSignal } from "../runs/find-model.js";
import type { RunPlan } from "../runs/run-training.js";
import { checkOptions, type TrainSupervisedOptions } from "./options.js";
import {
  describeSupervised,
  type SupervisedSettings,
  supervisedConfig,
  supervisedSettings,
} from "./settings.js";
import { openTrainingData, type TrainingData } from "./training-data.js";

/** All that is known of a run before its first step. */
export interface PreparedRun extends RunPlan {
  readonly renderer: Renderer;
  readonly data: TrainingData;
  readonly settings: SupervisedSettings;
}

/** Reads and counts the rows, and decides every setting, without training anything. */
export async function planSupervised(options: TrainSupervisedOptions): Promise<RunPlan> {
  const { data, config, description } = await prepareRun(options);
  await data[Symbol.asyncDispose]();
  return { config, description };
}

/** Whoever calls this closes `data`. */
export async function prepareRun(options: TrainSupervisedOptions): Promise<PreparedRun> {
  checkOptions(options);
  const { service, model, trainOn = "all_assistant_messages", reduction = "mean", seed = 0 } = options;
  const signal = preparationSignal(options);
  const maxLength = options.maxLength ?? (await longestInput(service, model, signal));
  const { renderer, rendererName } = await findRenderer(options, signal);
  const data = await openTrainingData({ ...options, renderer, trainOn, maxLength, reduction, seed, signal });
  try {
    throwIfAborted(signal, "The run");
    const settings = supervisedSettings(options, { data, rendererName, maxLength });
    const description = describeSupervised(settings, options, data.remarks);
    return { renderer, data, settings, config: supervisedConfig(settings), description };
  } catch (error) {
    await data[Symbol.asyncDispose]();
    throw error;
  }
}
