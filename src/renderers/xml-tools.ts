import { TinkerError } from "../errors.js";
import {
  type CallForm,
  type MemberForm,
  plain,
  sign,
  taggedArguments,
  textArgumentsOf,
} from "./answer-shape.js";
import { callArguments } from "./chatml.js";
import { joinMarkup, type Markup, markup } from "./markup.js";
import type { ToolCall, ToolDeclaration, UnparsedToolCall } from "./messages.js";
import { readJsonToolCall } from "./parsing.js";
import { isJsonObject, type JsonValue, printPythonJson, readPythonJson } from "./python-json.js";
import { strip } from "./python-text.js";

/** A call with a tag for the function and one for each argument. */
export function writeXmlToolCall(call: ToolCall, writeValue: (value: JsonValue) => string): Markup {
  const given = call.arguments === "" ? new Map<string, JsonValue>() : callArguments(call);
  if (!isJsonObject(given)) {
    throw new TinkerError(`the arguments of the call to ${JSON.stringify(call.name)} must be a JSON object`);
  }
  const parameters = [...given].map(
    ([name, value]) => markup`<parameter=${name}>\n${writeValue(value)}\n</parameter>\n`,
  );
  return markup`<tool_call>\n<function=${call.name}>\n${joinMarkup(parameters)}</function>\n</tool_call>`;
}

const MEMBERS: MemberForm = {
  before: "<parameter=",
  asText: ">\n",
  asJson: ">\n",
  behind: "\n</parameter>\n",
  separator: "",
  without: ["<parameter=", "</parameter>", "</function>", "<tool_call>", "</tool_call>"],
};

/** Calls with a tag for the function and one for each argument. */
export const XML_CALLS = {
  frame: ["", ""],
  between: "\n",
  head: (name) => [sign("<tool_call>\n<function="), plain(name), sign(">\n")],
  arguments: (tool) => taggedArguments(tool, MEMBERS),
  tail: "</function>\n</tool_call>",
} as const satisfies Omit<CallForm, "thoughtsEnd" | "takesPrefill">;

/** Reads a call in tags, or in JSON. Arguments that are texts by their schema stay unchanged. */
export function readXmlToolCall(
  body: string,
  rawText: string,
  tools: readonly ToolDeclaration[] = [],
): ToolCall | UnparsedToolCall {
  const json = readJsonToolCall(body, rawText);
  if (!("rawText" in json) || !rawText.includes("<function=")) return json;
  const unparsed = (error: string): UnparsedToolCall => ({ rawText, error });
  const [whole, name, inner] = /^<function=([^>\n]+)>(.*)<\/function>$/s.exec(strip(body)) ?? [];
  if (whole === undefined) return unparsed("Tool call is no <function=...> block");
  if (strip(name!) === "") return unparsed("Missing function name");
  const values = new Map<string, JsonValue>();
  const texts = textArgumentsOf(strip(name!), tools);
  const rest = inner!.replace(PARAMETER, (_match, parameter: string, value: string) => {
    const key = strip(parameter);
    values.set(key, texts.has(key) ? value.replace(/^\n|\n$/g, "") : readValue(strip(value)));
    return "";
  });
  if (strip(rest) !== "") return unparsed("Text between the parameters of a function");
  if (values.has("")) return unparsed("Empty parameter name");
  return { name: strip(name!), arguments: printPythonJson(values) };
}

const PARAMETER = /<parameter=([^>\n]+)>(.*?)<\/parameter>/gs;

/** Reads text that looks like JSON as JSON, and anything else as text. */
function readValue(text: string): JsonValue {
  try {
    return readPythonJson(text);
  } catch {
    return text;
  }
}

/** A system message's text that declares tools, each already written in the format's way. */
export function declareXmlTools(tools: readonly string[]): string {
  return `# Tools

You have access to the following functions:

<tools>
${tools.join("\n")}
</tools>

${XML_CALL_INSTRUCTION}`;
}

/** The part of a tool declaration that explains how calls are written. */
export const XML_CALL_INSTRUCTION = `If you choose to call a function ONLY reply in the following format with NO suffix:

<tool_call>
<function=example_function_name>
<parameter=example_parameter_1>
value_1
</parameter>
<parameter=example_parameter_2>
This is the value for the second parameter
that can span
multiple lines
</parameter>
</function>
</tool_call>

<IMPORTANT>
Reminder:
- Function calls MUST follow the specified format: an inner <function=...></function> block must be nested within <tool_call></tool_call> XML tags
- Required parameters MUST be specified
- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT after
- If there is no function call available, answer the question like normal with your current knowledge and do not tell the user about function calls
</IMPORTANT>`;
