import type { TokenObserver } from "../../clients/observers.js";
import {
  addModels,
  addTokens,
  NO_TOKENS,
  sumOfModels,
  type TokenCounts,
  type TokensByModel,
} from "./token-counts.js";

type ModelName = Parameters<TokenObserver>[0]["model"];

/** Counts the tokens that the clients of a run send and get, by model. */
export class TokenMeter {
  readonly #known: Map<string, TokenCounts>;
  /** Tokens of models whose name the server has not told yet. */
  readonly #unnamed = new Map<ModelName, TokenCounts>();
  readonly #model: string;
  readonly #onChange: (() => void) | undefined;

  /** `model` stands for models that the server does not name; `before` are tokens of an earlier process. */
  constructor(
    model: string,
    { before = new Map(), onChange }: { before?: TokensByModel; onChange?: (() => void) | undefined } = {},
  ) {
    this.#model = model;
    this.#known = new Map(before);
    this.#onChange = onChange;
  }

  /** Tokens so far, by model. */
  get tokens(): TokensByModel {
    let all: TokensByModel = this.#known;
    for (const counts of this.#unnamed.values()) all = addModels(all, new Map([[this.#model, counts]]));
    return all;
  }

  /** Tokens so far, of all models. */
  get total(): TokenCounts {
    return sumOfModels(this.tokens);
  }

  /** Sees the requests of a service client: `service.observeTokens(meter.observer)`. */
  readonly observer: TokenObserver = (request) => {
    const { model } = request;
    if (request.type === "pass") {
      const train = request.data.reduce((sum, { modelInput }) => sum + modelInput.length, 0);
      this.#add(model, { train });
      return () => {};
    }
    // Counted when it is sent: a process that is killed has paid for it.
    this.#add(model, { prefill: request.request.prompt.length });
    return (outcome) => {
      if (!("response" in outcome) || outcome.response === undefined) return;
      const { promptCacheHitTokens, sequences } = outcome.response;
      const cachedPrefill = Math.min(promptCacheHitTokens, request.request.prompt.length);
      const sample = sequences.reduce((sum, { tokens }) => sum + tokens.length, 0);
      this.#add(model, { prefill: -cachedPrefill, cachedPrefill, sample });
    };
  };

  #add(model: ModelName, counts: Partial<TokenCounts>): void {
    if (model.known === undefined) {
      if (!this.#unnamed.has(model)) void model.resolve().then((name) => this.#name(model, name));
      this.#unnamed.set(model, addTokens(this.#unnamed.get(model) ?? NO_TOKENS, counts));
    } else this.#addKnown(model.known, counts);
    this.#onChange?.();
  }

  #addKnown(name: string, counts: Partial<TokenCounts>): void {
    this.#known.set(name, addTokens(this.#known.get(name) ?? NO_TOKENS, counts));
  }

  #name(model: ModelName, name = this.#model): void {
    const counts = this.#unnamed.get(model);
    this.#unnamed.delete(model);
    model.known ??= name;
    if (counts !== undefined) this.#addKnown(name, counts);
  }
}
