import { ValidationError } from "../../errors.js";
import * as f from "../../wire/fields/index.js";
import { readAll, split } from "../data/index.js";
import type { Problem, ProblemGroupOptions } from "../environments/index.js";
import {
  planReinforcement,
  type ReinforcementSettings,
  type TrainReinforcementOptions,
  trainReinforcement,
} from "../reinforcement/index.js";
import { checkReinforcementOptions } from "../reinforcement/options.js";
import type { FinishedRun, RunOptions, RunPlan } from "../runs/index.js";
import { LORA_OPTIONS, RUN_OPTIONS } from "../runs/options.js";
import { ReopeningSampler } from "../runs/reopening-sampler.js";
import { planSupervised, type TrainSupervisedOptions, trainSupervised } from "../supervised/index.js";
import { SUPERVISED_OPTIONS } from "../supervised/options.js";
import { type LabeledComparison, swapComparison } from "./comparison.js";
import type { ComparisonSource } from "./comparisons.js";
import {
  type Compare,
  PREFERENCE_OPTIONS,
  type PreferenceModelOptions,
  preferenceModel,
} from "./preference-model.js";
import { type TournamentRules, tournament, tournamentRewards } from "./tournament.js";
import {
  PREFERENCE_MODEL_OPTIONS,
  planPreferenceModel,
  type TrainPreferenceModelOptions,
  trainPreferenceModel,
} from "./train-preference-model.js";
import { winRateEvaluator } from "./win-rate.js";

/** Options shared by all stages. */
type SharedOptions = Pick<
  RunOptions,
  | "service"
  | "model"
  | "renderer"
  | "tokenizer"
  | "seed"
  | "signal"
  | "pauseSignal"
  | keyof typeof LORA_OPTIONS
>;

/** Options of one stage. */
type Stage<Options> = Omit<Options, keyof SharedOptions | "folder">;

/** How the model is trained against the preference model. */
export interface RlhfReinforcementOptions
  extends Omit<Stage<ReinforcementSettings>, "startFrom">,
    Omit<TournamentRules, "compare"> {
  /** Prompts that the model answers. Default: those of the comparisons. */
  readonly prompts?: ProblemGroupOptions<Problem>["problems"] | undefined;
}

/** Options of `trainRlhf`: data for the first two stages, and a folder. */
export interface TrainRlhfOptions extends SharedOptions {
  /** Folder of the stages `sft`, `rm` and `rl`. The same call continues where the last one stopped. */
  readonly folder: string;
  /** First stage: the model learns to answer. */
  readonly supervised: Stage<TrainSupervisedOptions>;
  /** Second stage: another model, from the same base model, learns which answers are better. */
  readonly preferences: Stage<TrainPreferenceModelOptions> & Pick<PreferenceModelOptions, "scoring">;
  /** Third stage: the first model learns to give answers that the second one prefers. */
  readonly reinforcement?: RlhfReinforcementOptions | undefined;
}

/** Results of the stages that ran; later ones are absent if `pauseSignal` ended the run early. */
export interface RlhfRun {
  readonly isFinished: boolean;
  readonly supervised: FinishedRun;
  readonly preferences?: FinishedRun | undefined;
  readonly reinforcement?: FinishedRun | undefined;
}

const { service, model, renderer, tokenizer, seed, signal, pauseSignal } = RUN_OPTIONS;

const TABLE = f.optionTable({
  ...LORA_OPTIONS,
  ...{ service, model, renderer, tokenizer, seed, signal, pauseSignal },
  folder: f.option(f.text, "holds the folder of each stage: sft, rm and rl"),
  supervised: f.option(
    f.opaque as f.Field<TrainRlhfOptions["supervised"]>,
    "first stage: supervised training",
  ),
  preferences: f.option(
    f.opaque as f.Field<TrainRlhfOptions["preferences"]>,
    "second stage: the preference model",
  ),
  reinforcement: f.option(
    f.withDefault(f.opaque as f.Field<RlhfReinforcementOptions>, {}),
    "third stage: training against the preference model",
  ),
} satisfies f.OptionsOf<TrainRlhfOptions>);

/** Number of answers compared in one tournament. */
const GROUP_SIZE = 4;

/**
 * Reinforcement learning from human feedback: supervised training, a preference model, and training with tournaments
 * that it judges. Each stage has a folder; a finished stage is not repeated.
 */
export async function trainRlhf(options: TrainRlhfOptions): Promise<RlhfRun> {
  const stages = stagesOf(options, "trainRlhf");
  const supervised = await trainSupervised(stages.supervised);
  if (!supervised.isFinished) return { isFinished: false, supervised };
  const preferences = await trainPreferenceModel(stages.preferences);
  if (!preferences.isFinished) return { isFinished: false, supervised, preferences };
  const { service, renderer } = options;
  const { scoring } = options.preferences;
  await using sampler = new ReopeningSampler(service, preferences.samplerPath);
  const compare: Compare = (comparison, asked) =>
    sampler.use(
      async (opened) => preferenceModel(opened, { renderer, scoring })(comparison, asked),
      asked?.signal,
    );
  const reinforcement = await trainReinforcement(await stages.reinforcement(compare, supervised));
  return { isFinished: reinforcement.isFinished, supervised, preferences, reinforcement };
}

