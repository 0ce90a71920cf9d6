import type { ContentPart } from "../../renderers/index.js";
import { type Tool, type ToolOutput, toolError } from "./tool.js";

/** What is needed of an MCP client: `Client` of `@modelcontextprotocol/sdk` has it. */
export interface McpClient {
  listTools(page?: { cursor?: string }): Promise<{
    readonly tools: readonly {
      readonly name: string;
      readonly description?: string | undefined;
      readonly inputSchema: Readonly<Record<string, unknown>>;
    }[];
    readonly nextCursor?: string | undefined;
  }>;
  callTool(
    call: { name: string; arguments?: Record<string, unknown> },
    resultSchema?: undefined,
    options?: { signal?: AbortSignal },
  ): Promise<Readonly<Record<string, unknown>>>;
}

/** The tools of an MCP server. The client stays connected as long as they are used, and is the caller's to close. */
export async function mcpTools(client: McpClient): Promise<readonly Tool[]> {
  const tools: Tool[] = [];
  let cursor: string | undefined;
  do {
    const page = await client.listTools(cursor === undefined ? {} : { cursor });
    for (const { name, description = "", inputSchema } of page.tools) {
      const { $schema, ...parameters } = inputSchema;
      const run: Tool["run"] = async (input, { signal }) =>
        readResult(
          await client.callTool({ name, arguments: input as Record<string, unknown> }, undefined, { signal }),
        );
      tools.push({ name, description, parameters, run });
    }
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return tools;
}

function readResult(result: Readonly<Record<string, unknown>>): ToolOutput {
  const { content, isError } = result;
  const parts = (Array.isArray(content) ? (content as readonly McpContent[]) : []).map(readPart);
  const text = parts.map((part) => (part.type === "text" ? part.text : "")).join("\n");
  if (isError === true) return toolError(text);
  return { content: parts.every(({ type }) => type === "text") ? text : parts };
}

interface McpContent {
  readonly type: string;
  readonly text?: string;
  readonly data?: string;
  readonly mimeType?: string;
}

/** What is neither text nor an image is shown as the JSON it is. */
function readPart(part: McpContent): ContentPart {
  const { type, text, data, mimeType } = part;
  if (type === "text" && text !== undefined) return { type, text };
  if (type === "image" && data !== undefined) return { type, image: `data:${mimeType};base64,${data}` };
  return { type: "text", text: JSON.stringify(part) };
}
