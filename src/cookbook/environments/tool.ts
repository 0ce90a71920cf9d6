import { messageOf, TinkerError, ValidationError } from "../../errors.js";
import type { Message, ToolCall, ToolDeclaration } from "../../renderers/index.js";
import { printPythonJson } from "../../renderers/python-json.js";
import { describe, wrongValue } from "../../wire/index.js";

/** What a tool answers. */
export interface ToolOutput {
  /** What the model reads. */
  readonly content: Message["content"];
  /** Whether the episode is over with this call. Default: no. */
  readonly endsEpisode?: boolean | undefined;
}

/** What a tool may know of the call. */
export interface ToolContext {
  /** Aborted when the rollout is over. */
  readonly signal: AbortSignal;
  /** Where the format has ids. */
  readonly callId?: string | undefined;
}

/** A function that a model may call. */
export interface Tool extends ToolDeclaration {
  /** Runs with what the model gave as arguments. What it throws is told to the model. */
  run(input: unknown, context: ToolContext): string | ToolOutput | Promise<string | ToolOutput>;
}

/** A schema that knows its types, checks values and says what it is in JSON schema. Those of zod 4 do. */
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

/** How a tool is declared and what it does. */
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
export function tool<Output>({ name, description, parameters, execute }: ToolOptions<Output>): Tool {
  if (typeof name !== "string" || name === "") throw wrongValue("name", "the name of a function", name);
  if (typeof execute !== "function") throw wrongValue("execute", "a function", execute);
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
    throw new ValidationError(
      "parameters",
      "parameters must be a schema that knows its JSON schema, as those of zod from 4.2 on, or a JSON schema",
    );
  }
  const { $schema, ...schema } = standard.jsonSchema.input({ target: "draft-2020-12" });
  return checkedSchema(schema);
}

function checkedSchema(schema: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  if (schema?.["type"] === "object") return schema;
  throw wrongValue("parameters", "the schema of an object", schema);
}

/** Arguments that do not fit their schema. */
class ArgumentsError extends TinkerError {
  constructor(issues: readonly SchemaIssue[]) {
    const texts = issues.map(({ message, path = [] }) => {
      const place = path.map((part) => String(typeof part === "object" ? part.key : part)).join(".");
      return place === "" ? message : `${place}: ${message}`;
    });
    super(texts.join("; "));
  }
}

/** An error as a tool tells it to the model. */
export function toolError(error: string): ToolOutput {
  return { content: printPythonJson({ error }) };
}

/** The result of a call as a message. What goes wrong is told to the model, which may try again. */
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
    output = await tool.run(input, context);
  } catch (error) {
    const what = error instanceof ArgumentsError ? "Parameter validation" : "Tool execution";
    return toolError(`${what} failed: ${messageOf(error)}`);
  }
  if (typeof output === "string") return { content: output };
  if (typeof output?.content === "string" || Array.isArray(output?.content)) return output;
  throw new ValidationError(
    name,
    `the tool ${name} must return a text or { content }, got ${describe(output)}`,
  );
}
