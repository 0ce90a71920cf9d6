import type { SamplingClient, ServiceClient } from "../../clients/index.js";
import type { Renderer } from "../../renderers/index.js";
import { untilAborted } from "../../transport/index.js";
import * as f from "../../wire/fields/index.js";
import type { AgentOptions } from "../agents/index.js";
import { rendererOf } from "../chat/renderer-of.js";
import type { GroupSource, Problem, TrajectoryGroup } from "../environments/index.js";
import { inParallel } from "../evaluation/evaluate.js";
import type { EvaluationContext, Evaluator } from "../evaluation/index.js";
import { FailureCounts } from "../rollouts/index.js";
import { closeEnvironment } from "../rollouts/run-rollout.js";
import { longestInput } from "../runs/find-model.js";
import { RUN_OPTIONS } from "../runs/options.js";
import {
  ACTING_OPTIONS,
  type ActingOptions,
  checkSource,
  openSource,
  rolloutPool,
  runGroup,
  SOURCE_OPTIONS,
  type SourceOptions,
} from "./group-source.js";
import { trajectoryMetrics } from "./metrics.js";

/** Settings of an evaluator: groups, episodes, seed and name. */
export interface EvaluatorSettings extends ActingOptions {
  /** Prefix of the metrics, as in `NAME/env/all/reward/total`. Default: `test`. */
  readonly name?: string | undefined;
  /** Number of groups, from the start of the source. Default: all of an epoch. */
  readonly numGroups?: number | undefined;
  /** Episodes per problem. Default: 1. */
  readonly groupSize?: number | undefined;
  /** Seed of the samples, so that evaluations at different steps differ only by the weights. Default: 0. */
  readonly seed?: number | undefined;
  /** Renderer, or its name. Default: the recommended one for the model. */
  readonly renderer?: string | Renderer | undefined;
}

/** Options of an evaluator that measures a model in environments. */
export type EnvironmentEvaluatorOptions<P extends Problem = Problem> = SourceOptions<P> & EvaluatorSettings;

/** Options of an evaluator that measures a model as an agent's. */
export type AgentEvaluatorOptions<P = unknown> = AgentOptions<P> & EvaluatorSettings;

/** An evaluator that may also be called outside of a run: it needs no trainer. */
export interface EnvironmentEvaluator extends Evaluator {
  evaluate(context: Omit<EvaluationContext, "training">): Promise<Readonly<Record<string, number>>>;
}

/** It becomes part of a file name. */
const NAME = /^[\w.-]*\w[\w.-]*$/;
const TABLE = f.optionTable(
  {
    ...SOURCE_OPTIONS,
    ...ACTING_OPTIONS,
    temperature: f.option(f.withDefault(f.nonNegative, 1), "sampling temperature; 0: the likeliest answer"),
    name: f.option(
      f.withDefault(
        f.value<string>(
          "letters, digits, dots and dashes",
          (given) => typeof given === "string" && NAME.test(given),
        ),
        "test",
      ),
      "first part of the metrics' names",
    ),
    numGroups: f.option(f.optional(f.positiveInteger), "groups, the first of the source", {
      otherwise: "all of an epoch",
    }),
    groupSize: f.option(f.withDefault(f.positiveInteger, 1), "answers to each problem"),
    seed: f.option(f.withDefault(f.nonNegativeInteger, 0), "seed of the samples"),
    renderer: RUN_OPTIONS.renderer,
  } satisfies f.OptionNamesOf<EnvironmentEvaluatorOptions>,
  (options) => checkSource(options as SourceOptions<Problem>),
);

/** Number of groups whose environments are open at the same time. */
const MAX_GROUPS_AT_ONCE = 64;

/** Environments that measure the model during training, without training on them. */
export function environmentEvaluator<P>(options: AgentEvaluatorOptions<P>): EnvironmentEvaluator;
export function environmentEvaluator<P extends Problem>(
  options: EnvironmentEvaluatorOptions<P>,
): EnvironmentEvaluator;
export function environmentEvaluator(options: EnvironmentEvaluatorOptions): EnvironmentEvaluator {
  const checked = TABLE.check(options, "environmentEvaluator");
  const { name, groupSize, seed, renderer } = checked;
  let opened: Promise<GroupSource> | undefined;
  const open = async (sampler: SamplingClient, service: ServiceClient | undefined, signal: AbortSignal) => {
    const model = await sampler.getBaseModel();
    const context = {
      renderer: typeof renderer === "object" ? renderer : await rendererOf(sampler, renderer),
      groupSize,
      seed,
    };
    const maxContextLength = service && (await longestInput(service, model, signal));
    return openSource(options, context, { model, maxContextLength });
  };
  return {
    name,
    evaluate: async ({ sampler, service, step, folder, signal = new AbortController().signal }) => {
      opened ??= open(sampler, service, signal);
      const opening = opened;
      opening.catch(() => {
        if (opened === opening) opened = undefined;
      });
      const source = await untilAborted(opening, signal);
      const model = await sampler.getBaseModel();
      const pool = rolloutPool(options);
      const groups: TrajectoryGroup[] = [];
      const roll = async (index: number, running: AbortSignal) => {
        const settings = { model, seed, signal: running, pool, acting: checked };
        const group = await runGroup(source, index, () => ({ sampler, step }), settings);
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
      // A source of the caller's must not be closed, and a generator could not be restarted.
      if (typeof options.environments !== "function" && options.agent === undefined) return;
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
  throw f.wrongField("numGroups", "must be given: the number of groups is unknown");
}
