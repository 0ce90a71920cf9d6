import { messageOf, TinkerError, ValidationError } from "../../errors.js";
import type { Message, ToolCall, ToolDeclaration } from "../../renderers/index.js";
import { printPythonJson } from "../../renderers/python-json.js";
import { inSpan } from "../../session/index.js";
import * as f from "../../wire/fields/index.js";

/** Result of a tool call. */
export interface ToolOutput {
  /** Content that the model reads. */
  readonly content: Message["content"];
  /** Whether the call ends the episode. Default: no. */
  readonly endsEpisode?: boolean | undefined;
}

/** Context of a tool call. */
export interface ToolContext {
  /** Aborted when the rollout ends. */
  readonly signal: AbortSignal;
  /** Id of the call, if the format has ids. */
  readonly callId?: string | undefined;
}

/** A function that a model may call. */
export interface Tool extends ToolDeclaration {
  /** Runs with the arguments that the model gave. If it throws, the model reads the error's message. */
  run(input: unknown, context: ToolContext): string | ToolOutput | Promise<string | ToolOutput>;
}

/** A schema that knows its types, checks values and describes them as JSON schema, like those of zod 4. */
export interface TypedSchema<Output = unknown> {
  readonly "~standard": {
    readonly types?: { readonly output: Output } | undefined;
    validate(value: unknown): SchemaResult<Output> | Promise<SchemaResult<Output>>;
    readonly jsonSchema: {
      input(options: { readonly target: "draft-2020-12" }): Readonly<Record<string, unknown>>;
    };
  };
}

type SchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly SchemaIssue[] };

interface SchemaIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** Declaration and function of a tool. */
export interface ToolOptions<Output> {
  readonly name: string;
  readonly description: string;
  /** A zod object, which also checks the arguments; or a JSON schema, which only declares them. */
  readonly parameters: TypedSchema<Output> | Readonly<Record<string, unknown>>;
  readonly execute: (
    input: Output,
    context: ToolContext,
  ) => string | ToolOutput | Promise<string | ToolOutput>;
}

/** The option table of `tool`. */
export const TOOL_OPTIONS = f.optionTable({
  name: f.option(f.text, "name of the function"),
  description: f.option(f.anyText, "what the function does, for the model"),
  parameters: f.option(f.opaque as f.Field<ToolOptions<never>["parameters"]>, "schema of the arguments"),
  execute: f.option(f.functionOf<ToolOptions<never>["execute"]>(), "runs the function"),
} satisfies f.OptionsOf<ToolOptions<never>>);

/**
 * A tool whose arguments are typed by its schema.
 *
 *     const add = tool({
 *       name: "add",
 *       description: "Adds two numbers.",
 *       parameters: z.object({ a: z.number(), b: z.number() }),
 *       execute: ({ a, b }) => String(a + b),
 *     });
 */
export function tool<Output>(
  options: ToolOptions<Output> & { readonly parameters: TypedSchema<Output> },
): Tool;
export function tool(options: ToolOptions<Readonly<Record<string, unknown>>>): Tool;
export function tool<Output>(options: ToolOptions<Output>): Tool {
  TOOL_OPTIONS.check(options, "tool");
  const { name, description, parameters, execute } = options;
  if (!isTyped(parameters)) {
    return {
      name,
      description,
      parameters: checkedSchema(parameters),
      run: (input, context) => execute(input as Output, context),
    };
  }
  return {
    name,
    description,
    parameters: jsonSchemaOf(parameters),
    run: async (input, context) => {
      const result = await parameters["~standard"].validate(input);
      if (result.issues !== undefined) throw new ArgumentsError(result.issues);
      return execute(result.value, context);
    },
  };
}

function isTyped<Output>(parameters: ToolOptions<Output>["parameters"]): parameters is TypedSchema<Output> {
  return typeof parameters === "object" && parameters !== null && "~standard" in parameters;
}

function jsonSchemaOf({ "~standard": standard }: TypedSchema): Readonly<Record<string, unknown>> {
  if (standard.jsonSchema === undefined) {
    throw f.wrongField(
      "parameters",
      "must be a JSON schema, or a schema that can be converted to one, such as those of zod 4.2",
    );
  }
  const { $schema, ...schema } = standard.jsonSchema.input({ target: "draft-2020-12" });
  return checkedSchema(schema);
}

function checkedSchema(schema: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  if (schema?.["type"] === "object") return schema;
  throw f.wrongValue("parameters", "the schema of an object", schema);
}

function toolSpan({ name }: Tool) {
  const attributes = { "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name };
  return { category: "environment", attributes } as const;
}

/** The arguments of a call do not fit their schema. */
class ArgumentsError extends TinkerError {
  constructor(issues: readonly SchemaIssue[]) {
    const texts = issues.map(({ message, path = [] }) => {
      const place = path.map((part) => String(typeof part === "object" ? part.key : part)).join(".");
      return place === "" ? message : `${place}: ${message}`;
    });
    super(texts.join("; "));
  }
}

/** An error as the model reads it. */
export function toolError(error: string): ToolOutput {
  return { content: printPythonJson({ error }) };
}

/** The result of a call as a message. The model also reads errors, and may try again. */
export async function runToolCall(
  tools: ReadonlyMap<string, Tool>,
  { id, name, arguments: given }: ToolCall,
  signal: AbortSignal,
): Promise<{ readonly message: Message; readonly endsEpisode: boolean }> {
  const { content, endsEpisode = false } = await outputOf(tools.get(name), name, given, {
    signal,
    callId: id,
  });
  const message = { role: "tool", content, name, ...(id !== undefined && { toolCallId: id }) };
  return { message, endsEpisode };
}

async function outputOf(
  tool: Tool | undefined,
  name: string,
  given: string,
  context: ToolContext,
): Promise<ToolOutput> {
  if (tool === undefined) return toolError(`Tool '${name}' not found`);
  let input: unknown;
  try {
    input = JSON.parse(given);
  } catch (error) {
    return toolError(`Failed to parse tool arguments: ${messageOf(error)}`);
  }
  let output: string | ToolOutput;
  try {
    output = await inSpan(`execute_tool ${tool.name}`, toolSpan(tool), async () => tool.run(input, context));
  } catch (error) {
    const what = error instanceof ArgumentsError ? "Parameter validation" : "Tool execution";
    return toolError(`${what} failed: ${messageOf(error)}`);
  }
  if (typeof output === "string") return { content: output };
  if (typeof output?.content === "string" || Array.isArray(output?.content)) return output;
  throw new ValidationError(
    name,
    `the tool ${name} must return a text or { content }, got ${f.describe(output)}`,
  );
}
