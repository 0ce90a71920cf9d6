import { type Command, InvalidArgumentError } from "commander";
import type { SamplingClient, SamplingParams, ServiceClient } from "tinkerts";
import type { CHAT_OPTIONS } from "../cookbook/chat/chat.js";
import type { Tokenizer } from "../tokenizers/index.js";
import type { OptionField } from "../wire/index.js";
import { MODEL_HELP, type NamedModel, samplingSource } from "./named-model.js";
import { flagOf, helpOf } from "./option-flags.js";
import { gathered } from "./option-values.js";

/** Options that choose a model and how it samples. */
export interface SamplingOptions {
  readonly model?: string;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly topK?: number;
  readonly topP?: number;
  readonly stop?: readonly string[];
  readonly seed?: number;
}

/** Adds the option that names a model. */
export function addModelOptions(command: Command): Command {
  return command.option("--model <model>", MODEL_HELP);
}

/** Sampling options of a call. */
type SamplingFields = Pick<typeof CHAT_OPTIONS, "temperature" | "topK" | "topP" | "stop" | "seed"> & {
  readonly maxTokens: OptionField<number>;
};

/** Adds the sampling options, with the help and the defaults of a call. */
export function addSamplingOptions(command: Command, fields: SamplingFields): Command {
  const { maxTokens, temperature, topK, topP, stop, seed } = fields;
  return command
    .addOption(flagOf("maxTokens", maxTokens))
    .addOption(flagOf("temperature", temperature))
    .addOption(flagOf("topK", topK))
    .addOption(flagOf("topP", topP))
    .option("--stop <text>", `${helpOf(stop)}; \\n is a line break (repeatable)`, gathered(stopText))
    .addOption(flagOf("seed", seed));
}

/** A model that is ready to answer. */
export interface Sampler {
  /** The model as the user named it. */
  readonly name: string;
  readonly sampling: SamplingClient;
  readonly tokenizer: Tokenizer;
}

/** Opens a model for sampling. */
export async function openSampler(
  service: ServiceClient,
  model: NamedModel,
  signal: AbortSignal,
): Promise<Sampler> {
  const sampling = await service.createSamplingClient({ ...samplingSource(model), signal });
  return { name: model.name, sampling, tokenizer: await sampling.getTokenizer({ signal }) };
}

/** The given options, with defaults for the others. */
export function samplingParamsFrom(options: SamplingOptions, fields: SamplingFields): SamplingParams {
  const { maxTokens = fields.maxTokens.fallback, topK, topP, stop, seed } = options;
  const { temperature = fields.temperature.fallback } = options;
  return { maxTokens, temperature, topK, topP, stop, seed };
}

const ESCAPES: Readonly<Record<string, string>> = { n: "\n", t: "\t", "\\": "\\" };

function stopText(text: string): string {
  if (text === "") throw new InvalidArgumentError("It must not be empty.");
  return text.replaceAll(/\\([nt\\])/g, (_, letter: string) => ESCAPES[letter]!);
}
