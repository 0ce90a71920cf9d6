import type { PublishedLoss } from "../../../wire/training/losses.js";
import {
  type EngineDatum,
  EngineInputError,
  type ForwardBackwardCall,
  type ForwardBackwardResult,
} from "../engine.js";
import type { Kernels } from "../kernels/kernels.js";
import type { LossSums } from "../kernels/token-losses.js";
import type { DecoderGradients } from "../model/decoder-backward.js";
import type { LoraAdapter } from "./adapter.js";
import { forwardBackwardStep, type StepScratch, stepScratch } from "./forward-backward-step.js";
import { gatherLossInputs } from "./loss-inputs.js";
import { SequenceLosses } from "./sequence-losses.js";

/** Scratch of steps by their shape, counted once for each: the same ones come again and again. */
const COUNTED = new WeakMap<LoraAdapter, Map<string, StepScratch>>();

/**
 * One forward or forward-backward call, in steps short enough for sampling to run in between. `stepTokens` is asked
 * before each step; sequences are taken in order, so sums do not depend on what it says.
 */
export async function* trainingPass(
  kernels: Kernels,
  adapter: LoraAdapter,
  call: ForwardBackwardCall,
  stepTokens: () => number = () => kernels.sizes.trainingTokens,
): AsyncGenerator<void, ForwardBackwardResult> {
  // Later allocations would take from the reserved memory.
  const gradients = call.forwardOnly ? undefined : { lora: adapter.gradients };
  const sequenceLosses =
    call.lossFn === "gspo" || call.lossFn === "custom" ? new SequenceLosses(call) : undefined;
  // Such a loss may fail in the middle of a batch, and must leave no part of its gradients.
  const backup = sequenceLosses && gradients && call.data.length > 1 ? adapter.backUpGradients() : undefined;
  try {
    return yield* passInSteps(kernels, adapter, call, { gradients, sequenceLosses, stepTokens });
  } catch (error) {
    backup?.restore();
    throw error;
  } finally {
    backup?.free();
  }
}

async function* passInSteps(
  kernels: Kernels,
  adapter: LoraAdapter,
  call: ForwardBackwardCall,
  pass: {
    readonly gradients: DecoderGradients | undefined;
    readonly sequenceLosses: SequenceLosses | undefined;
    readonly stepTokens: () => number;
  },
): AsyncGenerator<void, ForwardBackwardResult> {
  const { gradients, sequenceLosses, stepTokens } = pass;
  const { maxTokens, recompute, reserve } = await reserveStep(kernels, adapter, call);
  const { model, weights: lora } = adapter;
  const { lossFn } = call;
  const logprobs: Float32Array[] = [];
  const sums: LossSums = { loss: 0, clippedTokens: 0 };
  let isFirst = true;
  for (const data of trainingSteps(call.data, () => Math.min(maxTokens, stepTokens()))) {
    if (!isFirst) {
      yield;
      // Others may have needed the memory in between.
      await reserve();
    }
    isFirst = false;
    const stepLogprobs = await forwardBackwardStep(kernels, {
      model,
      lora,
      sequences: data.map((datum) => datum.tokens),
      targets: joinTargets(data),
      targetsPerToken: data[0]!.targetsPerToken,
      loss: sequenceLosses?.step(data) ?? {
        kind: "token",
        name: lossFn as PublishedLoss,
        inputs: gatherLossInputs(data, call.lossFnConfig),
        sums,
      },
      gradients,
      recompute,
    });
    let at = 0;
    for (const { targetTokens } of data) {
      logprobs.push(stepLogprobs.slice(at, at + targetTokens.length));
      at += targetTokens.length;
    }
  }
  const tokens = call.data.reduce((sum, datum) => sum + datum.tokens.length, 0);
  const metrics: Record<string, number> = {
    ...(sequenceLosses?.metrics ?? { "loss:sum": sums.loss }),
    "tokens:sum": tokens,
  };
  if (lossFn === "ppo" || lossFn === "cispo") metrics["clippedTokens:sum"] = sums.clippedTokens;
  return { logprobs, metrics };
}

