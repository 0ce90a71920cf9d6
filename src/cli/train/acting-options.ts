import { type Command, Option } from "commander";
import type { ReinforcementMode } from "../../cookbook/reinforcement/index.js";
import { count, positive } from "./run-options.js";

/** The options of training on what the model itself says. */
export interface ActingCommandOptions {
  readonly steps?: number;
  readonly groupSize?: number;
  readonly groupsPerBatch?: number;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly mode?: ReinforcementMode;
  readonly maxStepsOffPolicy?: number;
}

const MODES = ["synchronous", "streamed", "asynchronous"] satisfies ReinforcementMode[];

/** Adds them to a command. */
export function addActingOptions(command: Command, defaults: { readonly groupSize: number }): Command {
  const { groupSize } = defaults;
  return command
    .option("--steps <number>", "updates (default: so many that each problem comes once)", count())
    .option("--group-size <number>", `answers to each problem (default: ${groupSize})`, count())
    .option("--groups-per-batch <number>", "problems in a step (default: 32)", count())
    .option("--max-tokens <number>", "of an answer (default: what the model has room for)", count())
    .option("--temperature <number>", "of the samples (default: 1)", positive)
    .addOption(new Option("--mode <name>", "how sampling and training share the time").choices(MODES))
    .option("--max-steps-off-policy <number>", "how old sampled data may be (default: 1)", count());
}

/** What they say to a training loop. */
export function actingOptions(options: ActingCommandOptions) {
  const { steps, groupSize, groupsPerBatch, maxTokens, temperature, mode, maxStepsOffPolicy } = options;
  return { steps, groupSize, groupsPerBatch, maxTokens, temperature, mode, maxStepsOffPolicy };
}
