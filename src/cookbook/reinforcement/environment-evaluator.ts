import type { SamplingClient } from "../../clients/index.js";
import { ValidationError } from "../../errors.js";
import type { Renderer } from "../../renderers/index.js";
import { untilAborted } from "../../transport/index.js";
import { checkKeys, checkObject, wrongValue } from "../../wire/index.js";
import { rendererOf } from "../chat/renderer-of.js";
import type { GroupSource, Problem, TrajectoryGroup } from "../environments/index.js";
import { inParallel } from "../evaluation/evaluate.js";
import type { Evaluator } from "../evaluation/index.js";
import { FailureCounts, RolloutPool } from "../rollouts/index.js";
import { closeEnvironment } from "../rollouts/run-rollout.js";
import { checkSettings } from "../rollouts/settings.js";
import { checkStrategy } from "../rollouts/strategies.js";
import { checkCount } from "../runs/options.js";
import {
  ACTING_KEYS,
  type ActingOptions,
  checkSource,
  openSource,
  rollOut,
  SOURCE_KEYS,
  type SourceOptions,
} from "./group-source.js";
import { trajectoryMetrics } from "./metrics.js";

/** What is acted in to measure a model. */
export type EnvironmentEvaluatorOptions<P extends Problem = Problem> = SourceOptions<P> &
  ActingOptions & {
    /** Metrics are called `NAME/env/all/reward/total` and so on. Default: `test`. */
    readonly name?: string | undefined;
    /** Groups, the first of the source. Default: all of an epoch. */
    readonly numGroups?: number | undefined;
    /** Tries at each problem. Default: 1. */
    readonly groupSize?: number | undefined;
    /** Decides the samples, which are the same at each step as far as the weights are. Default: 0. */
    readonly seed?: number | undefined;
    /** A renderer or its name. Default: the recommended one of the model. */
    readonly renderer?: string | Renderer | undefined;
  };

const KEYS: ReadonlySet<string> = new Set([
  ...[...SOURCE_KEYS, ...ACTING_KEYS],
  ...(["name", "numGroups", "groupSize", "seed", "renderer"] as const),
] satisfies (keyof EnvironmentEvaluatorOptions)[]);

/** It becomes part of a file's name. */
const NAME = /^[\w.-]*\w[\w.-]*$/;
/** Groups whose environments are open at a time. */
const MAX_GROUPS_AT_ONCE = 64;

/** Environments that the model acts in during training to be measured, not to learn. */
export function environmentEvaluator<P extends Problem>(options: EnvironmentEvaluatorOptions<P>): Evaluator {
  checkObject(options, "the argument of environmentEvaluator");
  checkKeys(options, KEYS, "");
  checkSource(options);
  checkSettings(options);
  checkStrategy(options.strategy);
  for (const field of ["numGroups", "groupSize", "maxTokens"] as const) checkCount(options, field, 1);
  checkCount(options, "seed", 0);
  const { name = "test", groupSize = 1, seed = 0, renderer, temperature = 1 } = options;
  if (!(temperature >= 0 && Number.isFinite(temperature)))
    throw wrongValue("temperature", "a number from 0, the likeliest answer", temperature);
  if (typeof name !== "string" || !NAME.test(name))
    throw wrongValue("name", "letters, digits, dots and dashes", name);
  let opened: Promise<GroupSource> | undefined;
  const open = async (sampler: SamplingClient) =>
    openSource(options, {
      renderer: typeof renderer === "object" ? renderer : await rendererOf(sampler, renderer),
      groupSize,
      seed,
    });
  return {
    name,
    evaluate: async ({ sampler, step, folder, signal = new AbortController().signal }) => {
      opened ??= open(sampler);
      const opening = opened;
      opening.catch(() => {
        if (opened === opening) opened = undefined;
      });
      const source = await untilAborted(opening, signal);
      const model = await sampler.getBaseModel();
      const pool = new RolloutPool();
      const groups: TrajectoryGroup[] = [];
      const roll = async (index: number, running: AbortSignal) => {
        const settings = { model, seed, signal: running, pool, acting: options };
        const group = await rollOut(source, index, sampler, settings);
        if (group !== undefined) groups[index] = group;
      };
      await inParallel(
        [...Array(groupCount(options.numGroups, source)).keys()],
        MAX_GROUPS_AT_ONCE,
        signal,
        roll,
      );
      const all = groups.filter((group) => group !== undefined);
      if (folder !== undefined) {
        const { writeRollouts } = await import("../rollouts/rollout-files.node.js");
        const recorded = all.map((group) => ({ group, samplerStep: step }));
        await writeRollouts(folder, { split: `eval/${name}`, iteration: step, groups: recorded });
      }
      const failures = new FailureCounts();
      for (const group of all) failures.add(group);
      const metrics = { ...trajectoryMetrics(all), ...failures.metrics() };
      return Object.fromEntries(Object.entries(metrics).map(([key, value]) => [`${name}/${key}`, value]));
    },
    close: async () => {
      // A source that was given is not ours, and a generator could not be begun anew.
      if (typeof options.environments !== "function") return;
      const closed = opened;
      opened = undefined;
      await closed?.then(
        (source) => closeEnvironment(source),
        () => {},
      );
    },
  };
}

function groupCount(numGroups: number | undefined, { length }: GroupSource): number {
  const count = numGroups ?? length;
  if (count !== undefined) return count;
  throw new ValidationError("numGroups", "numGroups must be given: nobody knows how many groups there are");
}
