// A random case of the fuzz: model, adapter, batches, optimizer and prompts, all from one seed.
import { normal, randomModel, seededRandom } from "../random-model.mjs";

const POLICY_LOSSES = ["importance_sampling", "ppo", "cispo", "dro"];
const SAMPLE_TOKENS = 6;

/** Few sizes, so that few shaders have to be made; among them odd multiples of two. */
const HEAD_SIZES = [2, 6, 10, 16, 22, 32, 64];

/** @param {number} seed */
export function fuzzCase(seed) {
  const random = seededRandom(seed);
  const whole = (least, most) => least + Math.floor(random() * (most - least + 1));
  const pick = (list) => list[whole(0, list.length - 1)];
  const chance = (share) => random() < share;
  const draw = { random, whole, pick, chance };

  const config = randomConfig(draw);
  const dtype = pick(["BF16", "F16", "F32"]);
  const lora = randomLora(draw);
  const losses = Array.from({ length: 3 }, () => pick(["cross_entropy", "cross_entropy", ...POLICY_LOSSES]));
  const sizes = {
    // Steps of one sequence, or of all; the head in one piece, or in several.
    trainingTokens: pick([8192, 8192, 24]),
    headLogits: pick([1 << 22, 7 * config.vocab_size]),
    isRecomputing: chance(0.4),
  };
  const prompts = Array.from({ length: whole(1, 3) }, () => tokens(draw, config, whole(1, 40)));
  return {
    seed,
    summary: { seed, config, dtype, lora, losses, sizes, prompts: prompts.map(({ length }) => length) },
    model: {
      name: "fuzz",
      open: () => randomModel(config, { dtype, deviation: 0.15, seed, values: 40_009 }),
    },
    lora,
    sizes,
    calls: losses.map((loss) => trainingCall(draw, config, loss)),
    adam: {
      learningRate: pick([1e-3, 1e-2]),
      beta1: 0.9,
      beta2: pick([0.95, 0.999]),
      // Not much smaller: where a gradient is nothing but rounding, AdamW would make a whole step of it.
      eps: pick([1e-4, 1e-3]),
      weightDecay: pick([0, 0.1]),
      gradClipNorm: pick([0, 0.5]),
    },
    samples: prompts.map((prompt, index) => ({
      prompt,
      numSamples: index === 0 ? whole(1, 3) : 1,
      maxTokens: SAMPLE_TOKENS,
    })),
  };
}

function randomConfig({ whole, pick, chance }) {
  const model_type = pick(["llama", "qwen2", "qwen3", "mistral"]);
  const num_key_value_heads = whole(1, 3);
  const max_position_embeddings = 64;
  const rope = pick([
    undefined,
    { rope_type: "linear", factor: 2.5 },
    {
      rope_type: "llama3",
      factor: 8,
      low_freq_factor: 1,
      high_freq_factor: 4,
      original_max_position_embeddings: 32,
    },
  ]);
  return {
    model_type,
    hidden_size: chance(0.5) ? 8 * whole(1, 10) : whole(5, 80),
    num_hidden_layers: whole(1, 3),
    num_attention_heads: num_key_value_heads * whole(1, 4),
    num_key_value_heads,
    head_dim: pick(HEAD_SIZES),
    intermediate_size: chance(0.5) ? 16 * whole(1, 8) : whole(3, 130),
    vocab_size: chance(0.5) ? 64 * whole(1, 8) : whole(11, 700),
    max_position_embeddings,
    rms_norm_eps: pick([1e-6, 1e-5]),
    rope_theta: pick([1e4, 1e6]),
    tie_word_embeddings: chance(0.5),
    attention_bias: model_type === "llama" && chance(0.5),
    hidden_act: "silu",
    ...(model_type === "mistral" && { sliding_window: null }),
    ...(rope && { rope_scaling: rope }),
  };
}

function randomLora({ whole, chance }) {
  const parts = { trainAttn: chance(0.7), trainMlp: chance(0.7), trainUnembed: chance(0.7) };
  if (!Object.values(parts).includes(true)) parts.trainAttn = true;
  return { rank: whole(1, 20), seed: whole(1, 1000), ...parts };
}

const tokens = ({ whole }, { vocab_size }, length) =>
  Int32Array.from({ length }, () => whole(0, vocab_size - 1));

function trainingCall(draw, config, lossFn) {
  const { random, whole, pick, chance } = draw;
  const isPolicy = lossFn !== "cross_entropy";
  const clipped = lossFn === "ppo" || lossFn === "cispo";
  const data = Array.from({ length: whole(1, 5) }, () => {
    const length = whole(1, 40);
    const targetsPerToken = isPolicy || chance(0.7) ? 1 : whole(2, 4);
    const count = length * targetsPerToken;
    const floats = (make) => Float32Array.from({ length: count }, make);
    return {
      tokens: tokens(draw, config, length),
      targetTokens: tokens(draw, config, count),
      targetsPerToken,
      ...(chance(0.8) && { weights: floats(() => (chance(0.3) ? 0 : normal(random))) }),
      ...(isPolicy && {
        advantages: floats(() => (chance(0.2) ? 0 : normal(random))),
        // About what a model that knows nothing says, so that some ratios are clipped and others are not.
        logprobs: floats(() => -Math.log(config.vocab_size) + 0.5 * normal(random)),
      }),
      ...(clipped &&
        chance(0.5) && {
          clipLowThreshold: floats(() => 0.7 + 0.2 * random()),
          clipHighThreshold: floats(() => 1.1 + 0.2 * random()),
        }),
    };
  });
  const lossFnConfig =
    lossFn === "dro"
      ? { beta: pick([0.05, 0.5]) }
      : clipped && chance(0.5)
        ? { clipLowThreshold: 0.85, clipHighThreshold: 1.25 }
        : {};
  return { adapterId: "a", data, lossFn, lossFnConfig, forwardOnly: false };
}
