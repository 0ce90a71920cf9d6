import type { JsonConstraint } from "../../engine.js";
import { overlappingBranches } from "./disjoint-parts.js";
import { choice, type GrammarNode, literal, type RuleNode, rule } from "./grammar.js";
import { Recognizer } from "./recognizer.js";
import {
  bothParts,
  hasType,
  type Keywords,
  type Part,
  readPart,
  type Schema,
  type SchemaType,
  schemaAt,
  schemaListAt,
} from "./schema-parts.js";
import { refuse, Steps } from "./steps.js";
import { anyValue, arrayNode, inferredTypes, numberNode, objectNode, stringNode } from "./value-grammar.js";

const MAX_DEPTH = 100;
const MAX_SCHEMAS = 10_000;
const MAX_ALTERNATIVES = 1000;
const MAX_SCHEMA_CHARACTERS = 1 << 18;
const MAX_JSON_DEPTH = 500;
/** Nodes of the grammar and comparisons of values; a schema of 1,000 properties takes about 30,000. */
const MAX_BUILD_STEPS = 50_000;
/** Nodes of a pattern for each of its characters, and those of a number between bounds. */
const PATTERN_SIZE = 8;
const BOUNDED_NUMBER_SIZE = 200;

/** Keywords that do not restrict which JSON fits. */
const COMBINING = ["$ref", "allOf", "anyOf", "oneOf"];
const ASSERTING = new Set([
  ...[
    "type",
    "enum",
    "const",
    "nullable",
    "pattern",
    "format",
    "properties",
    "required",
    "additionalProperties",
  ],
  ...["prefixItems", "items", "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"],
  ...["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"],
]);

/** Work of building one grammar. */
export const buildSteps = (): Steps => new Steps(MAX_BUILD_STEPS, "building its grammar");

/** The grammar of JSON that fits a schema; a keyword that cannot be guaranteed is refused. */
export function schemaGrammar(given: unknown, steps: Steps, path = "#"): GrammarNode {
  const schema = schemaAt(given, path);
  return new SchemaReader(schema, steps).value(schema, path, 0);
}

/** A text that is equal for equal constraints. */
export function constraintKey(constraint: JsonConstraint): string {
  checkConstraintSize(constraint);
  return JSON.stringify(constraint);
}

/** The length of a schema in characters. One that is too long or too deep is refused, without reading more of it than is allowed. */
export function checkConstraintSize(constraint: JsonConstraint): number {
  if (constraint.type === "json_object") return 0;
  const given = constraint.type === "shape" ? constraint.shape : constraint.schema;
  const waiting: [value: unknown, depth: number][] = [[given, 0]];
  const seen = new Set<unknown>();
  let characters = 0;
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    const [value, depth] = next;
    if (depth > MAX_JSON_DEPTH) refuse("#", `values are nested more than ${MAX_JSON_DEPTH} levels deep`);
    characters += typeof value === "string" ? value.length + 3 : 3;
    // Parts of a shape may be shared.
    if (typeof value === "object" && seen.has(value)) continue;
    if (typeof value === "object") seen.add(value);
    const list = Array.isArray(value) ? (value as unknown[]) : undefined;
    const names = list ?? (typeof value === "object" && value !== null ? Object.keys(value) : []);
    if (characters + 3 * (waiting.length + names.length) > MAX_SCHEMA_CHARACTERS)
      refuse("#", `has more than ${MAX_SCHEMA_CHARACTERS} characters`);
    for (const inner of list ?? []) waiting.push([inner, depth + 1]);
    for (const name of list ? [] : (names as string[])) {
      characters += name.length;
      waiting.push([(value as Record<string, unknown>)[name], depth + 1]);
    }
  }
  return characters;
}

/** Turns the parts of one schema into grammar; parts that are referred to become rules. */
export class SchemaReader {
  readonly #root: Schema;
  readonly #rules = new Map<Keywords, RuleNode>();
  readonly #parts = new Map<Keywords, Part>();
  readonly #ways = new Map<Keywords, readonly Part[]>();
  /** Nodes of strings and numbers by their keywords: equal keywords share a node. */
  readonly #shared = new Map<string, GrammarNode>();
  readonly #steps: Steps;
  #count = 0;

