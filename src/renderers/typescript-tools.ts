import { TinkerError } from "../errors.js";
import type { ToolDeclaration } from "./messages.js";
import {
  comparePoints,
  isJsonObject,
  JsonNumber,
  type JsonObject,
  type JsonValue,
  printPythonJson,
  printPythonText,
  readPythonJson,
} from "./python-json.js";

const INDENT = "  ";

/** Kimi K2.5's declaration of tools: a namespace of TypeScript types, with what a schema says besides as comments. */
export function kimiToolsText(tools: readonly ToolDeclaration[]): string {
  const functions = tools.map((tool) => functionText(asSchema(tool)));
  return `# Tools\n\n## functions\nnamespace functions {\n${functions.join("\n")}\n}\n`;
}

/** Plain objects and those that were read from JSON alike, so that the rest knows one kind. */
export function asSchema(tool: ToolDeclaration): JsonObject {
  return readPythonJson(printPythonJson(tool)) as JsonObject;
}

export function objectAt(schema: JsonObject, key: string): JsonObject {
  const value = schema.get(key);
  return isJsonObject(value) ? value : new Map();
}

export function listAt(schema: JsonObject, key: string): readonly JsonValue[] {
  const value = schema.get(key);
  return Array.isArray(value) ? value : [];
}

/** Whether Python counts a value as true. */
export function isGiven(value: JsonValue | undefined): value is JsonValue {
  if (value instanceof JsonNumber) return value.toJSON() !== 0;
  if (isJsonObject(value)) return value.size > 0;
  return Array.isArray(value) ? value.length > 0 : Boolean(value);
}

/** A type in a declaration for Kimi: its text, and the comments above it. */
interface KimiType {
  readonly text: (indent: string) => string;
  readonly comments: (indent: string) => string;
}

/** The definitions that a function's schema refers to. */
interface Definitions {
  readonly schemas: Map<string, JsonValue>;
  /** Whether the schema refers to itself, so that it needs a name. */
  hasSelf: boolean;
}

function functionText(tool: JsonObject): string {
  const definitions: Definitions = { schemas: new Map(), hasSelf: false };
  const parameters = objectAt(tool, "parameters");
  const fields = fieldsOf(parameters, definitions);
  const { hasSelf } = definitions;
  const interfaces = [
    ...(hasSelf ? [`interface parameters ${braced(fields.declared.map((field) => field(INDENT)))}`] : []),
    ...Array.from(definitions.schemas, ([name, schema]) => interfaceText(name, schema, definitions)),
  ];
  const argument = hasSelf ? "parameters" : fields.text("");
  const lines = [
    ...interfaces,
    description(tool.get("description")),
    `type ${printPythonText(tool.get("name"))} = (_: ${argument}) => any;`,
  ];
  return lines.filter((line) => line !== "").join("\n");
}

function interfaceText(name: string, schema: JsonValue, definitions: Definitions): string {
  const { text } = kimiType(schema, definitions);
  const comment = isJsonObject(schema) ? description(schema.get("description")) : "";
  return `${comment === "" ? "" : `${comment}\n`}interface ${name} ${text("")}`;
}

function kimiType(schema: JsonValue, definitions: Definitions): KimiType {
  if (typeof schema === "boolean") return { text: () => (schema ? "any" : "null"), comments: () => "" };
  if (!isJsonObject(schema)) throw invalid(schema);
  const type = schema.get("type");
  if (schema.has("$ref")) return documented(schema, referenceText(schema.get("$ref")!, definitions));
  if (schema.has("anyOf")) {
    const types = listAt(schema, "anyOf").map((each) => kimiType(each, definitions));
    return documented(schema, (indent) => types.map(({ text }) => text(indent)).join(" | "));
  }
  if (schema.has("enum")) return enumType(schema);
  if (Array.isArray(type)) {
    const types = type.map((each: JsonValue) => UNION_TYPES.get(printPythonText(each)));
    if (types.includes(undefined)) throw invalid(schema);
    return documented(schema, () => types.join(" | "));
  }
  if (type === "object") return documented(schema, fieldsOf(schema, definitions).text);
  if (type === "array") return arrayType(schema, definitions);
  if (type !== undefined) {
    const name = printPythonText(type);
    return documented(schema, () => (name === "integer" ? "number" : name), CONSTRAINTS.get(name));
  }
  if (schema.size === 0) return documented(schema, () => "any");
  throw invalid(schema);
}

const UNION_TYPES: ReadonlyMap<string, string> = new Map([
  ["string", "string"],
  ["number", "number"],
  ["integer", "number"],
  ["boolean", "boolean"],
  ["null", "null"],
  ["object", "{}"],
  ["array", "Array<any>"],
]);

/** In the order of the alphabet, as they are printed. */
const CONSTRAINTS: ReadonlyMap<string, readonly string[]> = new Map([
  ["string", ["maxLength", "minLength", "pattern"]],
  ["number", ["maximum", "minimum"]],
  ["integer", ["maximum", "minimum"]],
  ["array", ["maxItems", "minItems"]],
]);

function documented(
  schema: JsonObject,
  text: KimiType["text"],
  constraintNames: readonly string[] = [],
): KimiType {
  const constraints = constraintNames
    .filter((name) => schema.has(name))
    .map((name) => `${name}: ${printPythonText(schema.get(name))}`);
  const comments = (indent: string) => {
    const lines = [
      description(schema.get("description"), indent),
      constraints.length > 0 ? `${indent}// ${constraints.join(", ")}` : "",
    ];
    return lines.map((line) => (line === "" ? "" : `${line}\n`)).join("");
  };
  return { text, comments };
}

