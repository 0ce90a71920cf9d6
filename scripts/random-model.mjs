// Models with random weights, made tensor by tensor as they are read: real sizes without a download or a disk.
import { fromFloat32 } from "../dist/checkpoints/safetensors.js";

/** Values that are drawn, and then repeat: a prime, so that no two rows of a matrix are the same. */
const DRAWN_VALUES = 1_000_003;

/** @param {number} seed @returns {() => number} uniform in [0, 1), the same for the same seed */
export function seededRandom(seed) {
  let state = (seed * 0x9e3779b9) >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let bits = Math.imul(state ^ (state >>> 15), state | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** @param {() => number} random @returns {number} of a normal distribution */
export const normal = (random) => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());

/** What a Hugging Face folder with this `config.json` names its tensors, with their shapes. */
export function modelTensors(config) {
  const { hidden_size: hidden, intermediate_size: intermediate, vocab_size: vocabulary } = config;
  const headSize = config.head_dim ?? hidden / config.num_attention_heads;
  const queries = headSize * config.num_attention_heads;
  const keys = headSize * (config.num_key_value_heads ?? config.num_attention_heads);
  const isQwen2 = config.model_type === "qwen2";
  const tensors = new Map([["model.embed_tokens.weight", [vocabulary, hidden]]]);
  for (let layer = 0; layer < config.num_hidden_layers; layer += 1) {
    const add = (name, ...shape) => tensors.set(`model.layers.${layer}.${name}`, shape);
    const projection = (name, outputs, inputs, hasBias) => {
      add(`self_attn.${name}_proj.weight`, outputs, inputs);
      if (hasBias) add(`self_attn.${name}_proj.bias`, outputs);
    };
    for (const [name, outputs] of [
      ["q", queries],
      ["k", keys],
      ["v", keys],
    ])
      projection(name, outputs, hidden, isQwen2 || config.attention_bias);
    projection("o", hidden, queries, !isQwen2 && config.attention_bias);
    for (const name of ["gate", "up"]) add(`mlp.${name}_proj.weight`, intermediate, hidden);
    add("mlp.down_proj.weight", hidden, intermediate);
    for (const name of ["input", "post_attention"]) add(`${name}_layernorm.weight`, hidden);
    if (config.model_type === "qwen3")
      for (const name of ["q", "k"]) add(`self_attn.${name}_norm.weight`, headSize);
  }
  tensors.set("model.norm.weight", [hidden]);
  if (!config.tie_word_embeddings) tensors.set("lm_head.weight", [vocabulary, hidden]);
  return tensors;
}

/**
 * @param {object} config as a `config.json` has it
 * @param {{ dtype?: "BF16" | "F16" | "F32", deviation?: number, seed?: number, values?: number }} [options] norms are around 1, all else around 0
 * @returns `ModelFiles` of the engine
 */
export function randomModel(
  config,
  { dtype = "BF16", deviation = 0.02, seed = 1, values = DRAWN_VALUES } = {},
) {
  const shapes = modelTensors(config);
  const random = seededRandom(seed);
  const noise = Float32Array.from({ length: values }, () => deviation * normal(random));
  const pools = {
    weight: fromFloat32(noise, dtype),
    norm: fromFloat32(
      noise.map((value) => 1 + value),
      dtype,
    ),
  };
  const valueBytes = pools.weight.length / values;
  const starts = new Map(
    [...shapes.keys()].map((name) => [name, Math.floor(random() * values) * valueBytes]),
  );
  return {
    path: "random weights",
    config,
    tensors: new Map([...shapes].map(([name, shape]) => [name, { dtype, shape }])),
    read(name) {
      const shape = shapes.get(name);
      const pool = /norm\.weight$/.test(name) ? pools.norm : pools.weight;
      const bytes = new Uint8Array(shape.reduce((product, size) => product * size, valueBytes));
      let from = starts.get(name);
      for (let at = 0; at < bytes.length; ) {
        const piece = pool.subarray(from, from + bytes.length - at);
        bytes.set(piece, at);
        at += piece.length;
        from = 0;
      }
      return { dtype, shape, bytes };
    },
    close() {},
  };
}