/**
 * Decides every setting of the three stages of `trainRlhf` and counts their rows and episodes, without sampling or
 * training anything. The third stage's first weights are unknown until the first stage is trained.
 */
export async function planRlhf(options: TrainRlhfOptions): Promise<RunPlan> {
  const stages = stagesOf(options, "planRlhf");
  const plans = {
    sft: await planSupervised(stages.supervised),
    rm: await planPreferenceModel(stages.preferences),
    rl: await planReinforcement(
      await stages.reinforcement(() => 0, { samplerPath: "the weights of the first stage" }),
    ),
  };
  return {
    config: Object.fromEntries(Object.entries(plans).map(([stage, { config }]) => [stage, config])),
    description: Object.entries(plans)
      .map(([stage, { description }]) => `${stage}\n${description}`)
      .join("\n\n"),
  };
}

/** The checked options of each stage; those of the third need a judge and the weights of the first. */
function stagesOf(options: TrainRlhfOptions, caller: string) {
  const checked = TABLE.check(options, caller);
  const { folder, supervised, preferences, reinforcement, ...shared } = checked;
  checkStages(checked);
  const { scoring: _scoring, ...preferenceOptions } = preferences;
  return {
    supervised: { ...shared, ...supervised, folder: `${folder}/sft` },
    preferences: { ...shared, ...preferenceOptions, folder: `${folder}/rm` },
    reinforcement: async (
      compare: Compare,
      first: { readonly samplerPath: string; readonly statePath?: string },
    ): Promise<TrainReinforcementOptions<Problem>> => {
      const { prompts, pattern, matchupSize, concurrency, prepare, kl, evaluators, ...settings } =
        reinforcement;
      const compared = await readComparisons(preferences, shared.seed);
      const { temperature, maxTokens } = settings;
      const { renderer } = shared;
      const winRate = { compare, comparisons: compared.test, renderer, temperature, maxTokens, prepare };
      const rules = { compare, pattern, matchupSize, concurrency, prepare };
      return {
        groupSize: GROUP_SIZE,
        ...shared,
        ...settings,
        folder: `${folder}/rl`,
        startFrom: first.statePath,
        // Close to the model of the first stage, unless another reference is named.
        ...(kl && { kl: { reference: first.samplerPath, ...kl } }),
        evaluators: [
          ...(evaluators ?? []),
          ...(compared.test.length === 0 ? [] : [winRateEvaluator(winRate)]),
        ],
        environments: (context) => tournament({ ...context, ...rules, prompts: prompts ?? compared.prompts }),
      };
    },
  };
}

/** Checks all stages first, so that an error in a later stage is found before an earlier one trains for hours. */
function checkStages(options: TrainRlhfOptions): void {
  const { supervised, preferences, reinforcement = {}, ...shared } = options;
  checkStage("supervised", supervised, () =>
    SUPERVISED_OPTIONS.check({ ...shared, ...supervised }, "trainSupervised"),
  );
  checkStage("preferences", preferences, () => {
    const { scoring, ...others } = preferences;
    PREFERENCE_MODEL_OPTIONS.check({ ...shared, ...others }, "trainPreferenceModel");
    PREFERENCE_OPTIONS.check({ scoring }, "preferenceModel");
  });
  checkStage("reinforcement", reinforcement, () => {
    // Without `best`, because this function measures its metric.
    const { prompts, pattern, matchupSize, concurrency, prepare, best, ...settings } = reinforcement;
    tournamentRewards({ compare: () => 0, pattern, matchupSize, concurrency, prepare });
    if (settings.groupSize === 1)
      throw f.wrongValue("groupSize", "an integer of 2 or more", settings.groupSize);
    checkReinforcementOptions({ ...shared, ...settings, environments: () => ({ group: () => undefined }) });
  });
}

function checkStage(name: string, given: unknown, check: () => void): void {
  f.checkObject(given, name);
  try {
    check();
  } catch (error) {
    if (!(error instanceof ValidationError)) throw error;
    throw new ValidationError(`${name}.${error.field}`, `${name}: ${error.message}`);
  }
}

/** The prompts of the preference model's training data, with their better answers for comparison. */
async function readComparisons(
  { data, testData, testSize }: Stage<TrainPreferenceModelOptions>,
  seed: number | undefined,
) {
  await using rows = await data.open();
  const parts = split(rows, { testSize: testData === undefined ? testSize : 0, seed });
  const test = testData === undefined ? await readAll(parts.test) : await readSource(testData);
  return {
    prompts: (await readAll(parts.train)).map(({ prompt }) => ({ messages: prompt })),
    test: test.map((comparison) => (comparison.label === "B" ? swapComparison(comparison) : comparison)),
  };
}

async function readSource(source: ComparisonSource): Promise<readonly LabeledComparison[]> {
  await using rows = await source.open();
  return readAll(rows);
}
