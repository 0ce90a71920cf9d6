/** One forward or forward-backward call, in steps short enough for sampling to run in between. */

import {
  type EngineDatum,
  EngineInputError,
  type ForwardBackwardCall,
  type ForwardBackwardResult,
} from "../engine.js";
import type { Kernels } from "../kernels/kernels.js";
import { decoderForward, packSequences } from "../model/decoder.js";
import { decoderBackward } from "../model/decoder-backward.js";
import type { Adapter } from "./adapter.js";
import { lossHead } from "./loss-head.js";
import { checkDatum, checkLossConfig, gatherLossInputs, type LossSums } from "./token-losses.js";
import { affordableTokens, stepFloats } from "./training-memory.js";

/** Throws before anything has been added to the gradients. */
export function checkTrainingCall(call: ForwardBackwardCall, adapter: Adapter): void {
  const { vocabSize, maxPositions } = adapter.model.config;
  checkLossConfig(call.lossFn, call.lossFnConfig);
  call.data.forEach((datum, index) => {
    checkDatum(datum, index, call.lossFn, { vocabSize, maxLength: maxPositions });
  });
}

/** A step never has more tokens than this, unless a single sequence has. */
export const largestStep = 1024;

/** `stepTokens` is asked before each step; sequences are taken in order, so sums do not depend on what it says. */
export async function* trainingPass(
  kernels: Kernels,
  adapter: Adapter,
  call: ForwardBackwardCall,
  stepTokens: () => number = () => largestStep,
): AsyncGenerator<void, ForwardBackwardResult> {
  checkTrainingCall(call, adapter);
  const affordable = Math.min(largestStep, affordableTokens(adapter.model.config, adapter.lora.rank));
  reserveStep(kernels, adapter, call, affordable);
  const logprobs: Float32Array[] = [];
  const sums: LossSums = { loss: 0, clipped: 0 };
  let first = true;
  for (const group of trainingSteps(call.data, () => Math.min(affordable, stepTokens()))) {
    if (!first) yield;
    first = false;
    const stepLogprobs = await trainingStep(kernels, adapter, call, group, sums);
    let at = 0;
    for (const datum of group) {
      logprobs.push(stepLogprobs.slice(at, at + datum.targetTokens.length));
      at += datum.targetTokens.length;
    }
  }
  const tokens = call.data.reduce((sum, datum) => sum + datum.tokens.length, 0);
  const metrics: Record<string, number> = { "loss:sum": sums.loss, "tokens:sum": tokens };
  if (call.lossFn === "ppo" || call.lossFn === "cispo") metrics["clipped_tokens:sum"] = sums.clipped;
  return { logprobs, metrics };
}

/** Takes the memory of the largest step in advance: without it, one in the middle would leave half a gradient. */
function reserveStep(kernels: Kernels, adapter: Adapter, call: ForwardBackwardCall, limit: number): void {
  if (call.data.length === 0) return;
  const lengths = call.data.map((datum) => datum.tokens.length);
  const longest = lengths.indexOf(Math.max(...lengths));
  const total = lengths.reduce((sum, length) => sum + length, 0);
  const rows = Math.max(lengths[longest]!, Math.min(limit, total));
  const columns = Math.max(...call.data.map((datum) => datum.targetsPerToken));
  try {
    kernels.reserveScratch(stepFloats(adapter.model.config, adapter.lora.rank, rows, columns));
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new EngineInputError(
      `no room to train on ${rows} tokens at once (data[${longest}].model_input has ${lengths[longest]}): ${error.message}`,
    );
  }
}

async function trainingStep(
  kernels: Kernels,
  adapter: Adapter,
  call: ForwardBackwardCall,
  data: EngineDatum[],
  sums: LossSums,
): Promise<Float32Array> {
  const { model, weights: lora } = adapter;
  const gradients = call.forwardOnly ? null : adapter.gradients;
  const mark = kernels.mark();
  try {
    const packed = packSequences(
      kernels,
      data.map((datum) => datum.tokens),
    );
    const targetsPerToken = data[0]!.targetsPerToken;
    const targets = new Int32Array(packed.rows * targetsPerToken);
    let at = 0;
    for (const datum of data) {
      targets.set(datum.targetTokens, at);
      at += datum.targetTokens.length;
    }
    const kept = decoderForward(kernels, model, packed, lora);
    const dhidden = gradients ? kernels.scratch(packed.rows * model.config.hiddenSize) : null;
    const result = await lossHead(
      kernels,
      model,
      kept,
      targets,
      targetsPerToken,
      call.lossFn,
      gatherLossInputs(data, call.lossFnConfig),
      sums,
      lora,
      dhidden && { dhidden, gradients: { lora: gradients, head: null } },
    );
    if (dhidden) {
      decoderBackward(kernels, model, kept, dhidden, result.activeRows, lora, {
        lora: gradients,
        weights: null,
      });
    }
    return result.logprobs;
  } finally {
    kernels.release(mark);
  }
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
