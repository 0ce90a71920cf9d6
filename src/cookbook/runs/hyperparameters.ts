/** Default rank of a new adapter: enough for most data sets, and the rank in the Python cookbook's recipes. */
export const DEFAULT_RANK = 32;

/** Default of the Python cookbook's training loop. */
const FALLBACK_LEARNING_RATE = 1e-4;

/** Learning rates found by experiment, for models outside the formula. */
const TRIED_RATES: TriedRates = { "tinkerts/nano": 2e-3 };

const FULL_FINE_TUNING_RATE = 5e-5;
/** LoRA needs about ten times the rate of full fine-tuning ("LoRA Without Regret", thinkingmachines.ai/blog/lora). */
const LORA_FACTOR = 10;
const REFERENCE_HIDDEN_SIZE = 2000;
/**
 * Exponent with which the best rate falls with the model's width, fitted per family by the authors of the Tinker
 * cookbook.
 */
const WIDTH_EXPONENTS: readonly (readonly [family: string, exponent: number])[] = [
  ["llama", 0.781],
  ["qwen", 0.0775],
];

const HIDDEN_SIZES: Readonly<Record<string, number>> = {
  "meta-llama/Llama-3.2-1B": 2048,
  "meta-llama/Llama-3.2-3B": 3072,
  "meta-llama/Llama-3.1-8B": 4096,
  "meta-llama/Llama-3.1-8B-Instruct": 4096,
  "meta-llama/Llama-3.1-70B": 8192,
  "meta-llama/Llama-3.3-70B-Instruct": 8192,
  "Qwen/Qwen3-235B-A22B-Instruct-2507": 4096,
  "Qwen/Qwen3-30B-A3B-Instruct-2507": 2048,
  "Qwen/Qwen3-30B-A3B": 2048,
  "Qwen/Qwen3-30B-A3B-Base": 2048,
  "Qwen/Qwen3-32B": 5120,
  "Qwen/Qwen3-8B": 4096,
  "Qwen/Qwen3-8B-Base": 4096,
  "Qwen/Qwen3-4B-Instruct-2507": 2560,
  "Qwen/Qwen3-VL-235B-A22B-Instruct": 4096,
  "Qwen/Qwen3-VL-30B-A3B-Instruct": 2048,
  "Qwen/Qwen3.5-397B-A17B": 4096,
  "Qwen/Qwen3.5-35B-A3B": 2048,
  "Qwen/Qwen3.5-35B-A3B-Base": 2048,
  "Qwen/Qwen3.5-27B": 5120,
  "Qwen/Qwen3.5-9B": 4096,
  "Qwen/Qwen3.5-9B-Base": 4096,
  "Qwen/Qwen3.5-4B": 2560,
  "Qwen/Qwen3.6-27B": 5120,
  "Qwen/Qwen3.6-35B-A3B": 2048,
  "Qwen/Qwen3.8-27B": 5120,
};

/** A learning rate and the reason for it. */
export interface LearningRateAdvice {
  readonly learningRate: number;
  readonly reason: string;
}

/**
 * Recommended LoRA learning rate for a model: 5e-5 x 10 x (2000 / hidden size)^p, with p fitted for Llama (0.781) and
 * Qwen (0.0775); 1e-4 for models without a fitted value.
 */
export function recommendedLearningRate(model: string): number {
  return learningRateAdvice(model).learningRate;
}

/** Recommended learning rate with its reason, for display. */
export function learningRateAdvice(model: string): LearningRateAdvice {
  // A suffix like `:peft:262144` names a variant of the same weights.
  const [name = model] = model.split(":");
  return adviceOf(name, TRIED_RATES, fittedRate);
}

/** Learning rates found by experiment, by model name. */
export type TriedRates = Readonly<Record<string, number>>;

/** The rate found by experiment for a model, or else another one. */
export function adviceOf(
  model: string,
  tried: TriedRates,
  otherwise: (model: string) => LearningRateAdvice,
): LearningRateAdvice {
  const learningRate = Object.hasOwn(tried, model) ? tried[model] : undefined;
  if (learningRate === undefined) return otherwise(model);
  return { learningRate, reason: `found by trying for ${model}` };
}

function fittedRate(name: string): LearningRateAdvice {
  const family = WIDTH_EXPONENTS.find(([word]) => name.toLowerCase().includes(word));
  const hiddenSize = Object.hasOwn(HIDDEN_SIZES, name) ? HIDDEN_SIZES[name] : undefined;
  if (family === undefined || hiddenSize === undefined) {
    const missing = family === undefined ? "has no fitted formula" : "has an unknown width";
    return {
      learningRate: FALLBACK_LEARNING_RATE,
      reason: `a cautious one, as ${name} ${missing}; try two or three times as much`,
    };
  }
  const [word, exponent] = family;
  return {
    learningRate: FULL_FINE_TUNING_RATE * LORA_FACTOR * (REFERENCE_HIDDEN_SIZE / hiddenSize) ** exponent,
    reason: `fitted for ${word === "qwen" ? "Qwen" : "Llama"} models of width ${hiddenSize}`,
  };
}

const LEAST_STEPS_PER_EPOCH = 20;
const LEAST_BATCH_SIZE = 4;
const MAX_BATCH_SIZE = 128;

/** A power of two from 4 to 128 that leaves at least 20 steps in an epoch if there are enough rows. */
export function recommendedBatchSize(rowCount: number): number {
  let size = LEAST_BATCH_SIZE;
  while (size < MAX_BATCH_SIZE && rowCount / (size * 2) >= LEAST_STEPS_PER_EPOCH) size *= 2;
  return size;
}
