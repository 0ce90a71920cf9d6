import type { ServiceClient } from "../../clients/index.js";
import { ValidationError } from "../../errors.js";
import { checkKeys, checkObject, wrongValue } from "../../wire/index.js";
import { split } from "../data/index.js";
import type { Problem, ProblemGroupOptions } from "../environments/index.js";
import { type ReinforcementSettings, trainReinforcement } from "../reinforcement/index.js";
import { checkReinforcementOptions } from "../reinforcement/options.js";
import type { FinishedRun, RunOptions } from "../runs/index.js";
import { checkChoice, checkCount } from "../runs/options.js";
import { type TrainSupervisedOptions, trainSupervised } from "../supervised/index.js";
import { checkOptions as checkSupervisedOptions } from "../supervised/options.js";
import { type LabeledComparison, swapComparison } from "./comparison.js";
import type { ComparisonSource } from "./comparisons.js";
import { type Compare, type PreferenceModelOptions, preferenceModel, SCORINGS } from "./preference-model.js";
import { type TournamentRules, tournament, tournamentRewards } from "./tournament.js";
import {
  checkPreferenceModelOptions,
  type TrainPreferenceModelOptions,
  trainPreferenceModel,
} from "./train-preference-model.js";
import { winRateEvaluator } from "./win-rate.js";

/** What all stages have in common. */
type SharedOptions = Pick<
  RunOptions,
  "service" | "model" | "renderer" | "tokenizer" | "rank" | "seed" | "signal" | "pauseSignal"
>;

/** What one stage has of its own. */
type Stage<Options> = Omit<Options, keyof SharedOptions | "folder">;

/** How the model is trained against the preference model. */
export interface RlhfReinforcementOptions
  extends Omit<Stage<ReinforcementSettings>, "startFrom">,
    Omit<TournamentRules, "compare"> {
  /** What is answered. Default: the prompts of the comparisons. */
  readonly prompts?: ProblemGroupOptions<Problem>["problems"] | undefined;
}

/** What `trainRlhf` needs: data for the first two stages, and a folder. */
export interface TrainRlhfOptions extends SharedOptions {
  /** Holds the folder of each stage: `sft`, `rm` and `rl`. The same call goes on where the last one stopped. */
  readonly folder: string;
  /** The first stage: a model learns to answer at all. */
  readonly supervised: Stage<TrainSupervisedOptions>;
  /** The second stage: another one, of the same base model, learns which answers are better. */
  readonly preferences: Stage<TrainPreferenceModelOptions> & Pick<PreferenceModelOptions, "scoring">;
  /** The third stage: the first model learns to give answers that the second one prefers. */
  readonly reinforcement?: RlhfReinforcementOptions | undefined;
}

/** The stages that were run; later ones are absent where `pauseSignal` ended it early. */
export interface RlhfRun {
  readonly isFinished: boolean;
  readonly supervised: FinishedRun;
  readonly preferences?: FinishedRun | undefined;
  readonly reinforcement?: FinishedRun | undefined;
}

const OPTION_KEYS: ReadonlySet<string> = new Set([
  ...(["service", "model", "renderer", "tokenizer", "rank", "seed", "signal", "pauseSignal"] as const),
  ...(["folder", "supervised", "preferences", "reinforcement"] as const),
] satisfies (keyof TrainRlhfOptions)[]);

/** Answers that are compared in one tournament. */
const GROUP_SIZE = 4;

/**
 * Reinforcement learning from human feedback: supervised training, a preference model, and training by tournaments that
 * it judges. Each stage has a folder, and a stage that is done is not done again.
 */
