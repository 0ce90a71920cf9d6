import { beyond } from "./budget.js";

/** The longest published templates have some 40,000 characters. */
const MAX_SOURCE_CHARACTERS = 2 ** 17;
/** The parser looks through a run of white space once for each of its characters. */
const MAX_SPACES = 1000;

/** A part of a parsed template, with the fields that its type has. */
export interface Node {
  readonly type: string;
  readonly value?: unknown;
  readonly body?: readonly Node[];
  readonly [field: string]: unknown;
}

interface Token {
  value: string;
  readonly type: string;
}

/** Between the name of a test and the place of its arguments in `testArguments`. */
export const ARGUMENTS_SIGN = "#";

/** A template as its statements, and the arguments of the tests in it. */
export interface ParsedTemplate {
  readonly body: readonly Node[];
  readonly testArguments: readonly Node[];
}

/** Loads the parser of Jinja templates. */
export async function templateParser(): Promise<(source: string) => ParsedTemplate> {
  const { tokenize, parse } = (await import("@huggingface/jinja")) as unknown as {
    tokenize(source: string, options: object): Token[];
    parse(tokens: readonly Token[]): { readonly body: readonly Node[] };
  };
  return (source) => {
    if (source.length > MAX_SOURCE_CHARACTERS)
      throw beyond(`is longer than ${MAX_SOURCE_CHARACTERS} characters`);
    if (longestRunOfSpaces(source) > MAX_SPACES)
      throw beyond(`has more than ${MAX_SPACES} characters of white space in a row`);
    // Python's Jinja turns every kind of newline into one.
    const plain = withoutRaw(source.replaceAll(/\r\n?/g, "\n"));
    const tokens = tokenize(plain, { lstrip_blocks: true, trim_blocks: true });
    const testArguments: Node[] = [];
    const { body } = parse(
      withoutTestArguments(tokens, (inner) => {
        const list = [sign("{{"), sign("["), ...inner, sign("]"), sign("}}")];
        testArguments.push(...parse(list).body);
        return testArguments.length - 1;
      }),
    );
    return { body, testArguments };
  };
}

const TYPES: Readonly<Record<string, string>> = {
  "{{": "OpenExpression",
  "}}": "CloseExpression",
  "[": "OpenSquareBracket",
  "]": "CloseSquareBracket",
};
const sign = (value: string): Token => ({ value, type: TYPES[value]! });

function longestRunOfSpaces(source: string): number {
  let longest = 0;
  for (const [run] of source.matchAll(/\s+/g)) longest = Math.max(longest, run.length);
  return longest;
}

/** The parser knows no `raw` blocks: they become texts in quotes. */
function withoutRaw(source: string): string {
  let plain = "";
  let rest = 0;
  let open: RegExpExecArray | undefined;
  // Beginnings and ends are matched, not what is between them: a search for an end that is missing would begin again and again.
  for (const tag of source.matchAll(/\{%(-?)\s*(raw|endraw)\s*(-?)%\}/g)) {
    const isEnd = tag[2] === "endraw";
    if (isEnd === (open === undefined)) continue;
    if (open === undefined) {
      open = tag;
      continue;
    }
    const [[begin, before, , first], [end, last, , behind]] = [open, tag] as const;
    const text = source.slice(open.index + begin.length, tag.index);
    const kept = first ? text.trimStart() : text;
    const quoted = JSON.stringify(last ? kept.trimEnd() : kept);
    plain += `${source.slice(rest, open.index)}{{${before} ${quoted} ${behind}}}`;
    rest = tag.index + end.length;
    if (source[rest] === "\n") rest += 1;
    open = undefined;
  }
  return plain + source.slice(rest);
}

/** The parser knows no arguments of tests, as in `x is divisibleby(2)` and `x is in [1, 2]`: they are parsed apart. */
function withoutTestArguments(
  tokens: readonly Token[],
  parseArguments: (inner: readonly Token[]) => number,
): readonly Token[] {
  const kept: Token[] = [];
  for (let index = 0; index < tokens.length; index++) {
    const token = tokens[index]!;
    kept.push(token);
    const isTest =
      isName(tokens[index - 1], "is") ||
      (isName(tokens[index - 1], "not") && isName(tokens[index - 2], "is"));
    const next = tokens[index + 1]?.type;
    if (!isTest || token.type !== "Identifier" || isName(token, "not")) continue;
    const isOneOperand = ["StringLiteral", "NumericLiteral", "OpenSquareBracket"].includes(next ?? "");
    if (next !== "OpenParen" && !isOneOperand) continue;
    const end =
      next === "OpenParen" || next === "OpenSquareBracket" ? closingOf(tokens, index + 1) : index + 1;
    const inner = next === "OpenParen" ? tokens.slice(index + 2, end) : tokens.slice(index + 1, end + 1);
    kept[kept.length - 1] = { ...token, value: `${token.value}${ARGUMENTS_SIGN}${parseArguments(inner)}` };
    index = end;
  }
  return kept;
}

const isName = (token: Token | undefined, name: string): boolean =>
  token?.type === "Identifier" && token.value === name;

function closingOf(tokens: readonly Token[], open: number): number {
  let depth = 0;
  for (let index = open; index < tokens.length; index++) {
    if (/^Open(Paren|SquareBracket|CurlyBracket)$/.test(tokens[index]!.type)) depth += 1;
    if (/^Close(Paren|SquareBracket|CurlyBracket)$/.test(tokens[index]!.type)) depth -= 1;
    if (depth === 0) return index;
  }
  throw new SyntaxError("a bracket is never closed");
}