function description(value: JsonValue | undefined, indent = ""): string {
  if (!isGiven(value)) return "";
  return printPythonText(value)
    .split("\n")
    .map((line) => (line === "" ? "" : `${indent}// ${line}`))
    .join("\n");
}

function arrayType(schema: JsonObject, definitions: Definitions): KimiType {
  const items = schema.get("items");
  const item = kimiType(isGiven(items) ? items : true, definitions);
  const text = (indent: string) => {
    const inner = indent + INDENT;
    const comments = item.comments(inner);
    if (comments === "") return `Array<${item.text(indent)}>`;
    return `Array<\n${comments}${inner}${item.text(inner)}\n${indent}>`;
  };
  return documented(schema, text, CONSTRAINTS.get("array"));
}

function enumType(schema: JsonObject): KimiType {
  const values = listAt(schema, "enum");
  const type = valueType(schema);
  for (const value of values) {
    const isRight = value === null || (VALUE_TESTS.get(type)?.(value) ?? true);
    if (!isRight)
      throw new TinkerError(`A value of an enum must be of type ${type}, got ${printPythonText(value)}.`);
  }
  const texts = values.map((value) => (typeof value === "string" ? `"${value}"` : printPythonText(value)));
  return documented(schema, () => texts.join(" | "));
}

function valueType(schema: JsonObject): string | undefined {
  const type = schema.get("type");
  if (!Array.isArray(type)) return typeof type === "string" ? type : undefined;
  const names = type.length === 1 ? type : type.filter((name: JsonValue) => name !== "null");
  if (names.length === 1 && type.length <= 2) return printPythonText(names[0]);
  throw new TinkerError(`An enum must have one type, or one type and null, got ${printPythonJson(type)}.`);
}

/** Whether a value has a type in Python, where true and false are integers. */
const VALUE_TESTS = new Map<string | undefined, (value: JsonValue) => boolean>([
  ["string", (value) => typeof value === "string"],
  ["number", (value) => value instanceof JsonNumber || typeof value === "boolean"],
  [
    "integer",
    (value) => typeof value === "boolean" || (value instanceof JsonNumber && /^-?\d+$/.test(value.text)),
  ],
  ["boolean", (value) => typeof value === "boolean"],
]);

function referenceText(reference: JsonValue, definitions: Definitions): KimiType["text"] {
  if (reference === "#") {
    definitions.hasSelf = true;
    return () => "parameters";
  }
  const name = printPythonText(reference).startsWith("#/$defs/")
    ? printPythonText(reference).split("/").at(-1)!
    : undefined;
  if (name === undefined || !definitions.schemas.has(name)) {
    throw new TinkerError(
      `A schema refers to ${printPythonText(reference)}, which is neither "#" nor one of its $defs.`,
    );
  }
  return () => name;
}

type Field = (indent: string) => string;

/** The fields of an object: as declared, and as the text of its type with those first that are required. */
function fieldsOf(
  schema: JsonObject,
  definitions: Definitions,
): { readonly declared: readonly Field[]; readonly text: KimiType["text"] } {
  for (const [name, each] of objectAt(schema, "$defs")) definitions.schemas.set(name, each);
  const others = otherFields(schema.get("additionalProperties"), definitions);
  const required = new Set(listAt(schema, "required"));
  const fields = Array.from(objectAt(schema, "properties"), ([name, property]) => ({
    name,
    isOptional: !required.has(name),
    field: fieldOf(name, property, !required.has(name), definitions),
  }));
  const sorted = fields.toSorted(
    (a, b) => Number(a.isOptional) - Number(b.isOptional) || comparePoints(a.name, b.name),
  );
  const all = [...sorted.map(({ field }) => field), ...others];
  return {
    declared: fields.map(({ field }) => field),
    text: (indent) =>
      braced(
        all.map((field) => field(indent + INDENT)),
        indent,
      ),
  };
}

function fieldOf(name: string, schema: JsonValue, isOptional: boolean, definitions: Definitions): Field {
  const type = kimiType(schema, definitions);
  const byDefault = isJsonObject(schema) ? schema.get("default") : undefined;
  const value =
    typeof byDefault === "boolean"
      ? printPythonText(byDefault)
      : printPythonJson(byDefault, { ensureAscii: false });
  return (indent) => {
    const comment = byDefault === undefined || byDefault === null ? "" : `${indent}// Default: ${value}\n`;
    return `${type.comments(indent)}${comment}${indent}${name}${isOptional ? "?" : ""}: ${type.text(indent)}`;
  };
}

function otherFields(schema: JsonValue | undefined, definitions: Definitions): readonly Field[] {
  if (schema === undefined || schema === null) return [];
  const { text } = schema === false ? { text: () => "never" } : kimiType(schema, definitions);
  return [(indent) => `${indent}[k: string]: ${text(indent)}`];
}

const braced = (fields: readonly string[], indent = ""): string =>
  fields.length === 0 ? "{}" : `{\n${fields.join(",\n")}\n${indent}}`;

const invalid = (schema: JsonValue): TinkerError =>
  new TinkerError(`This is not a JSON schema of a tool's argument: ${printPythonJson(schema)}`);
