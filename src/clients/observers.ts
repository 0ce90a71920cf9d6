import { inSpan, type OpenSpan, type SpanAttributes, type SpanOptions } from "../session/index.js";
import type { Datum, SampleRequest, SampleResponse } from "../wire/index.js";

/** The base model of a client: known when it was made, or asked of the server when someone needs it. */
export class BaseModelName {
  /** Undefined until the server has been asked. */
  known: string | undefined;
  readonly #ask: () => Promise<string | undefined>;
  #asking: Promise<string | undefined> | undefined;

  constructor(known: string | undefined, ask: () => Promise<string | undefined>) {
    this.known = known;
    this.#ask = ask;
  }

  /** The name; undefined if the server does not tell. */
  resolve(): Promise<string | undefined> {
    if (this.known !== undefined) return Promise.resolve(this.known);
    this.#asking ??= this.#ask().then(
      (name) => {
        this.known = name;
        return name;
      },
      () => undefined,
    );
    return this.#asking;
  }
}

/** A request that costs tokens. */
export type TokenRequest = { readonly model: BaseModelName } & (
  | { readonly type: "sample"; readonly request: SampleRequest; readonly kind: "sample" | "logprobs" }
  | { readonly type: "pass"; readonly kind: "forward" | "forward_backward"; readonly data: readonly Datum[] }
);

/** How a request ended. */
export type TokenOutcome = { readonly response?: SampleResponse | undefined } | { readonly error: unknown };

/** Sees every request that costs tokens; the returned function is called at its end. */
export type TokenObserver = (request: TokenRequest) => (outcome: TokenOutcome) => void;

/** Observers of the requests of a service client, and of the clients that it was cloned from. */
export class TokenObservers {
  readonly #own = new Set<TokenObserver>();
  readonly #parent: TokenObservers | undefined;

  constructor(parent?: TokenObservers) {
    this.#parent = parent;
  }

  /** Adds an observer; the returned function removes it. */
  add(observer: TokenObserver): () => void {
    this.#own.add(observer);
    return () => void this.#own.delete(observer);
  }

  #begin(request: TokenRequest): (outcome: TokenOutcome) => void {
    const ends = [...this.#all()].map((observer) => observer(request));
    return (outcome) => {
      for (const end of ends) end(outcome);
    };
  }

  /** Does the work of a request in a span of its own, seen by everybody. */
  watch<T>(
    request: TokenRequest,
    work: (span: OpenSpan) => Promise<T>,
    responseOf: (result: T) => SampleResponse | undefined = () => undefined,
  ): Promise<T> {
    const { name, ...options } = spanOf(request);
    return inSpan(name, options, async (span) => {
      const end = this.#begin(request);
      try {
        const result = await work(span);
        const response = responseOf(result);
        if (response !== undefined) span.set(responseAttributes(response));
        end({ response });
        return result;
      } catch (error) {
        end({ error });
        throw error;
      }
    });
  }

  *#all(): Generator<TokenObserver> {
    yield* this.#own;
    if (this.#parent !== undefined) yield* this.#parent.#all();
  }
}

/** OpenTelemetry's attributes for generative models, where it has some. */
function spanOf(observed: TokenRequest): SpanOptions & { readonly name: string } {
  const model = observed.model.known;
  const common = { "gen_ai.provider.name": "tinker", "gen_ai.request.model": model };
  const named = (operation: string) => (model === undefined ? operation : `${operation} ${model}`);
  if (observed.type === "pass") {
    const { kind, data } = observed;
    const tokens = data.reduce((sum, { modelInput }) => sum + modelInput.length, 0);
    return {
      name: named(kind),
      kind: "client",
      category: "train",
      attributes: { ...common, "tinkerts.datums": data.length, "tinkerts.tokens": tokens },
    };
  }
  const { prompt, numSamples, samplingParams: { stop, ...params } = {} } = observed.request;
  const operation = observed.kind === "sample" ? "text_completion" : "logprobs";
  return {
    name: named(operation),
    kind: "client",
    category: "sample",
    attributes: {
      ...common,
      "gen_ai.operation.name": operation,
      "gen_ai.request.choice.count": numSamples ?? 1,
      "gen_ai.request.max_tokens": params.maxTokens,
      "gen_ai.request.temperature": params.temperature ?? 1,
      "gen_ai.request.top_p": params.topP,
      "gen_ai.request.top_k": params.topK === -1 ? undefined : params.topK,
      "gen_ai.request.seed": params.seed,
      "gen_ai.request.stop_sequences": stop === undefined ? undefined : [stop].flat().map(String),
      "gen_ai.usage.input_tokens": prompt.length,
    },
  };
}

function responseAttributes({ sequences, promptCacheHitTokens }: SampleResponse): SpanAttributes {
  return {
    "gen_ai.response.finish_reasons": sequences.map(({ stopReason }) => stopReason),
    "gen_ai.usage.output_tokens": sequences.reduce((sum, { tokens }) => sum + tokens.length, 0),
    "gen_ai.usage.cache_read.input_tokens": promptCacheHitTokens,
  };
}
