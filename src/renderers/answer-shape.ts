import type { ToolDeclaration } from "./messages.js";
import { isJsonObject, type JsonValue, printPythonJson } from "./python-json.js";

/** Grammar of an answer, as a tree, for samplers that can restrict their tokens. */
export type AnswerShape =
  | FixedShape
  /** A JSON value that fits a schema; without one, any JSON object. `tool`: whose arguments it is. */
  | { readonly type: "json"; readonly schema?: unknown; readonly tool?: string }
  /** Any text without these. */
  | { readonly type: "text"; readonly without: readonly string[] }
  | MembersShape
  | { readonly type: "sequence"; readonly parts: readonly AnswerShape[] }
  | { readonly type: "choice"; readonly options: readonly AnswerShape[] }
  /** From none to `max` times. */
  | { readonly type: "repeat"; readonly item: AnswerShape; readonly max?: number | undefined };

/** A text that the format writes, in which control tokens are control tokens, or one that is plain throughout. */
export type FixedShape =
  | { readonly type: "sign"; readonly text: string }
  | { readonly type: "plain"; readonly text: string };

/** The members of an object that fits a schema, each between tags. */
export interface MembersShape extends MemberForm {
  readonly type: "members";
  readonly schema: unknown;
  readonly tool: string;
  /** The members whose values are written as plain text; others are JSON. */
  readonly texts: readonly string[];
}

/** How a format writes one argument of a call: `before`, its name, `asText` or `asJson`, its value, `behind`. */
export interface MemberForm {
  readonly before: string;
  readonly asText: string;
  readonly asJson: string;
  readonly behind: string;
  readonly separator: string;
  /** Texts that no value may contain. */
  readonly without: readonly string[];
}

/** How a format writes calls. */
export interface CallForm {
  /** Closes the thoughts that the prompt has opened; absent if it opens none. */
  readonly thoughtsEnd?: string | undefined;
  /** Before the first call and after the last. */
  readonly frame: readonly [open: string, close: string];
  /** Between calls; undefined where an answer ends with its first call. */
  readonly between: string | undefined;
  /** Up to the arguments. The first part is the same for all functions. */
  head(name: string): readonly FixedShape[];
  arguments(tool: ToolDeclaration): AnswerShape;
  readonly tail: string;
  /** False if a prompt cannot contain the beginning of an answer. */
  readonly takesPrefill: boolean;
}

/** An answer that is a call: the beginning that a prompt can write, and what follows it. */
export interface CallAnswer {
  readonly opening: string;
  readonly shape: AnswerShape;
}

export const sign = (text: string): FixedShape => ({ type: "sign", text });
export const plain = (text: string): FixedShape => ({ type: "plain", text });
const sequence = (...parts: readonly AnswerShape[]): AnswerShape => ({ type: "sequence", parts });
const choice = (options: readonly AnswerShape[]): AnswerShape =>
  options.length === 1 ? options[0]! : { type: "choice", options };

/** Calls of some of these functions, at least one. */
export function callAnswer(
  form: CallForm,
  tools: readonly ToolDeclaration[],
  { max, isBegun = true }: { readonly max?: number | undefined; readonly isBegun?: boolean } = {},
): CallAnswer {
  const [open, close] = form.frame;
  const call = (tool: ToolDeclaration, from = 0) =>
    sequence(...form.head(tool.name).slice(from), form.arguments(tool), sign(form.tail));
  const anyCall = (from = 0) => choice(tools.map((tool) => call(tool, from)));
  const { between } = form;
  const more: AnswerShape[] =
    between === undefined || max === 1
      ? []
      : [{ type: "repeat", item: sequence(sign(between), anyCall()), max: max && max - 1 }];
  if (!isBegun || !form.takesPrefill || form.thoughtsEnd !== undefined) {
    const thoughts = form.thoughtsEnd === undefined ? [] : thoughtsShape(form, form.thoughtsEnd);
    return { opening: "", shape: sequence(...thoughts, sign(open), anyCall(), ...more, sign(close)) };
  }
  const head = form.head(tools[0]!.name);
  const begun = tools.length === 1 ? head.length : 1;
  const opening = open + textOf(head.slice(0, begun));
  return { opening, shape: sequence(anyCall(begun), ...more, sign(close)) };
}

function thoughtsShape({ frame, head }: CallForm, end: string): AnswerShape[] {
  const callOpening = (frame[0] + head("")[0]!.text).trim();
  return [{ type: "text", without: ["<think>", "</think>", callOpening] }, sign(end)];
}

const textOf = (parts: readonly FixedShape[]): string => parts.map(({ text }) => text).join("");

/** A schema of arguments, which are always an object. */
const argumentsSchema = (tool: ToolDeclaration): object => ({ type: "object", ...schemaOf(tool) });

/** The schema of a function's arguments; that of a file keeps its text until here. */
function schemaOf({ parameters = {} }: ToolDeclaration): object {
  return isJsonObject(parameters as JsonValue)
    ? (JSON.parse(printPythonJson(parameters)) as object)
    : parameters;
}

/** The arguments of a call as JSON. */
export const jsonArguments = (tool: ToolDeclaration): AnswerShape => ({
  type: "json",
  schema: argumentsSchema(tool),
  tool: tool.name,
});

/** The arguments of a call with tags for each. */
export const taggedArguments = (tool: ToolDeclaration, form: MemberForm): AnswerShape => ({
  type: "members",
  schema: argumentsSchema(tool),
  tool: tool.name,
  texts: [...textArguments(tool)],
  ...form,
});

/** The head of a call that is a JSON object. */
export const jsonHead = (before: string, name: string, middle: string): readonly FixedShape[] => [
  sign(before),
  plain(JSON.stringify(name).slice(1, -1)),
  sign(middle),
];

const MAX_REFERENCES = 10;

/** Names of the arguments that are texts by their function's schema, even if a value looks like JSON. */
export function textArgumentsOf(name: string, tools: readonly ToolDeclaration[]): ReadonlySet<string> {
  const tool = tools.find((each) => each.name === name);
  return tool === undefined ? new Set() : textArguments(tool);
}

function textArguments(tool: ToolDeclaration): ReadonlySet<string> {
  const parameters = schemaOf(tool);
  const properties = fieldOf(parameters, "properties");
  const names = typeof properties === "object" && properties !== null ? Object.keys(properties) : [];
  return new Set(names.filter((name) => isText(fieldOf(properties, name), parameters)));
}

function isText(given: unknown, root: unknown): boolean {
  let schema = given;
  for (let left = MAX_REFERENCES; left > 0; left -= 1) {
    const reference = fieldOf(schema, "$ref");
    if (typeof reference !== "string" || !reference.startsWith("#/")) break;
    schema = reference
      .slice(2)
      .split("/")
      .reduce((at: unknown, step) => fieldOf(at, step.replaceAll("~1", "/").replaceAll("~0", "~")), root);
  }
  const type = fieldOf(schema, "type");
  if (type !== undefined) return type === "string";
  const values = fieldOf(schema, "enum") ?? [fieldOf(schema, "const")];
  return Array.isArray(values) && values.length > 0 && values.every((value) => typeof value === "string");
}

function fieldOf(value: unknown, name: string): unknown {
  const isThere = typeof value === "object" && value !== null && Object.hasOwn(value, name);
  return isThere ? (value as Record<string, unknown>)[name] : undefined;
}