  constructor(root: Schema, steps: Steps) {
    this.#root = root;
    this.#steps = steps;
  }

  /** All ways to satisfy a schema, each in one part. */
  ways(schema: Schema, path: string): readonly Part[] {
    return this.#alternatives(schema, path, 0);
  }

  value(schema: Schema, path: string, depth: number): GrammarNode {
    this.#count += 1;
    if (this.#count > MAX_SCHEMAS) refuse(path, `there are more than ${MAX_SCHEMAS} schemas to satisfy`);
    if (depth > MAX_DEPTH) refuse(path, `schemas are nested more than ${MAX_DEPTH} levels deep`);
    if (schema === true) return anyValue;
    if (schema === false) return choice();
    if (!COMBINING.some((keyword) => Object.hasOwn(schema, keyword))) {
      return this.#part(this.#read(schema, path), path, depth);
    }
    // Such schemas may refer to themselves.
    let node = this.#rules.get(schema);
    if (!node) {
      node = rule();
      this.#rules.set(schema, node);
      node.body = this.#combined(schema, path, depth);
    }
    return node;
  }

  #combined(schema: Keywords, path: string, depth: number): GrammarNode {
    const says = Object.keys(schema).filter(
      (keyword) => COMBINING.includes(keyword) || ASSERTING.has(keyword),
    );
    if (says.length === 1) {
      // Nothing to merge with: each branch is grammar of its own.
      this.#read(schema, path);
      if (says[0] === "$ref") {
        const { schema: target, path: targetPath } = this.#target(schema["$ref"], path);
        return this.value(target, targetPath, depth + 1);
      }
      const branches = this.#branches(schema, says[0]!, path);
      if (says[0] === "oneOf") this.#requireDisjoint(schema, path, depth);
      if (says[0] !== "allOf" || branches.length === 1) {
        return choice(...branches.map((branch) => this.value(branch.schema, branch.path, depth + 1)));
      }
    }
    const parts = this.#alternatives(schema, path, depth);
    return choice(...parts.map((part) => this.#part(part, path, depth)));
  }

  #read(schema: Keywords, path: string): Part {
    const part = this.#parts.get(schema) ?? readPart(schema, path, this.#steps);
    this.#parts.set(schema, part);
    return part;
  }

  /** All ways to satisfy a schema, each in one part. */
  #alternatives(schema: Schema, path: string, depth: number): readonly Part[] {
    if (depth > MAX_DEPTH) refuse(path, "schemas that have to hold at once refer to themselves");
    if (schema === false) return [];
    if (schema === true) return [{ numbers: {} }];
    const known = this.#ways.get(schema) ?? this.#findAlternatives(schema, path, depth);
    this.#ways.set(schema, known);
    return known;
  }

