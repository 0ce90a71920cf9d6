import { TinkerError } from "../../errors.js";

const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const UPPER = "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]";
const LOWER = "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]";
const SPACES = "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const BEFORE_WORD = "[^\\r\\n\\p{L}\\p{N}]?";

/** llama.cpp's names for the patterns that split a text before pairs are merged. */
const NAMES: Readonly<Record<string, string>> = {
  [`${CONTRACTIONS}|${BEFORE_WORD}\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${SPACES}`]: "qwen2",
  [`${CONTRACTIONS}|${BEFORE_WORD}[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|${SPACES}`]:
    "qwen35",
  [`${CONTRACTIONS}|${BEFORE_WORD}\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${SPACES}`]: "llama-bpe",
  [`${BEFORE_WORD}${UPPER}*${LOWER}+|${BEFORE_WORD}${UPPER}+${LOWER}*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${SPACES}`]:
    "tekken",
  [`${BEFORE_WORD}${UPPER}*${LOWER}+${CONTRACTIONS}?|${BEFORE_WORD}${UPPER}+${LOWER}*${CONTRACTIONS}?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${SPACES}`]:
    "gpt-4o",
};

/** llama.cpp's name for the way in which a tokenizer splits a text; refuses ways that it does not know. */
export function splitterName(preTokenizer: unknown, path: string): string {
  const steps = stepsOf(preTokenizer);
  const patterns = steps.map(patternOf).filter((pattern) => pattern !== undefined);
  const usesOwnPattern = steps.some(({ type, use_regex }) => type === "ByteLevel" && use_regex !== false);
  if (patterns.length === 0 && usesOwnPattern) return "gpt-2";
  const name = patterns.length === 1 ? NAMES[patterns[0]!] : undefined;
  if (name !== undefined) return name;
  throw new TinkerError(
    `${path} splits text in a way that llama.cpp has no name for: ${JSON.stringify(patterns).slice(0, 200)}.`,
  );
}

interface Step {
  readonly type?: unknown;
  readonly use_regex?: unknown;
  readonly pattern?: { readonly Regex?: unknown };
  readonly pretokenizers?: unknown;
}

function stepsOf(preTokenizer: unknown): Step[] {
  if (typeof preTokenizer !== "object" || preTokenizer === null) return [];
  const step = preTokenizer as Step;
  return Array.isArray(step.pretokenizers) ? step.pretokenizers.flatMap(stepsOf) : [step];
}

function patternOf({ type, pattern }: Step): string | undefined {
  return type === "Split" && typeof pattern?.Regex === "string" ? pattern.Regex : undefined;
}
