import { anyCharacter } from "./characters.js";
import type { GrammarNode, LiteralNode } from "./grammar.js";
import { Steps } from "./steps.js";
import type { TokenTrie } from "./token-trie.js";

const MAX_STEPS = 1_000_000;
/** References of a node and its cost, and of a set of bytes. */
const NODE_SIZE = 14;
const SET_SIZE = 42;

/** Cost of the nodes of a grammar, in tokens. */
export interface ClosingCosts {
  costOf(node: GrammarNode): number;
  /** Memory of the grammar and its costs, in references of 8 bytes. */
  readonly size: number;
}

/**
 * The least number of tokens that writes each node of a grammar; Infinity where no tokens can. Parts are counted one by one,
 * so a token that spans two of them may make a text shorter than counted, never longer: from every cost some token leads to
 * a cost that is one less.
 */
export function closingCosts(root: GrammarNode, tokens: TokenTrie): ClosingCosts {
  const costs = new Map<GrammarNode, number>();
  const steps = new Steps(MAX_STEPS, "finding its shortest JSON");
  const costOf = (node: GrammarNode): number => {
    // Repetitions are made while texts are read, so theirs is never looked up.
    if (node.kind === "repeat") {
      if (node.min === 0) return 0;
      if (node.item === anyCharacter && tokens.plainRun > 0) return Math.ceil(node.min / tokens.plainRun);
      return node.min * costOf(node.item);
    }
    return costs.get(node) ?? Number.POSITIVE_INFINITY;
  };
  const nodes = reachable(root);
  for (const node of nodes) {
    if (node.kind === "literal") setLiteral(node, tokens, costs, steps);
    else if (node.kind === "token") costs.set(node, 1);
    else if (node.kind === "bytes" && node.set.some((isIn, byte) => isIn && tokens.hasByte(byte)))
      costs.set(node, 1);
  }
  // Rules refer to each other: costs sink from Infinity until none changes.
  const composed = nodes.filter(({ kind }) => !["literal", "bytes", "token"].includes(kind)).reverse();
  for (let changed = true; changed; ) {
    changed = false;
    for (const node of composed) {
      steps.take(partCount(node));
      const cost = composedCost(node, costOf);
      if (cost >= costOf(node)) continue;
      costs.set(node, cost);
      changed = true;
    }
  }
  const sets = nodes.filter(({ kind }) => kind === "bytes").length;
  return { costOf, size: NODE_SIZE * costs.size + SET_SIZE * sets };
}

function partCount(node: GrammarNode): number {
  if (node.kind === "sequence") return 1 + node.parts.length;
  return node.kind === "choice" ? 1 + node.options.length : 2;
}

function composedCost(node: GrammarNode, costOf: (node: GrammarNode) => number): number {
  if (node.kind === "sequence") return node.parts.reduce((sum, part) => sum + costOf(part), 0);
  if (node.kind === "choice")
    return node.options.reduce((least, option) => Math.min(least, costOf(option)), Number.POSITIVE_INFINITY);
  return node.kind === "rule" && node.body ? costOf(node.body) : costOf(node);
}

/** The fewest tokens for each rest of a fixed text, from its end. */
function setLiteral(
  first: LiteralNode,
  tokens: TokenTrie,
  costs: Map<GrammarNode, number>,
  steps: Steps,
): void {
  const rests: LiteralNode[] = [];
  for (let node: LiteralNode | undefined = first; node; node = node.next) rests.push(node);
  const bytes = Uint8Array.from(rests, ({ byte }) => byte);
  for (let at = rests.length - 1; at >= 0; at--) {
    let least = Number.POSITIVE_INFINITY;
    for (const end of tokens.endsFrom(bytes, at, steps))
      least = Math.min(least, 1 + (end === rests.length ? 0 : costs.get(rests[end]!)!));
    costs.set(rests[at]!, least);
  }
}

function reachable(root: GrammarNode): GrammarNode[] {
  const nodes = new Set<GrammarNode>([root]);
  // A set's iteration reaches what is added on the way.
  for (const node of nodes) {
    if (node.kind === "sequence") for (const part of node.parts) nodes.add(part);
    else if (node.kind === "choice") for (const option of node.options) nodes.add(option);
    else if (node.kind === "repeat") nodes.add(node.item);
    else if (node.kind === "rule" && node.body) nodes.add(node.body);
  }
  return [...nodes];
}
