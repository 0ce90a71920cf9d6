import type { JsonConstraint } from "../../engine.js";
import { disjointParts } from "./disjoint-parts.js";
import { choice, type GrammarNode, literal, type RuleNode, rule } from "./grammar.js";
import { Recognizer } from "./recognizer.js";
import {
  bothParts,
  hasType,
  type Keywords,
  type Part,
  readPart,
  refuse,
  type Schema,
  schemaAt,
  schemaListAt,
} from "./schema-parts.js";
import {
  anyObject,
  anyValue,
  arrayNode,
  inferredTypes,
  numberNode,
  objectNode,
  stringNode,
} from "./value-grammar.js";

const MAX_DEPTH = 100;
const MAX_SCHEMAS = 10_000;
const MAX_ALTERNATIVES = 1000;
const MAX_SCHEMA_CHARACTERS = 1 << 20;

/** Everything that says nothing about which JSON fits. */
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

/** The grammar of all texts that the sampler may write; a schema that cannot be promised is refused by its keyword. */
export function constraintGrammar(constraint: JsonConstraint): GrammarNode {
  if (constraint.type === "json_object") return anyObject;
  const schema = schemaAt(constraint.schema, "#");
  constraintKey(constraint);
  return new SchemaReader(schema).value(schema, "#", 0);
}

/** The same text for the same constraint. */
export function constraintKey(constraint: JsonConstraint): string {
  let key: string;
  try {
    key = JSON.stringify(constraint);
  } catch {
    return refuse("#", `schemas are more than ${MAX_DEPTH} deep in each other`);
  }
  if (key.length > MAX_SCHEMA_CHARACTERS) refuse("#", `has more than ${MAX_SCHEMA_CHARACTERS} characters`);
  return key;
}

/** Turns the parts of one schema into grammar; parts that are referred to become rules. */
class SchemaReader {
  readonly #root: Schema;
  readonly #rules = new Map<string, RuleNode>();
  #count = 0;

  constructor(root: Schema) {
    this.#root = root;
  }

  value(schema: Schema, path: string, depth: number): GrammarNode {
    this.#count += 1;
    if (this.#count > MAX_SCHEMAS) refuse(path, `there are more than ${MAX_SCHEMAS} schemas to satisfy`);
    if (depth > MAX_DEPTH) refuse(path, `schemas are more than ${MAX_DEPTH} deep in each other`);
    if (schema === true) return anyValue;
    if (schema === false) return choice();
    if (!COMBINING.some((keyword) => Object.hasOwn(schema, keyword))) {
      return this.#part(readPart(schema, path), path, depth);
    }
    // Such schemas may come back to themselves.
    const key = JSON.stringify(schema);
    if (key.length > MAX_SCHEMA_CHARACTERS)
      refuse(path, "the schemas that have to hold at once grow without end");
    let node = this.#rules.get(key);
    if (!node) {
      node = rule();
      this.#rules.set(key, node);
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
      readPart(schema, path);
      if (says[0] === "$ref") {
        const { schema: target, path: targetPath } = this.#target(schema["$ref"], path);
        return this.value(target, targetPath, depth + 1);
      }
      const branches = schemaListAt(schema[says[0]!], `${path}/${says[0]}`);
      if (says[0] === "oneOf") this.#requireDisjoint(schema, path, depth);
      if (says[0] !== "allOf" || branches.length === 1) {
        return choice(...branches.map((branch) => this.value(branch.schema, branch.path, depth + 1)));
      }
    }
    const parts = this.#alternatives(schema, path, depth);
    return choice(...parts.map((part) => this.#part(part, path, depth)));
  }

  /** All ways to satisfy a schema, each in one part. */
  #alternatives(schema: Schema, path: string, depth: number): Part[] {
    if (depth > MAX_DEPTH) refuse(path, "schemas that have to hold at once refer to themselves");
    if (schema === false) return [];
    if (schema === true) return [{ numbers: {} }];
    let found: Part[] = [readPart(schema, path)];
    const narrow = (others: Part[]) => {
      found = found.flatMap((part) => others.flatMap((other) => bothParts(part, other, path) ?? []));
      if (found.length > MAX_ALTERNATIVES)
        refuse(path, `there are more than ${MAX_ALTERNATIVES} alternatives`);
    };
    if (Object.hasOwn(schema, "$ref")) {
      const target = this.#target(schema["$ref"], path);
      narrow(this.#alternatives(target.schema, target.path, depth + 1));
    }
    for (const keyword of ["allOf", "anyOf", "oneOf"]) {
      if (!Object.hasOwn(schema, keyword)) continue;
      const branches = schemaListAt(schema[keyword], `${path}/${keyword}`);
      if (keyword === "oneOf") this.#requireDisjoint(schema, path, depth);
      const ways = branches.map((branch) => this.#alternatives(branch.schema, branch.path, depth + 1));
      if (keyword === "allOf") for (const others of ways) narrow(others);
      else narrow(ways.flat());
    }
    return found;
  }

  /** What fits one branch of `oneOf` must fit no other. */
  #requireDisjoint(schema: Keywords, path: string, depth: number): void {
    const alternatives = (inner: Schema, innerDepth: number) => this.#alternatives(inner, path, innerDepth);
    const branches = schemaListAt(schema["oneOf"], `${path}/oneOf`).map((branch) =>
      this.#alternatives(branch.schema, branch.path, depth + 1),
    );
    for (const [index, branch] of branches.entries()) {
      const other = branches.findIndex(
        (later, at) =>
          at > index && !branch.every((a) => later.every((b) => disjointParts(a, b, alternatives, depth))),
      );
      if (other === -1) continue;
      refuse(
        path,
        `"oneOf" is supported where its branches surely exclude each other (by type, or by a required property with different values), and ${index} and ${other} may both fit; "anyOf" is always supported`,
      );
    }
  }

  #target(reference: unknown, path: string): { schema: Schema; path: string } {
    if (typeof reference !== "string" || !/^#($|\/)/.test(reference))
      refuse(path, `"$ref" must point into the same schema, such as "#/$defs/name"`);
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
          return objectNode(part, path, inner);
        case "array":
          return arrayNode(part, inner);
        case "string":
          return stringNode(part, path);
        case "number":
        case "integer":
          return numberNode(part, type);
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

  /** Values from a list, as far as they satisfy what else is said. */
  #values(part: Part, values: readonly unknown[], path: string, depth: number): GrammarNode {
    const { values: _, types, ...rest } = part;
    let fitting = types === undefined ? values : values.filter((value) => hasType(value, types));
    if (inferredTypes(rest).length > 0) {
      const recognizer = new Recognizer(this.#part({ ...rest, ...(types ? { types } : {}) }, path, depth));
      fitting = fitting.filter((value) => recognizer.accepts(JSON.stringify(value)));
    }
    return choice(...fitting.map((value) => literal(JSON.stringify(value))));
  }
}

/** A part of a reference without its percent signs; as it is where they stand for nothing. */
function unescaped(step: string): string {
  try {
    return decodeURIComponent(step);
  } catch {
    return step;
  }
}
