import {
  type EngineDatum,
  EngineInputError,
  type ForwardBackwardCall,
  type ForwardBackwardResult,
} from "../engine.js";
import type { Kernels } from "../kernels/kernels.js";
import type { LossSums } from "../kernels/token-losses.js";
import type { Adapter } from "./adapter.js";
import { forwardBackwardStep, scratchFloats } from "./forward-backward-step.js";
import { gatherLossInputs } from "./loss-inputs.js";

/** Scratch of steps by their shape, counted once for each: the same ones come again and again. */
const COUNTED_FLOATS = new WeakMap<Adapter, Map<string, number>>();

/**
 * One forward or forward-backward call, in steps short enough for sampling to run in between. `stepTokens` is asked
 * before each step; sequences are taken in order, so sums do not depend on what it says.
 */
export async function* trainingPass(
  kernels: Kernels,
  adapter: Adapter,
  call: ForwardBackwardCall,
  stepTokens: () => number = () => kernels.sizes.trainingTokens,
): AsyncGenerator<void, ForwardBackwardResult> {
  const { maxTokens, recompute } = await reserveStep(kernels, adapter, call);
  const { model, weights: lora } = adapter;
  const { lossFn } = call;
  const logprobs: Float32Array[] = [];
  const sums: LossSums = { loss: 0, clippedTokens: 0 };
  let isFirst = true;
  for (const data of trainingSteps(call.data, () => Math.min(maxTokens, stepTokens()))) {
    if (!isFirst) yield;
    isFirst = false;
    const stepLogprobs = await forwardBackwardStep(kernels, {
      model,
      lora,
      sequences: data.map((datum) => datum.tokens),
      targets: joinTargets(data),
      targetsPerToken: data[0]!.targetsPerToken,
      loss: lossFn,
      inputs: gatherLossInputs(data, call.lossFnConfig),
      sums,
      gradients: call.forwardOnly ? undefined : { lora: adapter.gradients },
      recompute,
    });
    let at = 0;
    for (const { targetTokens } of data) {
      logprobs.push(stepLogprobs.slice(at, at + targetTokens.length));
      at += targetTokens.length;
    }
  }
  const tokens = call.data.reduce((sum, datum) => sum + datum.tokens.length, 0);
  const metrics: Record<string, number> = { "loss:sum": sums.loss, "tokens:sum": tokens };
  if (lossFn === "ppo" || lossFn === "cispo") metrics["clippedTokens:sum"] = sums.clippedTokens;
  return { logprobs, metrics };
}

/** How the steps of a pass are made. */
interface StepPlan {
  /** Tokens that may share a step; a longer sequence has one to itself. */
  maxTokens: number;
  recompute: boolean;
}

/**
 * Takes the memory of the largest step in advance: without it, one in the middle would leave half a gradient.
 * Where a step that keeps all activations does not fit, blocks are computed again on the way back.
 */
async function reserveStep(kernels: Kernels, adapter: Adapter, call: ForwardBackwardCall): Promise<StepPlan> {
  const { trainingTokens, trainingBytes } = kernels.sizes;
  if (call.data.length === 0) return { maxTokens: trainingTokens, recompute: false };
  const lengths = call.data.map((datum) => datum.tokens.length);
  const longest = lengths.indexOf(Math.max(...lengths));
  const total = lengths.reduce((sum, length) => sum + length, 0);
  const targetsPerToken = Math.max(...call.data.map((datum) => datum.targetsPerToken));
  let rows = 0;
  let failure: RangeError | undefined;
  for (const recompute of call.forwardOnly ? [false] : [false, true]) {
    const shape = { forwardOnly: call.forwardOnly, recompute };
    const perStep =
      4 * (await stepFloats(kernels, adapter, { ...shape, rows: trainingTokens, targetsPerToken: 1 }));
    const maxTokens = Math.max(1, Math.floor(trainingTokens * Math.min(1, trainingBytes / perStep)));
    rows = Math.max(lengths[longest]!, Math.min(maxTokens, total));
    try {
      await kernels.reserveScratch(await stepFloats(kernels, adapter, { ...shape, rows, targetsPerToken }));
      return { maxTokens, recompute };
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      failure = error;
    }
  }
  throw new EngineInputError(
    `no room to train on ${rows} tokens at once (data[${longest}] has ${lengths[longest]}): ${failure?.message}`,
  );
}

interface StepShape {
  forwardOnly: boolean;
  recompute: boolean;
  rows: number;
  targetsPerToken: number;
}

async function stepFloats(kernels: Kernels, adapter: Adapter, shape: StepShape): Promise<number> {
  const counted = COUNTED_FLOATS.get(adapter) ?? new Map<string, number>();
  COUNTED_FLOATS.set(adapter, counted);
  const { forwardOnly, recompute, rows, targetsPerToken } = shape;
  const key = `${forwardOnly} ${recompute} ${rows} ${targetsPerToken}`;
  const known = counted.get(key);
  if (known !== undefined) return known;
  const { model, weights: lora } = adapter;
  // Nothing is computed: any gradients of the right shape will do.
  const gradients = forwardOnly ? undefined : { lora };
  const floats = await scratchFloats(
    { model, lora, gradients, targetsPerToken, recompute },
    kernels.sizes,
    rows,
  );
  counted.set(key, floats);
  return floats;
}

function joinTargets(data: EngineDatum[]): Int32Array {
  const targets = new Int32Array(data.reduce((sum, datum) => sum + datum.targetTokens.length, 0));
  let at = 0;
  for (const { targetTokens } of data) {
    targets.set(targetTokens, at);
    at += targetTokens.length;
  }
  return targets;
}

/** Consecutive datums with as many targets per token, up to the size of a step. */
function* trainingSteps(data: EngineDatum[], stepTokens: () => number): Generator<EngineDatum[]> {
  let group: EngineDatum[] = [];
  let tokens = 0;
  let limit = stepTokens();
  for (const datum of data) {
    const fits = tokens + datum.tokens.length <= limit && group[0]?.targetsPerToken === datum.targetsPerToken;
    if (group.length > 0 && !fits) {
      yield group;
      group = [];
      tokens = 0;
      limit = stepTokens();
    }
    group.push(datum);
    tokens += datum.tokens.length;
  }
  if (group.length > 0) yield group;
}
