import { ValidationError } from "../../errors.js";
import { throwIfAborted } from "../../transport/index.js";
import type { GroupSource, Problem } from "../environments/index.js";
import { closeEnvironment } from "../rollouts/run-rollout.js";
import { findRenderer, longestInput, preparationSignal } from "../runs/find-model.js";
import { type FinishedRun, type RunPlan, runTraining } from "../runs/run-training.js";
import type { DescribedLine } from "../runs/settings.js";
import { openSource, openUntilAborted } from "./group-source.js";
import { checkReinforcementOptions, type TrainReinforcementOptions } from "./options.js";
import { ReinforcementLoop, type ReinforcementState } from "./reinforcement-loop.js";
import {
  DEFAULT_GROUP_SIZE,
  DEFAULT_GROUPS_PER_BATCH,
  describeReinforcement,
  type ReinforcementRunSettings,
  reinforcementConfig,
  reinforcementSettings,
} from "./settings.js";

/**
 * Trains a model by reward: it acts in groups of environments, and what did better than the rest of its group becomes
 * likelier. Every step is trained exactly once, whatever happens to the server or to this process: the same call with the
 * same folder goes on where the last one stopped.
 */
export function trainReinforcement<P extends Problem>(
  options: TrainReinforcementOptions<P>,
): Promise<FinishedRun> {
  return runReinforcement(options);
}

/** What a kind of training that works by reward adds to its settings. */
export interface ReinforcementKind {
  readonly config: Readonly<Record<string, unknown>>;
  readonly described: readonly DescribedLine[];
}

const PLAIN: ReinforcementKind = { config: {}, described: [] };

/** The same for all kinds of training that work by reward. */
export async function runReinforcement<P extends Problem>(
  options: TrainReinforcementOptions<P>,
  kind = PLAIN,
): Promise<FinishedRun> {
  const { source, settings, config, description } = await prepare(options, kind);
  const loop = new ReinforcementLoop(options, settings, source);
  try {
    return await runTraining<ReinforcementState>({
      options,
      settings,
      config,
      description,
      hasWork: (training, step, context) => loop.hasWork(training, step, context),
      step: (training, step, context) => loop.step(training, step, context),
    });
  } finally {
    await loop.close();
    // What is trained is none the worse for a source that cannot be closed.
    await closeEnvironment(source);
  }
}

/** Decides every setting without sampling or training anything. */
export function planReinforcement<P extends Problem>(
  options: TrainReinforcementOptions<P>,
): Promise<RunPlan> {
  return planKind(options, PLAIN);
}

/** The same for all kinds of training that work by reward. */
export async function planKind<P extends Problem>(
  options: TrainReinforcementOptions<P>,
  kind: ReinforcementKind,
): Promise<RunPlan> {
  const { source, config, description } = await prepare(options, kind);
  // Groups that were given are still to be trained on.
  if (source !== options.environments) await closeEnvironment(source);
  return { config, description };
}

interface Prepared extends RunPlan {
  readonly source: GroupSource;
  readonly settings: ReinforcementRunSettings;
}

/** Whoever calls this closes `source`. */
async function prepare<P extends Problem>(
  options: TrainReinforcementOptions<P>,
  kind: ReinforcementKind,
): Promise<Prepared> {
  checkReinforcementOptions(options);
  const { service, model, groupSize = DEFAULT_GROUP_SIZE, seed = 0 } = options;
  const signal = preparationSignal(options);
  await longestInput(service, model, signal);
  const { renderer, rendererName } = await findRenderer(options, signal);
  const source = await openUntilAborted(openSource(options, { renderer, groupSize, seed }), signal);
  try {
    throwIfAborted(signal, "The run");
    const settings = reinforcementSettings(options, { steps: stepsOf(options, source), rendererName });
    const config = { ...reinforcementConfig(settings, options), ...kind.config };
    const description = describeReinforcement(settings, options.folder, kind.described);
    return { source, settings, config, description };
  } catch (error) {
    await closeEnvironment(source);
    throw error;
  }
}

function stepsOf<P extends Problem>(
  { steps, groupsPerBatch = DEFAULT_GROUPS_PER_BATCH, environments }: TrainReinforcementOptions<P>,
  { length }: GroupSource,
): number {
  if (steps !== undefined) return steps;
  if (length !== undefined) return Math.ceil(length / groupsPerBatch);
  const what = environments === undefined ? "problems" : "environments";
  throw new ValidationError("steps", `steps must be given: nobody knows how many ${what} there are`);
}
