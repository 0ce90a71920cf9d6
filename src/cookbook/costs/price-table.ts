import type { TokenPrices } from "./token-counts.js";

/** Prices of a model at one context length, in dollars per million tokens. */
export interface PublishedPrices extends TokenPrices {
  /** Prices without the discount that the others include. */
  readonly withoutDiscount?: TokenPrices | undefined;
  /** First day (YYYY-MM-DD) without the discount, where it was announced. */
  readonly discountEnds?: string | undefined;
}

/** The hosted service's prices on one day. */
export interface PriceTable {
  /** Where the service publishes them. */
  readonly source: string;
  /** The day of the copy (YYYY-MM-DD). */
  readonly asOf: string;
  /** How the copy was made. */
  readonly note: string;
  readonly storageUsdPerGigabyteMonth: number;
  /** By name; a longer context has a name of its own, such as `:peft:262144`. */
  readonly models: Readonly<Record<string, PublishedPrices>>;
  /** Models whose price is not known, and why. */
  readonly unknown: Readonly<Record<string, string>>;
}

function prices(prefill: number, cachedPrefill: number, sample: number, train: number): TokenPrices {
  return { prefill, cachedPrefill, sample, train };
}

const QWEN_27B = prices(1.86, 0.372, 5.595, 4.103);
const QWEN_9B = prices(0.66, 0.132, 1.995, 1.463);
const QWEN_35B_A3B = prices(0.54, 0.108, 1.335, 1.177);

const RETIRED = "no longer offered by the hosted service";
const NOT_LISTED = "not in the copy of the price list";

/** The hosted service's published prices. Replace the whole table when they change. */
export const PRICE_TABLE: PriceTable = {
  source: "https://tinker-docs.thinkingmachines.ai/tinker/models.json",
  asOf: "2026-09-29",
  note:
    "Taken from dated public copies of the list (July to October 2026), compared with one another, and not from the " +
    "list itself. They name no end of a discount.",
  storageUsdPerGigabyteMonth: 0.1,
  models: {
    // Only the built-in backend has it.
    "tinkerts/nano": prices(0, 0, 0, 0),
    "thinkingmachines/Inkling": {
      ...prices(1.87, 0.374, 4.68, 5.61),
      withoutDiscount: prices(3.74, 0.748, 9.36, 11.22),
    },
    "thinkingmachines/Inkling:peft:262144": prices(3.74, 0.748, 9.36, 11.23),
    "thinkingmachines/Inkling-Small": {
      ...prices(0.58, 0.116, 1.44, 1.73),
      withoutDiscount: prices(1.16, 0.232, 2.88, 3.46),
    },
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": prices(2.49, 0.498, 6.225, 5.478),
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16:peft:262144": prices(3.32, 0.664, 8.3, 9.96),
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16": {
      ...prices(0.57, 0.114, 1.44, 1.276),
      withoutDiscount: prices(1.14, 0.228, 2.88, 2.552),
    },
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16:peft:262144": prices(0.76, 0.152, 1.92, 2.32),
    "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16": {
      ...prices(0.195, 0.039, 0.495, 0.44),
      withoutDiscount: prices(0.39, 0.078, 0.99, 0.88),
    },
    "zai-org/GLM-5.3:peft:262144": prices(4.86, 0.972, 12.15, 14.58),
    "moonshotai/Kimi-K2.6": prices(2.205, 0.441, 5.49, 4.84),
    "moonshotai/Kimi-K2.6:peft:131072": prices(5.15, 1.03, 12.81, 15.4),
    "Qwen/Qwen3.8-27B": QWEN_27B,
    "Qwen/Qwen3.8-27B:peft:262144": prices(2.48, 0.496, 7.46, 7.46),
    "Qwen/Qwen3.6-27B": QWEN_27B,
    "Qwen/Qwen3.6-35B-A3B": QWEN_35B_A3B,
    "Qwen/Qwen3.5-397B-A17B": prices(3, 0.6, 7.5, 6.6),
    "Qwen/Qwen3.5-397B-A17B:peft:262144": prices(4, 0.8, 10, 12),
    "Qwen/Qwen3.5-35B-A3B-Base": QWEN_35B_A3B,
    "Qwen/Qwen3.5-9B": QWEN_9B,
    "Qwen/Qwen3.5-9B-Base": QWEN_9B,
    "Qwen/Qwen3.5-4B": prices(0.33, 0.066, 1.005, 0.737),
    "Qwen/Qwen3-8B": prices(0.195, 0.039, 0.6, 0.44),
    "openai/gpt-oss-120b": prices(0.33, 0.066, 0.84, 0.737),
    "openai/gpt-oss-120b:peft:131072": prices(0.78, 0.156, 1.94, 2.33),
    "openai/gpt-oss-20b": prices(0.18, 0.036, 0.45, 0.396),
    "deepseek-ai/DeepSeek-V3.1": prices(1.695, 0.339, 4.215, 3.718),
  },
  unknown: {
    "zai-org/GLM-5.3": "only listed with a context of 256K, as zai-org/GLM-5.3:peft:262144",
    "zai-org/GLM-5.3-Flash": NOT_LISTED,
    "moonshotai/Kimi-K3.1-Pro": NOT_LISTED,
    "thinkingmachines/Inkling-2-Small": NOT_LISTED,
    "deepseek-ai/DeepSeek-V4.1-Flash": NOT_LISTED,
    "deepseek-ai/DeepSeek-V4.1-Flash-1017": NOT_LISTED,
    "nvidia/NVIDIA-Nemotron-3.5-Super-VL-120B-A12B-BF16": NOT_LISTED,
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "the copies of the price list disagree about its discount",
    "Qwen/Qwen3.5-27B": NOT_LISTED,
    "Qwen/Qwen3.5-35B-A3B": NOT_LISTED,
    "Qwen/Qwen3-VL-30B-A3B-Instruct": RETIRED,
    "Qwen/Qwen3-VL-235B-A22B-Instruct": RETIRED,
    "Qwen/Qwen3-8B-Base": RETIRED,
    "Qwen/Qwen3-30B-A3B-Base": RETIRED,
    "Qwen/Qwen3-32B": RETIRED,
    "Qwen/Qwen3-30B-A3B": RETIRED,
    "Qwen/Qwen3-4B-Instruct-2507": RETIRED,
    "Qwen/Qwen3-30B-A3B-Instruct-2507": RETIRED,
    "Qwen/Qwen3-235B-A22B-Instruct-2507": RETIRED,
    "meta-llama/Llama-3.1-8B-Instruct": RETIRED,
    "meta-llama/Llama-3.2-1B": RETIRED,
    "meta-llama/Llama-3.2-3B": RETIRED,
    "meta-llama/Llama-3.1-8B": RETIRED,
    "meta-llama/Llama-3.1-70B": RETIRED,
    "meta-llama/Llama-3.3-70B-Instruct": RETIRED,
    "deepseek-ai/DeepSeek-V3.1-Base": RETIRED,
    "moonshotai/Kimi-K2-Thinking": RETIRED,
    "moonshotai/Kimi-K2.5": RETIRED,
  },
};
