import { type GrammarNode, lessOne } from "./grammar.js";
import type { Steps } from "./steps.js";

/** The rest of one path through the grammar: a node, and the stack after it. Equal stacks are the same object. */
interface Stack {
  readonly id: number;
  readonly node: GrammarNode | undefined;
  readonly rest: Stack | undefined;
  readonly cost: number;
  /** Stacks that were pushed on this one; a map from the second on, since there is rarely more than one. */
  pushed: Stack | Map<GrammarNode, Stack> | undefined;
}

/** All continuations of the text so far. Equal states are the same object until the recognizer forgets. */
export interface State {
  /** Each begins with a byte or a control token; an empty one where the text may end here. */
  readonly stacks: readonly Stack[];
  /** The text may end here. */
  readonly isComplete: boolean;
  /** The stacks by their next byte, where there are so many that looking at each would take long. */
  byByte:
    | { readonly literals: ReadonlyMap<number, readonly Stack[]>; readonly others: readonly Stack[] }
    | undefined;
  /** The fewest tokens to an end, as far as known. */
  cost: number;
  /** The next states by byte, as far as computed; null where nothing fits. */
  next: (State | null | undefined)[];
  /** How often the recognizer had forgotten when `next` was created. */
  era: number;
}

/** With more paths than this only the cheapest continue: fewer texts are reached, each still fits. */
const MAX_STACKS = 1024;
/** States with more paths than this are indexed by byte. */
const MANY_STACKS = 16;
/** Maximum memory of all grammars of a vocabulary, in references: about 10 megabytes. */
const MAX_REMEMBERED = 1_250_000;
const STATE_SIZE = 30;
const STACK_SIZE = 9;
const MAP_SIZE = 24;
/** `next` of a state without computed successors. */
const NOTHING_KNOWN: State["next"] = [];
const NEVER = -1;

/** Counts the memory of all grammars together: when it is full, all of them forget their computed states. */
export class GrammarMemory {
  /** Steps taken in all grammars so far. */
  steps = 0;
  #remembered = 0;
  #era = 0;

  /** Counts references of 8 bytes. */
  add(references: number): void {
    this.#remembered += references;
  }

  /** How often all grammars had to forget. */
  get era(): number {
    if (this.#remembered >= MAX_REMEMBERED) {
      this.#remembered = 0;
      this.#era += 1;
    }
    return this.#era;
  }
}

/** Stacks that are opened until each begins with a byte. */
class Opening {
  readonly seen = new Set<Stack>();
  readonly stacks = new Set<Stack>();
}

/** Reads a text byte by byte along all paths through a grammar at once. */
export class Recognizer {
  readonly start: State;
  readonly #empty: Stack = { id: 0, node: undefined, rest: undefined, cost: 0, pushed: undefined };
  readonly #states = new Map<string, State>();
  /** By the stacks that were opened: most bytes that fit lead to the same few. */
  readonly #opened = new Map<string, State>();
  #stackCount = 1;
  #era: number;

  readonly #steps: Steps;
  readonly #memory: GrammarMemory;
  readonly #costOf: (node: GrammarNode) => number;

  /** Each path that is tried takes one step. */
  constructor(
    root: GrammarNode,
    steps: Steps,
    memory = new GrammarMemory(),
    costOf: (node: GrammarNode) => number = () => 0,
  ) {
    this.#steps = steps;
    this.#memory = memory;
    this.#era = memory.era;
    this.#costOf = costOf;
    const opening = new Opening();
    this.#open(this.#push(root, this.#empty), opening);
    this.start = this.#state(opening);
  }

