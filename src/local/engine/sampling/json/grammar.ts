/** The texts that a grammar accepts, as a graph over bytes and control tokens; rules make it recursive. */
export type GrammarNode =
  | BytesNode
  | LiteralNode
  | TokenNode
  | SequenceNode
  | ChoiceNode
  | RepeatNode
  | RuleNode;

/** One byte of a set. */
export interface BytesNode {
  readonly kind: "bytes";
  /** 1 for each of the 256 bytes that is in the set. */
  readonly set: Uint8Array;
}

/** One byte of a fixed text, and the rest of the text. */
export interface LiteralNode {
  readonly kind: "literal";
  readonly byte: number;
  readonly next: LiteralNode | undefined;
}

/** A control token, which is not text, such as one that begins a call. */
export interface TokenNode {
  readonly kind: "token";
  readonly token: number;
}

/** All parts, one after another; without parts, nothing at all. */
export interface SequenceNode {
  readonly kind: "sequence";
  readonly parts: readonly GrammarNode[];
}

/** One of the options; without options, nothing fits. */
export interface ChoiceNode {
  readonly kind: "choice";
  readonly options: readonly GrammarNode[];
}

/** `min` to `max` times the item. */
export interface RepeatNode {
  readonly kind: "repeat";
  readonly item: GrammarNode;
  readonly min: number;
  readonly max: number;
  /** The rest after one item; made when first needed, since `max` may be large. */
  less: RepeatNode | undefined;
}

/** A part that is defined later, perhaps by itself. */
export interface RuleNode {
  readonly kind: "rule";
  body: GrammarNode | undefined;
}

const encoder = new TextEncoder();

/** One byte within any of the ranges, ends included. */
export function byteRanges(...ranges: readonly (readonly [from: number, to: number])[]): BytesNode {
  const set = new Uint8Array(256);
  for (const [from, to] of ranges) set.fill(1, from, to + 1);
  return { kind: "bytes", set };
}

/** One of these ASCII characters. */
export function anyCharacterOf(characters: string): BytesNode {
  return byteRanges(...[...encoder.encode(characters)].map((byte) => [byte, byte] as const));
}

/** A fixed text. */
export function literal(text: string): GrammarNode {
  let node: LiteralNode | undefined;
  for (const byte of encoder.encode(text).reverse()) node = { kind: "literal", byte, next: node };
  return node ?? sequence();
}

/** The parts one after another. */
export function sequence(...parts: GrammarNode[]): GrammarNode {
  return parts.length === 1 ? parts[0]! : { kind: "sequence", parts };
}

/** One of the options. */
export function choice(...options: GrammarNode[]): GrammarNode {
  return options.length === 1 ? options[0]! : { kind: "choice", options };
}

/** `min` to `max` times the item; nothing fits where `max` is less than `min`. */
export function repeat(item: GrammarNode, min: number, max = Number.POSITIVE_INFINITY): GrammarNode {
  return max < min ? choice() : { kind: "repeat", item, min, max, less: undefined };
}

/** The item, or nothing. */
export function optionalRule(item: GrammarNode): GrammarNode {
  return choice(item, sequence());
}

/** A part whose body follows. */
export function rule(): RuleNode {
  return { kind: "rule", body: undefined };
}

/** The rest of a repetition after one item. */
export function lessOne(node: RepeatNode): RepeatNode {
  if (node.min === 0 && node.max === Number.POSITIVE_INFINITY) return node;
  const { item, min, max } = node;
  node.less ??= { kind: "repeat", item, min: Math.max(0, min - 1), max: max - 1, less: undefined };
  return node.less;
}
