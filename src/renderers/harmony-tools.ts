import type { ToolDeclaration } from "./messages.js";
import {
  isJsonObject,
  type JsonObject,
  type JsonValue,
  printPythonJson,
  printPythonText,
} from "./python-json.js";
import { asSchema, isGiven, listAt, objectAt } from "./typescript-tools.js";

/** Within a nested object the template leaves its own indentation between a name and its type. */
const INDENT = `\n${" ".repeat(16)}`;

/** Declaration of one tool as GPT-OSS's chat template writes it. */
export function harmonyToolText(tool: ToolDeclaration): string {
  const schema = asSchema(tool);
  const parameters = objectAt(schema, "parameters");
  const properties = objectAt(parameters, "properties");
  const head = `// ${printPythonText(schema.get("description") ?? "")}\ntype ${printPythonText(schema.get("name"))} = `;
  if (properties.size === 0) return `${head}() => any;`;
  const required = new Set(listAt(parameters, "required"));
  const lines = Array.from(properties, ([name, given]) => {
    const property = schemaOf(given);
    const about = property.get("description");
    const comment = isGiven(about) ? `// ${printPythonText(about)}\n` : "";
    return `${comment}${name}${required.has(name) ? "" : "?"}: ${typeText(property)}${defaultText(property)},\n`;
  });
  return `${head}(_: {\n${lines.join("")}}) => any;`;
}

const schemaOf = (given: JsonValue | undefined): JsonObject => (isJsonObject(given) ? given : new Map());

function defaultText(property: JsonObject): string {
  const value = property.get("default");
  if (value === undefined) return "";
  if (listAt(property, "enum").length > 0) return `, // default: ${printPythonText(value)}`;
  if (listAt(property, "oneOf").length > 0) return `// default: ${printPythonText(value)}`;
  return `, // default: ${raw(value)}`;
}

const raw = (value: JsonValue): string => printPythonJson(value, { ensureAscii: false });

function typeText(schema: JsonObject): string {
  const type = schema.get("type");
  const orNull = isGiven(schema.get("nullable")) ? " | null" : "";
  if (type === "array") return itemsText(schema) + orNull;
  if (Array.isArray(type) && type.length > 0) return type.map(printPythonText).join(" | ");
  const variants = listAt(schema, "oneOf");
  if (variants.length > 0) return variants.map((each) => variantText(schemaOf(each))).join(" | \n");
  switch (type) {
    case "string": {
      const values = listAt(schema, "enum");
      return values.length > 0 ? `"${values.map(printPythonText).join('" | "')}"` : `string${orNull}`;
    }
    case "number":
    case "integer":
      return "number";
    case "boolean":
      return "boolean";
    case "object":
      return objectText(schema);
    default:
      return "any";
  }
}

function itemsText(schema: JsonObject): string {
  const items = schema.get("items");
  if (!isGiven(items)) return "any[]";
  const inner = typeText(schemaOf(items));
  const isPlain = ["string", "number", "integer", "boolean"].includes(String(schemaOf(items).get("type")));
  if (isPlain) return `${typeText(new Map([["type", schemaOf(items).get("type")!]]))}[]`;
  return inner === "object | object" || inner.length > 50 ? "any[]" : `${inner}[]`;
}

function variantText(variant: JsonObject): string {
  const about = variant.get("description");
  const byDefault = variant.get("default");
  return (
    typeText(variant) +
    (isGiven(about) ? `// ${printPythonText(about)}` : "") +
    (byDefault === undefined ? "" : `${" ".repeat(20)}// default: ${raw(byDefault)}`)
  );
}

function objectText(schema: JsonObject): string {
  const properties = objectAt(schema, "properties");
  if (properties.size === 0) return "object";
  const required = new Set(listAt(schema, "required"));
  const fields = Array.from(
    properties,
    ([name, given]) => `${name}${required.has(name) ? "" : "?"}: ${INDENT}${typeText(schemaOf(given))}`,
  );
  return `{\n${fields.join(", ")}}`;
}

/** Declaration of one tool as the Python cookbook writes it. */
export function cookbookToolText(tool: ToolDeclaration): string {
  const schema = asSchema(tool);
  const description = schema.get("description");
  const comment = isGiven(description) ? `// ${printPythonText(description)}\n` : "";
  return `${comment}type ${printPythonText(schema.get("name"))} = ${harmonyParameters(objectAt(schema, "parameters"))} => any;`;
}

function harmonyParameters(schema: JsonObject): string {
  const properties = objectAt(schema, "properties");
  if (schema.get("type") !== "object" || properties.size === 0) return "()";
  const required = new Set(listAt(schema, "required"));
  const about = schema.get("description");
  const lines = [isGiven(about) ? `(_: // ${printPythonText(about)}` : "(_:", "{"];
  for (const [name, given] of properties) {
    const property: JsonObject = isJsonObject(given) ? given : new Map();
    lines.push(...harmonyComments(property));
    const byDefault = property.get("default");
    const comment = byDefault === undefined ? "" : ` // default: ${printPythonJson(byDefault)}`;
    lines.push(`${name}${required.has(name) ? "" : "?"}: ${harmonyType(property)},${comment}`);
  }
  return [...lines, "})"].join("\n");
}

function harmonyComments(schema: JsonObject): readonly string[] {
  const title = schema.get("title");
  const about = schema.get("description");
  const examples = listAt(schema, "examples");
  return [
    ...(isGiven(title) ? [printPythonText(title), ""] : []),
    ...(isGiven(about) ? [printPythonText(about)] : []),
    ...(examples.length > 0 ? ["Examples:", ...examples.map((each) => `- ${printPythonJson(each)}`)] : []),
  ].map((line) => `// ${line}`);
}

function harmonyType(given: JsonValue | undefined): string {
  const schema: JsonObject = isJsonObject(given) ? given : new Map();
  const union = (types: readonly JsonValue[]) => types.map(harmonyType).join(" | ");
  if (schema.has("oneOf")) return union(listAt(schema, "oneOf"));
  if (schema.has("anyOf")) return union(listAt(schema, "anyOf"));
  const type = schema.get("type");
  if (Array.isArray(type)) return union(type.map((each: JsonValue) => new Map([["type", each]])));
  if (type === "string" && schema.has("enum")) {
    return listAt(schema, "enum")
      .map((value) => printPythonJson(value))
      .join(" | ");
  }
  const text = harmonyPlainType(type, schema);
  return isGiven(schema.get("nullable")) ? `${text} | null` : text;
}

function harmonyPlainType(type: JsonValue | undefined, schema: JsonObject): string {
  switch (type) {
    case "string":
    case "number":
    case "boolean":
      return type;
    case "integer":
      return "number";
    case "array":
      return `${harmonyType(schema.get("items"))}[]`;
    case "object": {
      const required = new Set(listAt(schema, "required"));
      const fields = Array.from(
        objectAt(schema, "properties"),
        ([name, property]) => `${name}${required.has(name) ? "" : "?"}: ${harmonyType(property)}`,
      );
      return `{ ${fields.join(", ")} }`;
    }
    default:
      return "any";
  }
}
