import { EngineInputError, type JsonConstraint, type SampleCall } from "../../engine.js";
import type { ModelConfig } from "../../model/model-config.js";
import { closingCosts } from "./closing-cost.js";
import { Recognizer, type State } from "./recognizer.js";
import { constraintGrammar, constraintKey } from "./schema-grammar.js";
import { type ByteVocabulary, byteVocabulary } from "./token-bytes.js";
import { maskedLogits, type TokenMask, tokenMask } from "./token-mask.js";
import { type TokenBytes, TokenTrie } from "./token-trie.js";

/** Grammars of the schemas asked for last, with what was learnt of them. */
const MAX_KEPT_GRAMMARS = 8;
const MAX_KEPT_MASKS = 500;

/** Throws where JSON that surely fits cannot be promised, naming the place and the keyword. */
export function checkJsonConstraint(constraint: JsonConstraint): void {
  constraintGrammar(constraint);
}

/** What one model's vocabulary can write as JSON; its `tokenizer.json` is read when first asked for. */
export class JsonVocabulary {
  readonly #tokenizerJson: () => unknown;
  readonly #vocabSize: number;
  readonly #grammars = new Map<string, JsonGrammar>();
  #read: { trie: TokenTrie; vocabulary: ByteVocabulary } | undefined;

  constructor(tokenizerJson: () => unknown, vocabSize: number) {
    this.#tokenizerJson = tokenizerJson;
    this.#vocabSize = vocabSize;
  }

  /** The token that has this text and is never part of any other. */
  addedToken(text: string): number | undefined {
    return this.#open().vocabulary.added.get(text);
  }

  isText(token: number): boolean {
    return this.#open().vocabulary.bytes[token] !== undefined;
  }

  grammar(constraint: JsonConstraint): JsonGrammar {
    const key = constraintKey(constraint);
    const { trie, vocabulary } = this.#open();
    const grammar = this.#grammars.get(key) ?? new JsonGrammar(constraint, trie, vocabulary.bytes);
    // Last in the order, and so the last to go.
    this.#grammars.delete(key);
    this.#grammars.set(key, grammar);
    for (const oldest of this.#grammars.keys()) {
      if (this.#grammars.size <= MAX_KEPT_GRAMMARS) break;
      this.#grammars.delete(oldest);
    }
    return grammar;
  }

  #open(): { trie: TokenTrie; vocabulary: ByteVocabulary } {
    if (!this.#read) {
      const vocabulary = byteVocabulary(this.#tokenizerJson());
      // A tokenizer may know more tokens than the model has logits for.
      this.#read = { vocabulary, trie: new TokenTrie(vocabulary.bytes.slice(0, this.#vocabSize)) };
    }
    return this.#read;
  }
}

/** All JSON that a constraint allows, in the tokens of a vocabulary. */
export class JsonGrammar {
  readonly #trie: TokenTrie;
  readonly #tokenBytes: TokenBytes;
  readonly #recognizer: Recognizer;
  #masks = new Map<State, TokenMask>();

  constructor(constraint: JsonConstraint, trie: TokenTrie, tokenBytes: TokenBytes) {
    const root = constraintGrammar(constraint);
    this.#trie = trie;
    this.#tokenBytes = tokenBytes;
    this.#recognizer = new Recognizer(root, closingCosts(root, trie));
    if (this.start.cost === Number.POSITIVE_INFINITY)
      throw new EngineInputError("no JSON that the model's tokens can write fits the schema");
  }

  get start(): State {
    return this.#recognizer.start;
  }

  /** Tokens behind which an end takes at most `maxCost` more. */
  mask(state: State, maxCost: number): Uint32Array {
    let mask = this.#masks.get(state);
    if (!mask) {
      if (this.#recognizer.forgetIfLarge() || this.#masks.size >= MAX_KEPT_MASKS) this.#masks = new Map();
      mask = tokenMask(this.#recognizer, state, this.#trie, Number.MAX_SAFE_INTEGER);
      this.#masks.set(state, mask);
    }
    if (mask.highestCost <= maxCost) return mask.bits;
    return tokenMask(this.#recognizer, state, this.#trie, maxCost).bits;
  }

  /** The state behind one of the tokens that `mask` gave. */
  advance(state: State, token: number): State {
    const bytes = this.#tokenBytes[token];
    let next: State | null = bytes === undefined ? null : state;
    for (const byte of bytes ?? []) next = next && this.#recognizer.advance(next, byte);
    if (next === null) throw new Error(`token ${token} does not fit the grammar`);
    return next;
  }
}

/** Serves one token after another. */
let reusedLogits = new Float32Array(0);

/** One sample on its way through a grammar, which it surely leaves before its tokens run out. */
export class JsonCursor {
  readonly #grammar: JsonGrammar;
  readonly #endTokens: readonly number[];
  #state: State;
  /** Tokens left, but for the one that ends the text. */
  #left: number;

  constructor(grammar: JsonGrammar, endTokens: readonly number[], maxTokens: number) {
    this.#grammar = grammar;
    this.#endTokens = endTokens;
    this.#state = grammar.start;
    this.#left = maxTokens - (endTokens.length > 0 ? 1 : 0);
    const needed = this.#state.cost + maxTokens - this.#left;
    if (needed > maxTokens) {
      throw new EngineInputError(
        `maxTokens: the shortest JSON that fits needs ${needed} tokens, and there is room for ${maxTokens}`,
      );
    }
  }

  /** There is nothing more to come; where there are end tokens, one of them is still to be drawn. */
  get isFinished(): boolean {
    return this.#state.isComplete && this.#endTokens.length === 0;
  }

  /** The logits of the tokens that may come next, -Infinity for all others; good until the next call. */
  mask(logits: Float32Array): Float32Array {
    const isOnlyEnd = this.#state.isComplete && this.#left === 0;
    const bits = isOnlyEnd ? undefined : this.#grammar.mask(this.#state, this.#left - 1);
    if (reusedLogits.length !== logits.length) reusedLogits = new Float32Array(logits.length);
    maskedLogits(logits, bits, this.#state.isComplete ? this.#endTokens : [], reusedLogits);
    return reusedLogits;
  }

  take(token: number): void {
    if (this.#state.isComplete && this.#endTokens.includes(token)) return;
    this.#state = this.#grammar.advance(this.#state, token);
    this.#left -= 1;
  }
}

/** Where the samples of a request for JSON begin; a request whose samples might not be such JSON is refused. */
export function jsonStart(
  call: SampleCall,
  constraint: JsonConstraint,
  config: ModelConfig,
  maxTokens: number,
  vocabulary: JsonVocabulary | undefined,
): () => JsonCursor {
  if (!vocabulary)
    throw new EngineInputError("JSON output needs a tokenizer.json in the model's folder, and there is none");
  const endTokens = [...(call.stopTokens ?? config.eosTokenIds)];
  for (const text of call.stopStrings) {
    const token = vocabulary.addedToken(text);
    if (token === undefined)
      throw new EngineInputError(
        `stop: JSON output ends by itself, and the text ${JSON.stringify(text)} might end it too early; only special tokens can be stops here`,
      );
    endTokens.push(token);
  }
  const textual = endTokens.find((token) => vocabulary.isText(token));
  if (textual !== undefined)
    throw new EngineInputError(
      `stop: JSON output ends by itself, and the token ${textual} might end it too early; only special tokens can be stops here`,
    );
  const grammar = vocabulary.grammar(constraint);
  const start = () => new JsonCursor(grammar, endTokens, maxTokens);
  start();
  return start;
}
