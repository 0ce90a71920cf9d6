import { throwIfAborted } from "../../transport/index.js";
import {
  isTinkerPath,
  type OptionsOf,
  option,
  optional,
  optionTable,
  positiveInteger,
  wrongField,
} from "../../wire/index.js";
import type { AgentOptions } from "../agents/index.js";
import { describeBudget, describeEstimate, estimateOf, priceList } from "../costs/index.js";
import type { GroupSource, Problem } from "../environments/index.js";
import { closeEnvironment } from "../rollouts/run-rollout.js";
import { findRenderer, longestInput, preparationSignal } from "../runs/find-model.js";
import { type FinishedRun, type RunPlan, runTraining } from "../runs/run-training.js";
import type { DescribedLine } from "../runs/settings.js";
import { openSource, openUntilAborted } from "./group-source.js";
import {
  checkReinforcementOptions,
  DEFAULT_GROUP_SIZE,
  type FilledReinforcementOptions,
  type ReinforcementSettings,
  type TrainReinforcementOptions,
} from "./options.js";
import { type PlannedWork, type PromptLengths, plannedWork, type TrajectoryReaders } from "./planned-work.js";
import { ReinforcementLoop, type ReinforcementState } from "./reinforcement-loop.js";
import { sampledTokens } from "./sampled-tokens.js";
import {
  describeReinforcement,
  type ReinforcementRunSettings,
  reinforcementConfig,
  reinforcementSettings,
} from "./settings.js";

/**
 * Trains a model with rewards: it acts in groups of environments, and episodes that did better than their group become
 * likelier. Every step is trained exactly once, even if the server or this process crashes: the same call with
 * the same folder continues where the last one stopped.
 */
export function trainReinforcement<P>(options: ReinforcementSettings & AgentOptions<P>): Promise<FinishedRun>;
export function trainReinforcement<P extends Problem>(
  options: TrainReinforcementOptions<P>,
): Promise<FinishedRun>;
export function trainReinforcement(options: TrainReinforcementOptions): Promise<FinishedRun> {
  return runReinforcement(options);
}

/** Settings that a kind of training with rewards adds. */
export interface ReinforcementKind {
  readonly config: Readonly<Record<string, unknown>>;
  readonly described: readonly DescribedLine[];
  /** Base models that read each trained episode, such as teachers. */
  readonly readers?: readonly string[] | undefined;
  /** Lengths of prompts that are not given as `problems`. */
  readonly promptLengths?: PromptLengths | undefined;
}

/** How a plan finds out what a run will use. */
export interface PlanSampling {
  /** Samples this many groups with the model before training, to estimate the tokens and dollars of the run. */
  readonly sampleGroups?: number | undefined;
}

const PLAN_OPTIONS = optionTable({
  sampleGroups: option(optional(positiveInteger), "groups sampled for the estimate"),
} satisfies OptionsOf<PlanSampling>);

const PLAIN: ReinforcementKind = { config: {}, described: [] };

/** Runs any kind of training with rewards. */
export async function runReinforcement<P extends Problem>(
  options: TrainReinforcementOptions<P>,
  kind = PLAIN,
): Promise<FinishedRun> {
  const { source, settings, config, description, estimate } = await prepare(options, kind).catch(
    async (error) => {
      const { environments } = options;
      if (typeof environments === "object" && environments !== null) await closeEnvironment(environments);
      throw error;
    },
  );
  const loop = new ReinforcementLoop(options, settings, source);
  try {
    return await runTraining<ReinforcementState>({
      options,
      settings,
      config,
      description,
      estimate,
      hasRewards: options.penalties === undefined,
      prepareStep: (training, step, context) => loop.prepareStep(training, step, context),
      waitingFor: () => loop.waitingFor(),
      step: (training, step, context) => loop.step(training, step, context),
    });
  } finally {
    await loop.close();
    // A source that cannot be closed does not affect what was trained.
    await closeEnvironment(source);
  }
}

/**
 * Decides every setting and estimates tokens and dollars without training anything; nothing is sampled either, unless
 * `sampleGroups` is given.
 */
export function planReinforcement<P>(
  options: ReinforcementSettings & AgentOptions<P>,
  sampling?: PlanSampling,
): Promise<RunPlan>;
export function planReinforcement<P extends Problem>(
  options: TrainReinforcementOptions<P>,
  sampling?: PlanSampling,
): Promise<RunPlan>;
export function planReinforcement(
  options: TrainReinforcementOptions,
  sampling: PlanSampling = {},
): Promise<RunPlan> {
  return planKind(options, PLAIN, sampling);
}

