import { EngineInputError, type JsonConstraint, type SampleCall } from "../../engine.js";
import type { ModelConfig } from "../../model/model-config.js";
import { closingCosts } from "./closing-cost.js";
import type { GrammarNode } from "./grammar.js";
import { GrammarMemory, Recognizer, type State } from "./recognizer.js";
import { constraintKey } from "./schema-grammar.js";
import { constraintGrammar } from "./shape-grammar.js";
import { refuse, Steps } from "./steps.js";
import { type ByteVocabulary, byteVocabulary } from "./token-bytes.js";
import { maskedLogits, type TokenMask, tokenMask } from "./token-mask.js";
import { type TokenBytes, TokenTrie } from "./token-trie.js";

/** Maximum number of recently used grammars that are kept, with their computed states. */
const MAX_KEPT_GRAMMARS = 8;
/** Their maximum size together; the last one is kept at any size. */
const MAX_KEPT_CHARACTERS = 1 << 17;
/** References of a mask beside its bits. */
const MASK_SIZE = 20;
/** Maximum number of paths through the grammar that are tried for one token; usual schemas take a few thousand. */
export const MAX_STEPS_PER_TOKEN = 50_000;

/** Throws if JSON that fits cannot be guaranteed, naming the place and the keyword. */
export function checkJsonConstraint(constraint: JsonConstraint): void {
  constraintGrammar(constraint);
}

/** JSON in the vocabulary of one model; its `tokenizer.json` is read at the first use. */
export class JsonVocabulary {
  readonly #tokenizerJson: () => unknown;
  readonly #vocabSize: number;
  readonly #grammars = new Map<string, JsonGrammar>();
  readonly #memory = new GrammarMemory();
  #era = 0;
  #compiled = 0;
  #read: { trie: TokenTrie; vocabulary: ByteVocabulary } | undefined;

  constructor(tokenizerJson: () => unknown, vocabSize: number) {
    this.#tokenizerJson = tokenizerJson;
    this.#vocabSize = vocabSize;
  }

