import type { PublishedLoss } from "../../../../wire/training/losses.js";
import type { F32, TokenGradients } from "../kernels.js";
import { shaderVariants } from "./shader.js";
import type { GpuContext } from "./webgpu-kernels.js";

type LossBuffer = "weights" | "advantages" | "sampled" | "clip_low" | "clip_high";

const RATIO_BUFFERS = ["weights", "advantages", "sampled"] as const;
const CLIP_BUFFERS = [...RATIO_BUFFERS, "clip_low", "clip_high"] as const;

/** Inputs of a loss besides logprobs, and minus its gradient at a weight of one; the formulas are those of token-losses.ts. */
const LOSSES: Record<PublishedLoss, { buffers: readonly LossBuffer[]; gain: string }> = {
  cross_entropy: { buffers: ["weights"], gain: "return 1.0;" },
  importance_sampling: {
    buffers: RATIO_BUFFERS,
    gain: "return ratio(i) * advantages[p.advantages_at + i];",
  },
  ppo: {
    buffers: CLIP_BUFFERS,
    gain: /* wgsl */ `
  let advantage = advantages[p.advantages_at + i];
  let free = ratio(i) * advantage;
  return select(free, 0.0, clipped(i) * advantage < free);`,
  },
  cispo: { buffers: CLIP_BUFFERS, gain: "return clipped(i) * advantages[p.advantages_at + i];" },
  dro: {
    buffers: RATIO_BUFFERS,
    gain: "return advantages[p.advantages_at + i] - p.beta * difference(i);",
  },
};

const DIFFERENCE = /* wgsl */ `
fn difference(i: u32) -> f32 { return logprobs[p.logprobs_at + i] - sampled[p.sampled_at + i]; }
fn ratio(i: u32) -> f32 { return exp(difference(i)); }`;
const CLIPPED = /* wgsl */ `
fn clipped(i: u32) -> f32 { return min(max(ratio(i), clip_low[p.clip_low_at + i]), clip_high[p.clip_high_at + i]); }`;

const TOKEN_GRADIENTS = shaderVariants((loss: PublishedLoss) => {
  const { buffers, gain } = LOSSES[loss];
  const skips = loss !== "cross_entropy" && loss !== "dro";
  return {
    name: `token-gradients ${loss}`,
    buffers: Object.fromEntries(["gradients", "logprobs", ...buffers].map((name) => [name, "f32"])) as Record<
      "gradients" | "logprobs" | LossBuffer,
      "f32"
    >,
    ints: ["count"],
    floats: ["beta"],
    code: /* wgsl */ `
${buffers.length > 1 ? DIFFERENCE : ""}
${buffers.length > 3 ? CLIPPED : ""}
fn gain(i: u32) -> f32 { ${gain} }

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = flat(group) * 64u + lane;
  if (i >= p.count) { return; }
  let weight = weights[p.weights_at + i];
  var gradient = 0.0;
  // Not a product with zero: the ratio of a token that does not count may be infinite.
  if (weight != 0.0${skips ? " && advantages[p.advantages_at + i] != 0.0" : ""}) { gradient = -weight * gain(i); }
  gradients[p.gradients_at + i] = gradient;
}`,
  };
});

/** Only what the loss reads is bound. */
export function tokenGradients({ queue }: GpuContext, operation: TokenGradients): void {
  const { gradients, logprobs, loss, inputs, count } = operation;
  const buffers: Record<"gradients" | "logprobs" | LossBuffer, F32> = {
    gradients,
    logprobs,
    weights: inputs.weights,
    advantages: inputs.advantages,
    sampled: inputs.logprobs,
    clip_low: inputs.clipLowThreshold,
    clip_high: inputs.clipHighThreshold,
  };
  queue.run(TOKEN_GRADIENTS(loss), {
    buffers,
    params: { count, beta: inputs.beta },
    workgroups: Math.ceil(count / 64),
  });
}