  #findAlternatives(schema: Keywords, path: string, depth: number): readonly Part[] {
    let found: readonly Part[] = [this.#read(schema, path)];
    const narrow = (others: readonly Part[]) => {
      found = found.flatMap((part) =>
        others.flatMap((other) => bothParts(part, other, path, this.#steps) ?? []),
      );
      if (found.length > MAX_ALTERNATIVES)
        refuse(path, `there are more than ${MAX_ALTERNATIVES} alternatives`);
    };
    if (Object.hasOwn(schema, "$ref")) {
      const target = this.#target(schema["$ref"], path);
      narrow(this.#alternatives(target.schema, target.path, depth + 1));
    }
    for (const keyword of ["allOf", "anyOf", "oneOf"]) {
      if (!Object.hasOwn(schema, keyword)) continue;
      const branches = this.#branches(schema, keyword, path);
      if (keyword === "oneOf") this.#requireDisjoint(schema, path, depth);
      const ways = branches.map((branch) => this.#alternatives(branch.schema, branch.path, depth + 1));
      if (keyword === "allOf") for (const others of ways) narrow(others);
      else narrow(ways.flat());
    }
    return found;
  }

  #branches(schema: Keywords, keyword: string, path: string): { schema: Schema; path: string }[] {
    const branches = schemaListAt(schema[keyword], `${path}/${keyword}`);
    this.#steps.take(4 * branches.length, path, keyword);
    return branches;
  }

  /** JSON that fits one branch of `oneOf` must fit no other. */
  #requireDisjoint(schema: Keywords, path: string, depth: number): void {
    const alternatives = (inner: Schema, innerDepth: number) => this.#alternatives(inner, path, innerDepth);
    const branches = this.#branches(schema, "oneOf", path).map((branch) =>
      this.#alternatives(branch.schema, branch.path, depth + 1),
    );
    const overlap = overlappingBranches(branches, { alternatives, steps: this.#steps }, depth);
    if (overlap === undefined) return;
    refuse(
      path,
      `"oneOf" is supported where its branches surely exclude each other (by type, or by a required property with different values), and ${overlap[0]} and ${overlap[1]} may both fit; "anyOf" is always supported`,
    );
  }

  #target(reference: unknown, path: string): { schema: Schema; path: string } {
    if (typeof reference !== "string" || !/^#($|\/)/.test(reference))
      refuse(path, `"$ref" must point into the same schema, such as "#/$defs/name"`);
    this.#steps.take((reference as string).length, path, "$ref");
    let found: unknown = this.#root;
    for (const step of (reference as string).split("/").slice(1)) {
      const name = unescaped(step).replaceAll("~1", "/").replaceAll("~0", "~");
      const isThere = typeof found === "object" && found !== null && Object.hasOwn(found, name);
      if (!isThere) refuse(path, `"$ref" points to ${String(reference)}, and there is nothing`);
      found = (found as Record<string, unknown>)[name];
    }
    return { schema: schemaAt(found, reference as string), path: reference as string };
  }

  #part(part: Part, path: string, depth: number): GrammarNode {
    if (part.values !== undefined) return this.#values(part, part.values, path, depth);
    const types = part.types ?? inferredTypes(part);
    if (types.length === 0) return anyValue;
    const inner = (schema: Schema, name: string) => this.value(schema, `${path}/${name}`, depth + 1);
    const nodes = types.map((type) => {
      switch (type) {
        case "object":
          return objectNode(part, path, inner, this.#steps);
        case "array":
          return arrayNode(part, path, inner, this.#steps);
        case "string":
          return this.#sharedNode("string", part, path, () => stringNode(part, path));
        case "number":
        case "integer":
          return this.#sharedNode(type, part, path, () => numberNode(part, type));
        case "boolean":
          return choice(literal("true"), literal("false"));
        case "null":
          return literal("null");
        default:
          return type satisfies never;
      }
    });
    return choice(...nodes);
  }

  /** Strings of a pattern or format, and numbers between bounds, are built once for equal keywords. */
  #sharedNode(type: SchemaType, part: Part, path: string, make: () => GrammarNode): GrammarNode {
    const { numbers, pattern, format } = part;
    const key = JSON.stringify([type, numbers, pattern, format]);
    let node = this.#shared.get(key);
    if (!node) {
      if (type !== "string") this.#steps.take(BOUNDED_NUMBER_SIZE, path, "minimum");
      if (pattern !== undefined) this.#steps.take(PATTERN_SIZE * pattern.length, path, "pattern");
      node = make();
      this.#shared.set(key, node);
    }
    return node;
  }

  /** Values of an `enum`, without those that other keywords exclude. */
  #values(part: Part, values: readonly unknown[], path: string, depth: number): GrammarNode {
    const { values: _, types, ...rest } = part;
    let fitting = types === undefined ? values : values.filter((value) => hasType(value, types));
    if (inferredTypes(rest).length > 0) {
      const node = this.#part({ ...rest, ...(types ? { types } : {}) }, path, depth);
      const recognizer = new Recognizer(node, this.#steps);
      fitting = fitting.filter((value) => recognizer.accepts(JSON.stringify(value)));
    }
    const options = fitting.map((value) => {
      const text = JSON.stringify(value);
      this.#steps.take(text.length, path, "enum");
      return literal(text);
    });
    return choice(...options);
  }
}

/** A part of a reference, percent-decoded if it can be. */
function unescaped(step: string): string {
  try {
    return decodeURIComponent(step);
  } catch {
    return step;
  }
}
