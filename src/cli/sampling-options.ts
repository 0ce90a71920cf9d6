import { type Command, InvalidArgumentError, Option } from "commander";
import type { SamplingClient, SamplingParams, ServiceClient } from "tinkerts";
import type { Tokenizer } from "../tokenizers/index.js";
import { UsageError } from "./context.js";
import { gathered, wholeNumber } from "./option-values.js";

/** Which model answers, and how it draws its tokens. */
export interface SamplingOptions {
  readonly baseModel?: string;
  readonly modelPath?: string;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly topK?: number;
  readonly topP?: number;
  readonly stop?: readonly string[];
  readonly seed?: number;
}

const MAX_SEED = 2 ** 31 - 1;
const MAX_TOKENS = 1_000_000;

/** Adds the options that name a model. */
export function addModelOptions(command: Command): Command {
  return command
    .addOption(new Option("--base-model <name>", "a model of the server (see tinkerts models)"))
    .addOption(
      new Option("--model-path <tinker-path>", "weights saved for sampling, as tinker://...").conflicts(
        "baseModel",
      ),
    );
}

/** Adds the options that say how tokens are drawn. */
export function addSamplingOptions(
  command: Command,
  defaults: { maxTokens?: number; temperature?: number },
): Command {
  return command
    .option(
      "--max-tokens <number>",
      `most tokens to generate${defaults.maxTokens === undefined ? " (default: as many as there is room for)" : ""}`,
      wholeNumber(1, MAX_TOKENS),
      defaults.maxTokens,
    )
    .option(
      "--temperature <number>",
      "0 takes the likeliest token every time",
      number(0, 100),
      defaults.temperature ?? 1,
    )
    .option(
      "--top-k <number>",
      "draw from the k likeliest tokens (default: from all)",
      wholeNumber(1, MAX_TOKENS),
    )
    .option(
      "--top-p <number>",
      "draw from the likeliest tokens that have this much probability together (default: from all)",
      probability,
    )
    .option(
      "--stop <text>",
      "end the answer after this text; \\n is a new line; may be repeated",
      gathered(stopText),
    )
    .option("--seed <number>", "the same seed gives the same answer again", wholeNumber(0, MAX_SEED));
}

/** A model that is ready to answer. */
export interface Sampler {
  /** As the user named it. */
  readonly name: string;
  readonly sampling: SamplingClient;
  readonly tokenizer: Tokenizer;
}

/** The name of the model, whichever option gave it. */
export function modelName({ baseModel, modelPath }: SamplingOptions): string {
  const name = modelPath ?? baseModel;
  if (name === undefined || name === "") {
    throw new UsageError(
      "which model? Give --base-model NAME (see tinkerts models) or --model-path tinker://... (see tinkerts checkpoint list)",
    );
  }
  return name;
}

/** Opens the model that the options name. */
export async function openSampler(
  service: ServiceClient,
  options: SamplingOptions,
  signal: AbortSignal,
): Promise<Sampler> {
  const name = modelName(options);
  const source = options.modelPath === undefined ? { baseModel: name } : { modelPath: options.modelPath };
  const sampling = await service.createSamplingClient({ ...source, signal });
  return { name, sampling, tokenizer: await sampling.getTokenizer({ signal }) };
}

/** What the options say to the server. */
export function samplingParams(options: SamplingOptions): SamplingParams {
  const { maxTokens, temperature, topK, topP, stop, seed } = options;
  return { maxTokens, temperature, topK, topP, stop, seed };
}

function number(lowest: number, highest: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (text.trim() === "" || !(value >= lowest && value <= highest)) {
      throw new InvalidArgumentError(`It must be a number from ${lowest} to ${highest}.`);
    }
    return value;
  };
}

function probability(text: string): number {
  const value = Number(text);
  if (!(value > 0 && value <= 1)) throw new InvalidArgumentError("It must be above 0 and at most 1.");
  return value;
}

const ESCAPES: Readonly<Record<string, string>> = { n: "\n", t: "\t", "\\": "\\" };

function stopText(text: string): string {
  if (text === "") throw new InvalidArgumentError("It must not be empty.");
  return text.replaceAll(/\\([nt\\])/g, (_, letter: string) => ESCAPES[letter]!);
}
