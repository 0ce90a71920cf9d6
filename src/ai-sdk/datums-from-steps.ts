import { TinkerError, ValidationError } from "../errors.js";
import {
  Datum,
  eitherOf,
  type FieldsOf,
  list,
  ModelInput,
  number,
  optionTable,
  wrongValue,
} from "../wire/index.js";
import { type AnswerMetadata, readAnswerMetadata } from "./answer-metadata.js";

/** Part of a step of `generateText` or `streamText` that datums are made from. */
export interface StepLike {
  readonly providerMetadata?: unknown;
  readonly model?: { readonly provider: string; readonly modelId: string } | undefined;
}

/** Reward of the steps. */
export interface DatumsFromStepsOptions {
  /** Advantage of the answers: one number for all steps, or one for each. */
  readonly advantage: number | readonly number[];
}

const DATUMS_OPTIONS = optionTable({
  advantage: eitherOf<readonly number[], number>(Array.isArray, list(number), number),
} satisfies FieldsOf<DatumsFromStepsOptions>);

/**
 * A conversation as one sequence of tokens, with the logprob and advantage of each; 0 for tokens that were only read.
 */
interface Sequence {
  readonly tokens: number[];
  readonly logprobs: number[];
  readonly advantages: number[];
}

/**
 * Turns the steps of an agent into datums for `importance_sampling`, `ppo` and similar losses. A step whose prompt
 * begins with everything that was read and sampled before continues the same datum; any other step begins a new one.
 */
export function datumsFromSteps(
  result: { readonly steps: readonly StepLike[] } | readonly StepLike[],
  options: DatumsFromStepsOptions,
): Datum[] {
  const steps = "steps" in result ? result.steps : result;
  if (!Array.isArray(steps) || steps.length === 0) {
    throw wrongValue("steps", "the steps of generateText, or the awaited steps of streamText", steps);
  }
  const { advantage } = DATUMS_OPTIONS.check(options, "datumsFromSteps");
  const advantages = typeof advantage === "number" ? steps.map(() => advantage) : advantage;
  if (advantages.length !== steps.length)
    throw new ValidationError(
      "advantage",
      `advantage must be a number, or one number for each of the ${steps.length} steps, got ${advantages.length}`,
    );
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
    throw new TinkerError(`steps[${index}] has images in its prompt; datums cannot be made from them here.`);
  }
  if (logprobs?.length !== tokens.length) {
    throw new TinkerError(`steps[${index}] has no logprobs of its tokens: the server gave none.`);
  }
  return { promptTokens, tokens, logprobs };
}

function beginsWith(tokens: readonly number[], beginning: readonly number[]): boolean {
  return tokens.length >= beginning.length && beginning.every((token, index) => token === tokens[index]);
}

/** Each position holds the values of the token after it. */
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
