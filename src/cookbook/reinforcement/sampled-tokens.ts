import { TinkerError } from "../../errors.js";
import {
  addModels,
  addTokens,
  NO_TOKENS,
  type PlannedTokens,
  scaleTokens,
  TokenMeter,
  type TokensByModel,
  totalTokens,
} from "../costs/index.js";
import type { GroupSource, TrajectoryGroup } from "../environments/index.js";
import { weightsSource } from "../runs/reopening-sampler.js";
import { dropConstantGroups, groupAdvantages } from "./advantages.js";
import { assembleData } from "./assemble.js";
import { rolloutPool, runGroup } from "./group-source.js";
import { type FilledReinforcementOptions, lossOf } from "./options.js";
import type { TrajectoryReaders } from "./planned-work.js";
import type { ReinforcementRunSettings } from "./settings.js";

/** Samples a few groups with the model before training, and supposes that the others are like them. */
export async function sampledTokens(
  options: FilledReinforcementOptions,
  settings: ReinforcementRunSettings,
  {
    source,
    readers,
    signal,
    groups,
  }: { source: GroupSource; readers: TrajectoryReaders; signal: AbortSignal; groups: number },
): Promise<PlannedTokens> {
  const { model, seed, steps, groupsPerBatch } = settings;
  await using service = options.service.clone();
  const sampler = await service.createSamplingClient({ ...weightsSource(model), signal });
  const run = { model, seed, signal, pool: rolloutPool(options), acting: options };
  const found: TokensByModel[] = [];
  for (let index = 0; index < groups; index += 1) {
    const meter = new TokenMeter(model);
    const stop = service.observeTokens(meter.observer);
    try {
      const group = await runGroup(source, index, () => ({ sampler, step: 0 }), run);
      if (group !== undefined) found.push(addModels(meter.tokens, trainedTokens(group, settings, readers)));
    } finally {
      stop();
    }
  }
  if (found.length === 0) throw new TinkerError("No group was sampled: the environments have none.");
  const bySize = found.toSorted((one, other) => sizeOf(one) - sizeOf(other));
  const all = (tokens: TokensByModel): TokensByModel =>
    new Map([...tokens].map(([name, counts]) => [name, scaleTokens(counts, steps * groupsPerBatch)]));
  return {
    least: all(bySize[0]!),
    most: all(bySize.at(-1)!),
    assumptions: [
      `every group is between the smallest and the largest of the ${found.length} sampled ones`,
      ...(options.evaluators.length > 0 ? ["without the evaluators"] : []),
    ],
  };
}

/** Tokens of training on a group: none if its rewards are all alike. */
function trainedTokens(
  group: TrajectoryGroup,
  { model, loss, advantages }: ReinforcementRunSettings,
  { models, isAllTrained }: TrajectoryReaders,
): TokensByModel {
  const kept = isAllTrained ? [group] : dropConstantGroups([group]);
  const data = assembleData(
    kept,
    kept.map((each) => groupAdvantages(each, advantages)),
  );
  const tokens = data.reduce((sum, { input }) => sum + input.length, 0);
  const passes = lossOf(loss).name === "gspo" ? 2 : 1;
  const scored = { ...NO_TOKENS, prefill: tokens + data.length, sample: data.length };
  return models
    .map((reader): TokensByModel => new Map([[reader, scored]]))
    .reduce(addModels, new Map([[model, addTokens(NO_TOKENS, { train: passes * tokens })]]));
}

function sizeOf(tokens: TokensByModel): number {
  return [...tokens.values()].reduce((sum, counts) => sum + totalTokens(counts), 0);
}
