import { TinkerError, ValidationError } from "../errors.js";
import type { ToolCall, UnparsedToolCall } from "./messages.js";
import { readJson } from "./parsing.js";
import {
  comparePoints,
  isJsonObject,
  JsonNumber,
  type JsonObject,
  type JsonValue,
  printPythonJson,
} from "./python-json.js";

/** A call as Inkling writes it: compact JSON with sorted arguments. */
export function tmlCallText({ name, arguments: given }: ToolCall): string {
  const { value, error } = readJson(given);
  if (name === "" || !isJsonObject(value)) {
    throw new ValidationError(
      "toolCalls",
      `toolCalls must have a name and a JSON object as arguments, got ${JSON.stringify({ name, arguments: given })}` +
        (error === undefined ? "" : `: ${error}`),
    );
  }
  return `{"name":${JSON.stringify(name)},"args":${compact(sorted(value))}}`;
}

/** Reads a call under the name in its header, if any; the ids are those that Kimi's calls have. */
export function readTmlCall(
  { name, body, rawText }: { readonly name: string; readonly body: string; readonly rawText: string },
  index: number,
): ToolCall | UnparsedToolCall {
  const { value, error } = readJson(body);
  if (error !== undefined) return { rawText, error };
  const [called, given] = isJsonObject(value) ? [value.get("name"), value.get("args")] : [];
  if (typeof called !== "string" || called === "" || (name !== "" && called !== name)) {
    return { rawText, error: `name must be the name of the function, ${JSON.stringify(name)}` };
  }
  if (!isJsonObject(given)) return { rawText, error: "args must be an object" };
  return { id: `functions.${called}:${index}`, name: called, arguments: printPythonJson(given) };
}

/** The declaration of tools as Inkling knows it: flat, with sorted keys. */
export function tmlDeclarationText(content: string): string {
  const { value } = readJson(content);
  if (!Array.isArray(value)) throw invalidDeclaration(content);
  const tools = value.map((tool: JsonValue) => {
    const declared = isJsonObject(tool) ? tool.get("function") : undefined;
    if (!isJsonObject(declared)) throw invalidDeclaration(content);
    const name = declared.get("name");
    const description = declared.get("description");
    const parameters = declared.get("parameters") ?? new Map();
    if (typeof name !== "string" || !isJsonObject(parameters)) throw invalidDeclaration(content);
    return new Map<string, JsonValue>([
      ["description", typeof description === "string" ? description : ""],
      ["name", name],
      ["parameters", deeplySorted(parameters)],
      ["type", (tool as JsonObject).get("type") ?? "function"],
    ]);
  });
  return compact(tools, "+");
}

const invalidDeclaration = (content: string): ValidationError =>
  new ValidationError(
    "content",
    `content of a message with the role tool_declare must be a JSON list of {"type": "function", "function": ` +
      `{"name", "description", "parameters"}}, as declareTools writes it, got ${JSON.stringify(content)}`,
  );

const sorted = (object: JsonObject): JsonObject =>
  new Map([...object].sort(([a], [b]) => comparePoints(a, b)));

function deeplySorted(value: JsonValue): JsonValue {
  if (Array.isArray(value)) return value.map(deeplySorted);
  if (!isJsonObject(value)) return value;
  return sorted(new Map(Array.from(value, ([key, each]) => [key, deeplySorted(each)])));
}

/** JSON without spaces, and floats as Rust writes them: `1e-7`, `1e22`, or `1e+22` with a plus. */
function compact(value: JsonValue, plus: "" | "+" = ""): string {
  if (value instanceof JsonNumber) return rustNumber(value, plus);
  if (Array.isArray(value)) return `[${value.map((each: JsonValue) => compact(each, plus)).join(",")}]`;
  if (!isJsonObject(value)) return JSON.stringify(value);
  const entries = Array.from(value, ([key, each]) => `${JSON.stringify(key)}:${compact(each, plus)}`);
  return `{${entries.join(",")}}`;
}

function rustNumber(value: JsonNumber, plus: string): string {
  const number = value.toJSON();
  if (!Number.isFinite(number)) throw new TinkerError(`JSON in this format has no number ${value.text}.`);
  if (value.text.includes("e-05")) return String(number);
  return value.text.replace(/e([-+])0?(\d+)$/, (_, sign, digits) => `e${sign === "-" ? "-" : plus}${digits}`);
}
