import { TinkerError, ValidationError } from "../errors.js";
import { checkKeys, wrongValue } from "../wire/fields/check-keys.js";
import { Datum, ModelInput } from "../wire/index.js";
import { type AnswerMetadata, readAnswerMetadata } from "./answer-metadata.js";

/** What is needed of a step of `generateText` or `streamText`. */
export interface StepLike {
  readonly providerMetadata?: unknown;
  readonly model?: { readonly provider: string; readonly modelId: string } | undefined;
}

/** How good the steps were. */
export interface DatumsFromStepsOptions {
  /** By how much the answers were better than expected: one number for all steps, or one for each. */
  readonly advantage: number | readonly number[];
}

const OPTION_KEYS: ReadonlySet<string> = new Set(["advantage"]);

/** A conversation as one sequence of tokens, with what each was sampled with. Zeros for what was only read. */
interface Sequence {
  readonly tokens: number[];
  readonly logprobs: number[];
  readonly advantages: number[];
}

/**
 * The steps of an agent as datums for `importance_sampling`, `ppo` and their like. A step whose prompt begins with all
 * that was read and sampled before goes on in the same datum; any other begins one of its own.
 */
export function datumsFromSteps(
  result: { readonly steps: readonly StepLike[] } | readonly StepLike[],
  options: DatumsFromStepsOptions,
): Datum[] {
  const steps = "steps" in result ? result.steps : result;
  if (!Array.isArray(steps) || steps.length === 0) {
    throw wrongValue("steps", "the steps of generateText, or the awaited steps of streamText", steps);
  }
  checkKeys(options, OPTION_KEYS, "");
  const advantages = checkAdvantages(options.advantage, steps.length);
  const sequences: Sequence[] = [];
  for (const [index, step] of (steps as readonly StepLike[]).entries()) {
    const { promptTokens, tokens, logprobs } = sampledIn(step, index);
    let sequence = sequences.at(-1);
    if (sequence === undefined || !beginsWith(promptTokens, sequence.tokens)) {
      sequence = { tokens: [], logprobs: [], advantages: [] };
      sequences.push(sequence);
    }
    const read = promptTokens.slice(sequence.tokens.length);
    const zeros = read.map(() => 0);
    sequence.tokens.push(...read, ...tokens);
    sequence.logprobs.push(...zeros, ...logprobs);
    sequence.advantages.push(...zeros, ...tokens.map(() => advantages[index]!));
  }
  return sequences.map(datumOf);
}

function checkAdvantages(advantage: unknown, steps: number): readonly number[] {
  const all: readonly unknown[] = Array.isArray(advantage) ? advantage : new Array(steps).fill(advantage);
  if (all.length !== steps) {
    throw new ValidationError(
      "advantage",
      `advantage must be a number, or one number for each of the ${steps} steps, got ${all.length}`,
    );
  }
  const wrong = all.findIndex((value) => !Number.isFinite(value));
  if (wrong === -1) return all as readonly number[];
  throw wrongValue(
    Array.isArray(advantage) ? `advantage[${wrong}]` : "advantage",
    "a finite number",
    all[wrong],
  );
}

function sampledIn(
  step: StepLike,
  index: number,
): Required<Omit<AnswerMetadata, "stopReason">> & {
  readonly promptTokens: readonly number[];
  readonly logprobs: readonly number[];
} {
  const metadata = readAnswerMetadata(step.providerMetadata);
  if (metadata === undefined) {
    const { provider, modelId } = step.model ?? {};
    const who = provider === undefined ? "another provider" : `${provider} (${modelId})`;
    throw new TinkerError(
      `steps[${index}] was answered by ${who}, and only answers of tinkerts have the tokens to train on.`,
    );
  }
  const { promptTokens, tokens, logprobs } = metadata;
  if (promptTokens === undefined) {
    throw new TinkerError(`steps[${index}] has images in its prompt, of which no datum can be made here.`);
  }
  if (logprobs?.length !== tokens.length) {
    throw new TinkerError(`steps[${index}] has no logprobs of its tokens: the server gave none.`);
  }
  return { promptTokens, tokens, logprobs };
}

function beginsWith(tokens: readonly number[], beginning: readonly number[]): boolean {
  return tokens.length >= beginning.length && beginning.every((token, index) => token === tokens[index]);
}

/** Each position is judged for the token behind it. */
function datumOf({ tokens, logprobs, advantages }: Sequence): Datum {
  return new Datum({
    modelInput: ModelInput.fromInts(tokens.slice(0, -1)),
    lossFnInputs: {
      targetTokens: Int32Array.from(tokens.slice(1)),
      logprobs: Float32Array.from(logprobs.slice(1)),
      advantages: Float32Array.from(advantages.slice(1)),
    },
  });
}
