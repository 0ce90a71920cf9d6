import type { SamplingClient } from "../clients/index.js";
import { TinkerError } from "../errors.js";
import type { SampleConstraint, SampleResponse, SamplingParams, StopReason } from "../wire/index.js";
import { ConversationError, type PreparedAnswer } from "./prepare-answer.js";

/** A token and its logprob. */
export type ScoredToken = readonly [token: number, logprob: number];

/** An event of the samples of one prompt. */
export type TokenEvent =
  | {
      readonly type: "token";
      /** The number of the sample. */
      readonly sample: number;
      readonly scored: ScoredToken;
      /** The likeliest tokens at this position, best first. */
      readonly top: readonly ScoredToken[];
    }
  | { readonly type: "end"; readonly sample: number; readonly stopReason: StopReason }
  /** Once, when all samples are done; before their tokens, unless these are reported as they are drawn. */
  | { readonly type: "response"; readonly response: SampleResponse };

/** How answers are sampled. */
export interface TokenSettings extends Omit<SamplingParams, "stop"> {
  /** Default: 1. */
  readonly numSamples?: number | undefined;
  /** Number of likeliest tokens reported at each position. Default: 0. */
  readonly topLogprobs?: number | undefined;
  /** Report tokens as they are sampled; otherwise when all samples are done. */
  readonly isLive: boolean;
  readonly signal?: AbortSignal | undefined;
}

/** Anything that samples: an engine in this process, or a sampling client of any Tinker server. */
export interface TokenSource {
  /** Draws samples of a prepared answer. Leaving the loop ends the sampling. */
  sample(prepared: PreparedAnswer, settings: TokenSettings): AsyncIterable<TokenEvent>;
}

/** The methods of a sampling client that a token source uses. Without `stream`, tokens come when all are there. */
export type TokenSampler = Pick<SamplingClient, "sample"> &
  Partial<Pick<SamplingClient, "stream" | "canConstrain">>;

/** The constraint of an answer that has to be JSON or a call; undefined for other answers. */
export function constraintOf({
  shape,
  responseFormat,
}: Pick<PreparedAnswer, "shape" | "responseFormat">): SampleConstraint | undefined {
  return shape === undefined ? responseFormat : { type: "shape", shape };
}

/** Whether a sampler can keep its samples to a constraint. */
export async function canConstrain(sampler: TokenSampler): Promise<boolean> {
  return sampler.stream !== undefined && (await sampler.canConstrain?.()) === true;
}

/**
 * A token source over a sampling client; each of its requests carries these headers too. Unless `constrains` says that
 * the server keeps samples to a constraint, a response format is refused, and a call can only be begun in the prompt.
 */
export function samplerSource(
  sampler: TokenSampler,
  headers: Readonly<Record<string, string | undefined>> = {},
  constrains = false,
): TokenSource {
  return {
    async *sample(prepared, { numSamples, topLogprobs, isLive, signal, ...params }) {
      const { prompt, stop, responseFormat, shape, prefillTokens } = prepared;
      const constraint = constrains ? constraintOf(prepared) : undefined;
      if (constraint === undefined && responseFormat !== undefined)
        throw new ConversationError(
          "responseFormat",
          "must be text with a sampling client: requests to a Tinker server cannot constrain what is sampled.",
        );
      if (constraint === undefined && shape !== undefined && prefillTokens.length === 0)
        throw new ConversationError(
          "toolChoice",
          "cannot be forced with a sampling client: in this model's format no prompt can begin a call, and requests to a " +
            "Tinker server cannot constrain what is sampled. Ask for the call in the prompt, or take a renderer of the " +
            "family that does not think.",
        );
      const request = {
        prompt,
        numSamples,
        samplingParams: { ...params, stop: constraint === undefined ? stop : constrainedStop(prepared) },
        ...(topLogprobs && { topkSampleLogprobs: topLogprobs }),
        ...(constraint && { constraint }),
      };
      const reported = new ReportedSamples();
      if (sampler.stream === undefined || (constraint === undefined && !isLive)) {
        yield* reported.rest(await sampler.sample(request, { signal, headers }));
        return;
      }
      const stream = sampler.stream(request, { signal, headers });
      for await (const { sequence, token, logprob, topk = [], stopReason } of stream)
        yield* reported.next(sequence, [token, logprob], topk, stopReason);
      yield* reported.rest(await stream.result);
    },
  };
}

/** JSON and calls end by themselves: the format's stop texts could cut them short. */
function constrainedStop({ renderer, stopTokens, stopTexts }: PreparedAnswer): PreparedAnswer["stop"] {
  if (stopTexts.length === 0) return stopTokens;
  return [...stopTokens.map((token) => renderer.tokenizer.decode([token])), ...stopTexts];
}

/** The samples of a prompt, whole. */
export async function wholeSamples(
  source: TokenSource,
  prepared: PreparedAnswer,
  settings: Omit<TokenSettings, "isLive">,
): Promise<SampleResponse> {
  for await (const event of source.sample(prepared, { ...settings, isLive: false }))
    if (event.type === "response") return event.response;
  throw new TinkerError("The token source gave no samples.");
}

/** Remembers which tokens of a prompt's samples were reported as they were drawn, so that the others follow with the response. */
export class ReportedSamples {
  readonly #reported: number[] = [];
  readonly #ended = new Set<number>();

  next(
    sample: number,
    scored: ScoredToken,
    top: readonly ScoredToken[],
    stopReason: StopReason | undefined,
  ): TokenEvent[] {
    this.#reported[sample] = (this.#reported[sample] ?? 0) + 1;
    const event = { type: "token", sample, scored, top } as const;
    return stopReason === undefined ? [event] : [event, ...this.#end(sample, stopReason)];
  }

  /** The response, and those of its tokens that were not reported yet. */
  rest(response: SampleResponse): TokenEvent[] {
    const events: TokenEvent[] = [{ type: "response", response }];
    for (const [sample, { tokens, logprobs, topkLogprobs, stopReason }] of response.sequences.entries()) {
      for (let place = this.#reported[sample] ?? 0; place < tokens.length; place += 1) {
        const scored: ScoredToken = [tokens[place]!, logprobs?.[place] ?? 0];
        events.push({ type: "token", sample, scored, top: topkLogprobs?.[place] ?? [] });
      }
      events.push(...this.#end(sample, stopReason));
    }
    return events;
  }

  #end(sample: number, stopReason: StopReason): TokenEvent[] {
    if (this.#ended.has(sample)) return [];
    this.#ended.add(sample);
    return [{ type: "end", sample, stopReason }];
  }
}
