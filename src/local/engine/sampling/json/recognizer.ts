import { type GrammarNode, lessOne } from "./grammar.js";

/** What is still to come along one way through the grammar: a node, and what follows it. Equal stacks are the same object. */
interface Stack {
  readonly id: number;
  readonly node: GrammarNode | undefined;
  readonly rest: Stack | undefined;
  readonly cost: number;
  readonly pushed: Map<GrammarNode, Stack>;
}

/** All that the text so far may go on with. Equal states are the same object until the recognizer forgets. */
export interface State {
  /** Each begins with a byte; an empty one where the text may end here. */
  readonly stacks: readonly Stack[];
  /** The text may end here. */
  readonly isComplete: boolean;
  /** The fewest tokens to an end, as far as known. */
  cost: number;
  /** By byte, as far as asked for; null where nothing fits. */
  next: (State | null | undefined)[];
  /** The recognizer's count of forgettings when `next` was begun. */
  era: number;
}

/** Of more ways than this the cheapest go on: fewer texts are reached, each still fits. */
const MAX_STACKS = 1024;
const MAX_REMEMBERED_STATES = 4000;

/** Stacks on the way to the bytes that they begin with. */
class Opening {
  readonly seen = new Set<Stack>();
  readonly stacks = new Set<Stack>();
}

/** Reads a text byte by byte along all ways through a grammar at once. */
export class Recognizer {
  readonly start: State;
  readonly #empty: Stack = { id: 0, node: undefined, rest: undefined, cost: 0, pushed: new Map() };
  readonly #states = new Map<string, State>();
  #stackCount = 1;
  #era = 0;

  readonly #costOf: (node: GrammarNode) => number;

  constructor(root: GrammarNode, costOf: (node: GrammarNode) => number = () => 0) {
    this.#costOf = costOf;
    const opening = new Opening();
    this.#open(this.#push(root, this.#empty), opening);
    this.start = this.#state(opening);
  }

  /** Forgets what can be computed again; states remain good, but equal ones are no longer the same. */
  forgetIfLarge(): boolean {
    if (this.#states.size < MAX_REMEMBERED_STATES) return false;
    this.#states.clear();
    this.#empty.pushed.clear();
    this.#era += 1;
    return true;
  }

  /** The state behind one more byte; null where it does not fit. */
  advance(state: State, byte: number): State | null {
    if (state.era !== this.#era) {
      state.era = this.#era;
      state.next = new Array(256);
    }
    const known = state.next[byte];
    if (known !== undefined) return known;
    const opening = new Opening();
    for (const { node, rest } of state.stacks) {
      if (node?.kind === "bytes" && node.set[byte]) this.#open(rest!, opening);
      else if (node?.kind === "literal" && node.byte === byte)
        this.#open(node.next ? this.#push(node.next, rest!) : rest!, opening);
    }
    const next = opening.stacks.size === 0 ? null : this.#state(opening);
    state.next[byte] = next;
    return next;
  }

  /** The whole text fits. */
  accepts(text: string): boolean {
    let state: State | null = this.start;
    for (const byte of new TextEncoder().encode(text)) {
      state = this.advance(state, byte);
      if (state === null) return false;
    }
    return state.isComplete;
  }

  #push(node: GrammarNode, rest: Stack): Stack {
    let stack = rest.pushed.get(node);
    if (!stack) {
      stack = { id: this.#stackCount++, node, rest, cost: this.#costOf(node) + rest.cost, pushed: new Map() };
      rest.pushed.set(node, stack);
    }
    return stack;
  }

  /** Follows a stack to all the bytes that it may begin with. */
  #open(first: Stack, { seen, stacks }: Opening): void {
    const waiting = [first];
    for (let stack = waiting.pop(); stack; stack = waiting.pop()) {
      if (seen.has(stack)) continue;
      seen.add(stack);
      const { node } = stack;
      const rest = stack.rest!;
      switch (node?.kind) {
        case undefined:
        case "bytes":
        case "literal":
          stacks.add(stack);
          break;
        case "sequence":
          waiting.push(node.parts.reduceRight((after, part) => this.#push(part, after), rest));
          break;
        case "choice":
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
    let stacks = [...opening.stacks];
    // Several characters at once may be cheaper than one and the rest, so what was opened counts too.
    let cost = Number.POSITIVE_INFINITY;
    for (const stack of opening.seen) if (stack.cost < cost) cost = stack.cost;
    if (stacks.length > MAX_STACKS)
      stacks = stacks.sort((a, b) => a.cost - b.cost || a.id - b.id).slice(0, MAX_STACKS);
    stacks.sort((a, b) => a.id - b.id);
    const key = stacks.map(({ id }) => id).join();
    let state = this.#states.get(key);
    if (!state) {
      state = {
        stacks,
        isComplete: stacks.some(({ node }) => node === undefined),
        cost,
        next: new Array(256),
        era: this.#era,
      };
      this.#states.set(key, state);
    }
    if (cost < state.cost) state.cost = cost;
    return state;
  }
}