export async function trainRlhf(options: TrainRlhfOptions): Promise<RlhfRun> {
  checkObject(options, "the argument of trainRlhf");
  checkKeys(options, OPTION_KEYS, "");
  const { folder, supervised: first, preferences: second, reinforcement: third = {}, ...shared } = options;
  if (typeof folder !== "string" || folder === "") throw wrongValue("folder", "the path of a folder", folder);
  checkStages(options);
  const supervised = await trainSupervised({ ...shared, ...first, folder: `${folder}/sft` });
  if (!supervised.isFinished) return { isFinished: false, supervised };
  const { scoring, ...preferenceOptions } = second;
  const preferences = await trainPreferenceModel({ ...shared, ...preferenceOptions, folder: `${folder}/rm` });
  if (!preferences.isFinished) return { isFinished: false, supervised, preferences };
  await using judge = openJudge(shared.service, preferences.samplerPath, {
    renderer: shared.renderer,
    scoring,
  });
  const { compare } = judge;
  const { prompts, pattern, matchupSize, concurrency, prepare, kl, evaluators = [], ...settings } = third;
  const compared = await readComparisons(second, shared.seed);
  const { temperature, maxTokens } = settings;
  const winRate = {
    compare,
    comparisons: compared.test,
    renderer: shared.renderer,
    temperature,
    maxTokens,
    prepare,
  };
  const reinforcement = await trainReinforcement({
    groupSize: GROUP_SIZE,
    ...shared,
    ...settings,
    folder: `${folder}/rl`,
    startFrom: supervised.statePath,
    // Near the model of the first stage, unless another one is named.
    ...(kl && { kl: { reference: supervised.samplerPath, ...kl } }),
    evaluators: [...evaluators, ...(compared.test.length === 0 ? [] : [winRateEvaluator(winRate)])],
    environments: (context) =>
      tournament({
        ...context,
        prompts: prompts ?? compared.prompts,
        compare,
        pattern,
        matchupSize,
        concurrency,
        prepare,
      }),
  });
  return { isFinished: reinforcement.isFinished, supervised, preferences, reinforcement };
}

/** What is wrong with a later stage shall be known before hours of an earlier one. */
function checkStages(options: TrainRlhfOptions): void {
  const { supervised, preferences, reinforcement = {}, ...shared } = options;
  checkStage("supervised", supervised, () => checkSupervisedOptions({ ...shared, ...supervised }));
  checkStage("preferences", preferences, () => {
    const { scoring, ...others } = preferences;
    checkPreferenceModelOptions({ ...shared, ...others });
    checkChoice("scoring", scoring, Object.keys(SCORINGS));
  });
  checkStage("reinforcement", reinforcement, () => {
    // Without `best`, as what it needs is measured by this function.
    const { prompts, pattern, matchupSize, concurrency, prepare, best, ...settings } = reinforcement;
    tournamentRewards({ compare: () => 0, pattern, matchupSize, concurrency, prepare });
    checkCount(settings, "groupSize", 2);
    checkReinforcementOptions({ ...shared, ...settings, environments: () => ({ group: () => undefined }) });
  });
}

function checkStage(name: string, given: unknown, check: () => void): void {
  checkObject(given, name);
  try {
    check();
  } catch (error) {
    if (!(error instanceof ValidationError)) throw error;
    throw new ValidationError(`${name}.${error.field}`, `${name}: ${error.message}`);
  }
}

/** The prompts that the preference model has learnt from, and what it has not: better answers to be compared with. */
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

type ReadableRows = Pick<Awaited<ReturnType<ComparisonSource["open"]>>, "length" | "read">;

function readAll(rows: ReadableRows): Promise<readonly LabeledComparison[]> {
  return rows.read(Array.from({ length: rows.length }, (_, index) => index));
}

/** A preference model whose sampler is opened anew once it has failed: a server that came back knows none of before. */
function openJudge(
  service: ServiceClient,
  modelPath: string,
  options: PreferenceModelOptions,
): AsyncDisposable & { readonly compare: Compare } {
  const clients: ServiceClient[] = [];
  let opened: Promise<Compare> | undefined;
  const open = async () => {
    const client = service.clone();
    clients.push(client);
    return preferenceModel(await client.createSamplingClient({ modelPath }), options);
  };
  return {
    compare: async (comparison, asked = {}) => {
      opened ??= open();
      const current = opened;
      try {
        return await (await current)(comparison, asked);
      } catch (error) {
        if (opened === current && asked.signal?.aborted !== true) opened = undefined;
        throw error;
      }
    },
    [Symbol.asyncDispose]: async () => {
      await Promise.all(clients.map((client) => client.close()));
    },
  };
}