/** How the steps of a pass are made. */
interface StepPlan {
  /** Tokens that may share a step; a longer sequence has one to itself. */
  maxTokens: number;
  recompute: boolean;
  /** Takes the memory of the largest step, where it is not taken already. */
  reserve(): Promise<void>;
}

/**
 * Takes the memory of the largest step in advance: without it, one in the middle would leave half a gradient.
 * Where a step that keeps all activations does not fit, blocks are computed again on the way back.
 */
async function reserveStep(
  kernels: Kernels,
  adapter: LoraAdapter,
  call: ForwardBackwardCall,
): Promise<StepPlan> {
  const { maxBufferBytes = Number.POSITIVE_INFINITY, sizes } = kernels;
  const { trainingTokens, trainingBytes } = sizes;
  if (call.data.length === 0) return { maxTokens: trainingTokens, recompute: false, reserve: async () => {} };
  const lengths = call.data.map((datum) => datum.tokens.length);
  const longest = lengths.indexOf(Math.max(...lengths));
  const total = lengths.reduce((sum, length) => sum + length, 0);
  const targetsPerToken = Math.max(...call.data.map((datum) => datum.targetsPerToken));
  const { forwardOnly, lossFn } = call;
  const kind = lossFn === "gspo" || lossFn === "custom" ? "sequence" : "token";
  let failure: RangeError | undefined;
  for (const recompute of forwardOnly ? [false] : [false, true]) {
    const shape = { forwardOnly, recompute, kind } as const;
    const full = await scratchOf(kernels, adapter, { ...shape, rows: trainingTokens, targetsPerToken: 1 });
    const affordable = Math.min(1, trainingBytes / full.bytes, maxBufferBytes / full.largestBytes);
    const maxTokens = Math.max(1, Math.floor(trainingTokens * affordable));
    const rows = Math.max(lengths[longest]!, Math.min(maxTokens, total));
    // Where even what seemed affordable cannot be had, one sequence at a time may.
    for (const stepRows of new Set([rows, lengths[longest]!])) {
      try {
        const scratch = await scratchOf(kernels, adapter, { ...shape, rows: stepRows, targetsPerToken });
        if (scratch.largestBytes > maxBufferBytes) {
          throw new RangeError(
            `${scratch.largestBytes} bytes in one piece, where there are at most ${maxBufferBytes}`,
          );
        }
        const reserve = () => kernels.reserveScratch(scratch.bytes / 4, scratch.largestBytes / 4);
        await reserve();
        return { maxTokens: Math.min(maxTokens, stepRows), recompute, reserve };
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        failure = error;
      }
    }
  }
  throw new EngineInputError(
    `no room to train on ${lengths[longest]} tokens at once (data[${longest}] has ${lengths[longest]}): ${failure?.message}`,
  );
}

interface StepShape {
  forwardOnly: boolean;
  recompute: boolean;
  rows: number;
  targetsPerToken: number;
  kind: "token" | "sequence";
}

async function scratchOf(kernels: Kernels, adapter: LoraAdapter, shape: StepShape): Promise<StepScratch> {
  const counted = COUNTED.get(adapter) ?? new Map<string, StepScratch>();
  COUNTED.set(adapter, counted);
  const { forwardOnly, recompute, rows, targetsPerToken, kind } = shape;
  const key = `${forwardOnly} ${recompute} ${rows} ${targetsPerToken} ${kind}`;
  const known = counted.get(key);
  if (known !== undefined) return known;
  const { model, weights: lora } = adapter;
  // Nothing is computed: any gradients of the right shape will do.
  const gradients = forwardOnly ? undefined : { lora };
  const step = { model, lora, gradients, targetsPerToken, recompute, kind };
  const scratch = await stepScratch(step, kernels.sizes, rows);
  counted.set(key, scratch);
  return scratch;
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
