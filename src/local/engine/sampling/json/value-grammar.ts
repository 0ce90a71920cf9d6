import { anyString, nameExcept } from "./characters.js";
import { FORMAT_PATTERNS } from "./formats.js";
import { choice, type GrammarNode, literal, optionalRule, repeat, rule, sequence } from "./grammar.js";
import { anyInteger, anyNumber, boundedNumber } from "./numbers.js";
import { PatternError, patternString } from "./pattern.js";
import type { Part, Schema, SchemaType } from "./schema-parts.js";
import { refuse, type Steps } from "./steps.js";

/** The grammar of a schema inside another; the name is its place there. */
type Inner = (schema: Schema, name: string) => GrammarNode;

// At most one space: otherwise a model could write blanks forever.
const SPACE = optionalRule(literal(" "));
const SEPARATOR = sequence(literal(","), SPACE);
const COLON = sequence(literal(":"), SPACE);

/** Any JSON. */
export const anyValue = rule();

/** Any JSON object. */
export const anyObject: GrammarNode = sequence(
  literal("{"),
  optionalRule(listOf(sequence(anyString(), COLON, anyValue))),
  literal("}"),
);

anyValue.body = choice(
  anyObject,
  sequence(literal("["), optionalRule(listOf(anyValue)), literal("]")),
  anyString(),
  anyNumber,
  literal("true"),
  literal("false"),
  literal("null"),
);

/** Items with commas between them, at least one. */
function listOf(item: GrammarNode, min = 1, max = Number.POSITIVE_INFINITY): GrammarNode {
  return sequence(item, repeat(sequence(SEPARATOR, item), Math.max(0, min - 1), max - 1));
}

/** The types that a part without `type` implies by its other keywords; none if it implies none. */
export function inferredTypes(part: Part): SchemaType[] {
  const { numbers, properties, required, additionalProperties, prefixItems, items, pattern, format } = part;
  const speaksOf = (ending: RegExp) => Object.keys(numbers).some((keyword) => ending.test(keyword));
  const types: SchemaType[] = [];
  if (properties || required || additionalProperties !== undefined || speaksOf(/Properties$/))
    types.push("object");
  if (prefixItems || items !== undefined || speaksOf(/Items$/)) types.push("array");
  if (pattern !== undefined || format !== undefined || speaksOf(/Length$/)) types.push("string");
  if (speaksOf(/imum$/)) types.push("number");
  return types;
}

/** Nodes of a member, without its name and value. */
const MEMBER_SIZE = 8;

/** Declared members in their order, then others where `additionalProperties` is given. */
export function objectNode(part: Part, path: string, inner: Inner, steps: Steps): GrammarNode {
  const required = part.required ?? new Set<string>();
  const declared = new Map(part.properties ?? []);
  for (const name of required) if (!declared.has(name)) declared.set(name, part.additionalProperties ?? true);
  const members = [...declared].filter(([, schema]) => schema !== false);
  if (members.length < declared.size && [...required].some((name) => declared.get(name) === false))
    return choice();
  const { minProperties = 0, maxProperties = Number.POSITIVE_INFINITY } = part.numbers;
  if (minProperties > Math.max(1, required.size))
    refuse(path, `"minProperties" is supported up to 1 or the number of required properties`);
  if (members.length > maxProperties)
    refuse(path, `"maxProperties" is supported from the number of declared properties on`);

  const mostOthers = maxProperties - members.length;
  const { additionalProperties = false } = part;
  /** From the i-th member on, where a name is due. */
  let named = choice();
  if (additionalProperties !== false && mostOthers > 0) {
    const value = inner(additionalProperties, "additionalProperties");
    const name = nameExcept(declared.keys(), (nodes) => steps.take(nodes, path, "additionalProperties"));
    named = listOf(sequence(name, COLON, value), 1, mostOthers);
  }
  /** From the i-th member on, behind another member. */
  let after = optionalRule(sequence(SEPARATOR, named));
  let isEndAllowed = true;
  for (const [name, schema] of members.reverse()) {
    const written = JSON.stringify(name);
    steps.take(written.length + MEMBER_SIZE, path, "properties");
    const member = sequence(literal(`${written}:`), SPACE, inner(schema, `properties/${name}`), after);
    isEndAllowed &&= !required.has(name);
    named = required.has(name) ? member : choice(member, named);
    after = isEndAllowed ? optionalRule(sequence(SEPARATOR, named)) : sequence(SEPARATOR, named);
  }
  const isEmptyAllowed = isEndAllowed && minProperties === 0;
  return sequence(literal("{"), isEmptyAllowed ? optionalRule(named) : named, literal("}"));
}

/** The items of `prefixItems` in their places, then others; a list may end before its prefix does. */
export function arrayNode(part: Part, path: string, inner: Inner, steps: Steps): GrammarNode {
  const { minItems = 0, maxItems = Number.POSITIVE_INFINITY } = part.numbers;
  const prefix = (part.prefixItems ?? []).slice(0, maxItems);
  const item = inner(part.items ?? true, "items");
  const before = prefix.length;
  steps.take(MEMBER_SIZE * before, path, "prefixItems");
  /** From the i-th item on, where an item is due. */
  let next =
    maxItems > before && part.items !== false
      ? listOf(item, Math.max(1, minItems - before), maxItems - before)
      : choice();
  for (let index = before - 1; index >= 0; index--) {
    const following = sequence(SEPARATOR, next);
    const first = inner(prefix[index]!, `prefixItems/${index}`);
    next = sequence(first, index + 1 >= minItems ? optionalRule(following) : following);
  }
  return sequence(literal("["), minItems === 0 ? optionalRule(next) : next, literal("]"));
}

/** Strings by their length, or by a pattern. */
export function stringNode(part: Part, path: string): GrammarNode {
  const { minLength, maxLength } = part.numbers;
  const { pattern, format } = part;
  if (pattern === undefined && format === undefined) return anyString(minLength, maxLength);
  return patternNode(part, path, patternString);
}

/** Texts of a pattern or format. */
export function patternNode(part: Part, path: string, write: (pattern: string) => GrammarNode): GrammarNode {
  const { minLength, maxLength } = part.numbers;
  const { pattern, format } = part;
  const keyword = pattern === undefined ? "format" : "pattern";
  const also = (["format", "minLength", "maxLength"] as const).find(
    (name) => name !== keyword && { format, minLength, maxLength }[name] !== undefined,
  );
  if (also !== undefined) refuse(path, `"${keyword}" together with "${also}" is not supported`);
  if (pattern === undefined && !Object.hasOwn(FORMAT_PATTERNS, format!)) {
    const known = Object.keys(FORMAT_PATTERNS).join(", ");
    refuse(path, `the "format" ${JSON.stringify(format)} is not supported; there are ${known}`);
  }
  try {
    return write(pattern ?? FORMAT_PATTERNS[format!]!);
  } catch (error) {
    if (!(error instanceof PatternError)) throw error;
    return refuse(path, `the "pattern" ${JSON.stringify(pattern)} ${error.message}, which is not supported`);
  }
}

/** Numbers, within bounds where there are some. */
export function numberNode(part: Part, type: "number" | "integer"): GrammarNode {
  const isInteger = type === "integer";
  const isBounded = Object.keys(part.numbers).some((keyword) => keyword.endsWith("imum"));
  if (isBounded) return boundedNumber(part.numbers, isInteger);
  return isInteger ? anyInteger : anyNumber;
}