  /** Forgets computed states; existing ones remain valid, but equal ones are no longer the same object. */
  forgetIfFull(): boolean {
    const { era } = this.#memory;
    if (this.#era === era) return false;
    this.#states.clear();
    this.#opened.clear();
    this.#empty.pushed = undefined;
    this.#era = era;
    return true;
  }

  /** The state after one more byte; null if it does not fit. */
  advance(state: State, byte: number): State | null {
    if (state.era !== this.#era) {
      state.era = this.#era;
      state.next = new Array(256);
      this.#memory.add(state.next.length);
    }
    const known = state.next[byte];
    if (known !== undefined) return known;
    const following: Stack[] = [];
    const candidates = this.#candidates(state, byte);
    // Looking at a byte is much cheaper than opening what follows it.
    this.#steps.take((candidates.length + 1) / 8);
    for (const { node, rest } of candidates) {
      if (node?.kind === "bytes" && node.set[byte]) following.push(rest!);
      else if (node?.kind === "literal" && node.byte === byte)
        following.push(node.next ? this.#push(node.next, rest!) : rest!);
    }
    const next = this.#behind(following);
    state.next[byte] = next;
    return next;
  }

  /** The state after a control token; null if it does not fit. */
  advanceToken(state: State, token: number): State | null {
    this.#steps.take((state.stacks.length + 1) / 8);
    const fitting = state.stacks.filter(({ node }) => node?.kind === "token" && node.token === token);
    return this.#behind(fitting.map(({ rest }) => rest!));
  }

  #behind(following: readonly Stack[]): State | null {
    if (following.length === 0) return null;
    const key = following.length <= MANY_STACKS ? following.map(({ id }) => id).join() : "";
    const known = this.#opened.get(key);
    if (known) return known;
    const opening = new Opening();
    for (const stack of following) this.#open(stack, opening);
    if (opening.stacks.size === 0) return null;
    const state = this.#state(opening);
    if (key !== "") this.#opened.set(key, state);
    return state;
  }

  /** Whether the whole text fits. */
  accepts(text: string): boolean {
    let state: State | null = this.start;
    for (const byte of new TextEncoder().encode(text)) {
      state = this.advance(state, byte);
      if (state === null) return false;
    }
    return state.isComplete;
  }

  /** The stacks that may begin with a byte. */
  #candidates(state: State, byte: number): readonly Stack[] {
    if (state.stacks.length <= MANY_STACKS) return state.stacks;
    if (!state.byByte) {
      const literals = new Map<number, Stack[]>();
      const others: Stack[] = [];
      for (const stack of state.stacks) {
        if (stack.node?.kind !== "literal") others.push(stack);
        else if (literals.has(stack.node.byte)) literals.get(stack.node.byte)!.push(stack);
        else literals.set(stack.node.byte, [stack]);
      }
      state.byByte = { literals, others };
    }
    const { literals, others } = state.byByte;
    const fitting = literals.get(byte);
    return fitting === undefined ? others : [...fitting, ...others];
  }

  #push(node: GrammarNode, rest: Stack): Stack {
    const { pushed } = rest;
    const only = pushed instanceof Map ? undefined : pushed;
    const known = pushed instanceof Map ? pushed.get(node) : only?.node === node ? only : undefined;
    if (known) return known;
    const cost = this.#costOf(node) + rest.cost;
    const stack: Stack = { id: this.#stackCount++, node, rest, cost, pushed: undefined };
    this.#memory.add(STACK_SIZE);
    if (pushed === undefined) rest.pushed = stack;
    else if (pushed instanceof Map) pushed.set(node, stack);
    else {
      this.#memory.add(MAP_SIZE);
      rest.pushed = new Map([
        [pushed.node!, pushed],
        [node, stack],
      ]);
    }
    return stack;
  }

  /** Follows a stack to all the bytes that it may begin with. */
  #open(first: Stack, { seen, stacks }: Opening): void {
    const waiting = [first];
    for (let stack = waiting.pop(); stack; stack = waiting.pop()) {
      if (seen.has(stack)) continue;
      seen.add(stack);
      this.#steps.take(1);
      const { node } = stack;
      const rest = stack.rest!;
      switch (node?.kind) {
        case undefined:
        case "bytes":
        case "literal":
        case "token":
          stacks.add(stack);
          break;
        case "sequence":
          this.#steps.take(node.parts.length);
          waiting.push(node.parts.reduceRight((after, part) => this.#push(part, after), rest));
          break;
        case "choice":
          this.#steps.take(node.options.length);
          for (const option of node.options) waiting.push(this.#push(option, rest));
          break;
        case "repeat":
          if (node.min === 0) waiting.push(rest);
          if (node.max > 0) waiting.push(this.#push(node.item, this.#push(lessOne(node), rest)));
          break;
        case "rule":
          if (node.body) waiting.push(this.#push(node.body, rest));
          break;
        default:
          node satisfies never;
      }
    }
  }

  #state(opening: Opening): State {
    // They are sorted, and written into a key.
    this.#steps.take(opening.seen.size + 4 * opening.stacks.size);
    let stacks = [...opening.stacks];
    // Several characters at once may be cheaper than one and the rest, so opened stacks count too.
    let cost = Number.POSITIVE_INFINITY;
    for (const stack of opening.seen) if (stack.cost < cost) cost = stack.cost;
    if (stacks.length > MAX_STACKS)
      stacks = stacks.sort((a, b) => a.cost - b.cost || a.id - b.id).slice(0, MAX_STACKS);
    stacks.sort((a, b) => a.id - b.id);
    const key = stacks.map(({ id }) => id).join();
    let state = this.#states.get(key);
    if (!state) {
      this.#memory.add(STATE_SIZE + 2 * stacks.length);
      state = {
        stacks,
        byByte: undefined,
        isComplete: stacks.some(({ node }) => node === undefined),
        cost,
        next: NOTHING_KNOWN,
        era: NEVER,
      };
      this.#states.set(key, state);
    }
    if (cost < state.cost) state.cost = cost;
    return state;
  }
}