  /** Work of all requests so far, in steps through grammars; compiling a grammar counts like a token. */
  get steps(): number {
    return this.#memory.steps + this.#compiled * MAX_STEPS_PER_TOKEN;
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
    // Grammars in use forget at their next token, the others here.
    if (this.#era !== this.#memory.era) this.#grammars.clear();
    this.#era = this.#memory.era;
    let grammar = this.#grammars.get(key);
    if (!grammar) {
      this.#compiled += 1;
      const root = constraintGrammar(constraint, this.#added(vocabulary));
      grammar = new JsonGrammar(root, trie, vocabulary.bytes, this.#memory);
    }
    // Last in the order, and so the last to go.
    this.#grammars.delete(key);
    this.#grammars.set(key, grammar);
    let characters = 0;
    for (const kept of this.#grammars.keys()) characters += kept.length;
    for (const oldest of this.#grammars.keys()) {
      if (this.#grammars.size <= MAX_KEPT_GRAMMARS && characters <= MAX_KEPT_CHARACTERS) break;
      if (oldest === key) break;
      characters -= oldest.length;
      this.#grammars.delete(oldest);
    }
    return grammar;
  }

  /** Added tokens that the model has logits for. */
  #added({ added }: ByteVocabulary): ReadonlyMap<string, number> {
    return new Map([...added].filter(([, token]) => token < this.#vocabSize));
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
  /** Memory in use, in references of 8 bytes. */
  readonly size: number;
  readonly #trie: TokenTrie;
  readonly #tokenBytes: TokenBytes;
  readonly #recognizer: Recognizer;
  readonly #memory: GrammarMemory;
  readonly #steps = new Steps(MAX_STEPS_PER_TOKEN, "finding what may come next");
  #masks = new Map<State, TokenMask>();

  constructor(root: GrammarNode, trie: TokenTrie, tokenBytes: TokenBytes, memory: GrammarMemory) {
    this.#trie = trie;
    this.#tokenBytes = tokenBytes;
    this.#memory = memory;
    const { costOf, size } = closingCosts(root, trie);
    this.size = size;
    memory.add(size);
    this.#recognizer = new Recognizer(root, this.#steps, memory, costOf);
    if (this.start.cost === Number.POSITIVE_INFINITY)
      refuse("#", "no JSON that the model's tokens can write fits the schema");
  }

  get start(): State {
    return this.#recognizer.start;
  }

  /** Tokens after which the text can end within `maxCost` tokens. */
  mask(state: State, maxCost: number): Uint32Array {
    this.#steps.restart();
    try {
      return this.#mask(state, maxCost);
    } finally {
      this.#memory.steps += this.#steps.taken;
    }
  }

  #mask(state: State, maxCost: number): Uint32Array {
    let mask = this.#masks.get(state);
    if (!mask) {
      if (this.#recognizer.forgetIfFull()) this.#masks = new Map();
      mask = tokenMask(this.#recognizer, state, this.#trie, Number.MAX_SAFE_INTEGER);
      this.#memory.add(MASK_SIZE + mask.bits.length / 2);
      this.#masks.set(state, mask);
    }
    if (mask.highestCost <= maxCost) return mask.bits;
    return tokenMask(this.#recognizer, state, this.#trie, maxCost).bits;
  }

  /** The state after one of the tokens in the mask. */
  advance(state: State, token: number): State {
    const bytes = this.#tokenBytes[token];
    this.#steps.restart();
    let next = bytes === undefined ? this.#recognizer.advanceToken(state, token) : state;
    for (const byte of bytes ?? []) next = next && this.#recognizer.advance(next, byte);
    if (next === null) throw new Error(`token ${token} does not fit the grammar`);
    return next;
  }
}

/** Serves one token after another. */
let reusedLogits = new Float32Array(0);

/** The place of one sample in a grammar, whose end it certainly reaches before its tokens run out. */
export class JsonCursor {
  readonly #grammar: JsonGrammar;
  readonly #endTokens: readonly number[];
  #state: State;
  /** Tokens left, without the one that ends the text. */
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
    if (this.isFinished)
      throw new EngineInputError(
        "the constraint is met by an answer without tokens, and nothing would end one",
      );
  }

  /** True when the text is complete; if there are end tokens, one of them is drawn next. */
  get isFinished(): boolean {
    return this.#state.isComplete && this.#endTokens.length === 0;
  }

  /** The logits of the tokens that may come next, -Infinity for all others; valid until the next call. */
  mask(logits: Float32Array): Float32Array {
    const isOnlyEnd = this.#state.isComplete && this.#left === 0;
    const bits = isOnlyEnd ? undefined : this.#grammar.mask(this.#state, this.#left - 1);
    if (reusedLogits.length !== logits.length) reusedLogits = new Float32Array(logits.length);
    const count = maskedLogits(logits, bits, this.#state.isComplete ? this.#endTokens : [], reusedLogits);
    if (count === 0) throw new EngineInputError("the constraint leaves no token that could come next");
    return reusedLogits;
  }

  take(token: number): void {
    if (this.#state.isComplete && this.#endTokens.includes(token)) return;
    this.#state = this.#grammar.advance(this.#state, token);
    this.#left -= 1;
  }
}

/** The grammar of a request for JSON, and where each of its samples begins. */
export interface JsonStart {
  readonly grammar: JsonGrammar;
  begin(): JsonCursor;
}

/** Where the samples of a request for JSON begin; a request whose samples might not be such JSON is refused. */
export function jsonStart(
  call: SampleCall,
  constraint: JsonConstraint,
  config: ModelConfig,
  maxTokens: number,
  vocabulary: JsonVocabulary | undefined,
): JsonStart {
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
  const begin = () => new JsonCursor(grammar, endTokens, maxTokens);
  begin();
  return { grammar, begin };
}