/** Plans any kind of training with rewards. */
export async function planKind<P extends Problem>(
  options: TrainReinforcementOptions<P>,
  kind: ReinforcementKind,
  sampling: PlanSampling = {},
): Promise<RunPlan> {
  const { sampleGroups } = PLAN_OPTIONS.check(sampling, "planReinforcement");
  const { source, config, counts, description, estimate } = await prepare(options, kind, sampleGroups);
  // Groups of the caller's are still to be used.
  if (source !== options.environments) await closeEnvironment(source);
  return { config: { ...config, ...counts }, description, estimate };
}

interface Prepared extends RunPlan {
  /** Counts that follow from the settings. */
  readonly counts: PlannedWork["config"];
  readonly options: FilledReinforcementOptions;
  readonly source: GroupSource;
  readonly settings: ReinforcementRunSettings;
}

/** The caller closes `source`; if this fails, only the caller's own `environments` are still open. */
async function prepare<P extends Problem>(
  given: TrainReinforcementOptions<P>,
  kind: ReinforcementKind,
  sampleGroups?: number,
): Promise<Prepared> {
  const options = checkReinforcementOptions(given);
  const { service, model, groupSize = DEFAULT_GROUP_SIZE, seed, folder } = options;
  const signal = preparationSignal(options);
  const maxLength = await longestInput(service, model, signal);
  const { renderer, rendererName } = await findRenderer(options, signal);
  throwIfAborted(signal, "The run");
  const run = { model, maxContextLength: maxLength, folder };
  const source = await openUntilAborted(openSource(options, { renderer, groupSize, seed }, run), signal);
  try {
    throwIfAborted(signal, "The run");
    const settings = reinforcementSettings(options, { steps: stepsOf(options, source), rendererName });
    const config = { ...reinforcementConfig(settings, options), ...kind.config };
    const readers = await readersOf(options, settings, kind, signal);
    const { promptLengths } = kind;
    const work = await plannedWork(options, settings, {
      source,
      renderer,
      maxLength,
      readers,
      promptLengths,
    });
    const tokens =
      sampleGroups === undefined
        ? work.tokens
        : await sampledTokens(options, settings, { source, readers, signal, groups: sampleGroups });
    const prices = await priceList(service, options.prices);
    const estimate = tokens && estimateOf(tokens, prices);
    const description = describeReinforcement(settings, options.folder, [
      ...work.described,
      ...kind.described,
      ...(estimate === undefined
        ? [UNKNOWN_COST]
        : [...describeEstimate(estimate, prices), ...describeBudget(options.budget, estimate)]),
    ]);
    return { options, source, settings, config, counts: work.config, description, estimate };
  } catch (error) {
    if (source !== options.environments) await closeEnvironment(source);
    throw error;
  }
}

const UNKNOWN_COST: DescribedLine = [
  "cost",
  "unknown before a few episodes are sampled (a plan with sampleGroups, or --dry-run --sample-groups N)",
];

/** The base models that read what is trained on: a reference, teachers, and the new weights. */
async function readersOf(
  { service, dropConstantGroups, penalties }: FilledReinforcementOptions,
  { model, kl, measurePostKl }: ReinforcementRunSettings,
  kind: ReinforcementKind,
  signal: AbortSignal,
): Promise<TrajectoryReaders> {
  const reference =
    kl !== undefined && isTinkerPath(kl.reference)
      ? (await service.createRestClient().getWeightsInfo(kl.reference, { signal })).baseModel
      : kl?.reference;
  return {
    models: [
      ...(reference === undefined ? [] : [reference]),
      ...(measurePostKl ? [model] : []),
      ...(kind.readers ?? []),
    ],
    isAllTrained: !dropConstantGroups || kl !== undefined || penalties !== undefined,
  };
}

function stepsOf(
  { steps, groupsPerBatch, environments }: FilledReinforcementOptions,
  { length }: GroupSource,
): number {
  if (steps !== undefined) return steps;
  if (length !== undefined) return Math.ceil(length / groupsPerBatch);
  const what = environments === undefined ? "problems" : "environments";
  throw wrongField("steps", `must be given: the number of ${what} is unknown`);
}
