import type { ToolDeclaration } from "./messages.js";
import {
  isJsonObject,
  type JsonObject,
  type JsonValue,
  printPythonJson,
  printPythonText,
} from "./python-json.js";
import { asSchema, isGiven, listAt, objectAt } from "./typescript-tools.js";

/** Harmony's declaration of one tool, as GPT-OSS reads it. */
export function harmonyToolText(tool: ToolDeclaration): string {
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
