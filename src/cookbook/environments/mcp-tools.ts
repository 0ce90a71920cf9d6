import { TinkerError } from "../../errors.js";
import type { ContentPart } from "../../renderers/index.js";
import { type Tool, type ToolOutput, toolError } from "./tool.js";

/** MCP client that `mcpTools` needs; `Client` of `@modelcontextprotocol/sdk` fits. */
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

const MAX_TOOLS = 10_000;
const MAX_PAGES = 1_000;

/**
 * Makes tools from those of an MCP server. Keep the client connected while they are used; closing it is up to the
 * caller.
 */
export async function mcpTools(client: McpClient): Promise<readonly Tool[]> {
  const tools: Tool[] = [];
  const cursors = new Set<string>();
  let cursor: string | undefined;
  for (;;) {
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
    if (tools.length > MAX_TOOLS || cursors.size > MAX_PAGES)
      throw new TinkerError(
        `The MCP server lists more than ${MAX_TOOLS} tools or ${MAX_PAGES} pages of them; a model cannot use so many.`,
      );
    if (cursor === undefined) return tools;
    if (cursors.has(cursor))
      throw new TinkerError(
        `The MCP server's list of tools has no end: after page ${cursors.size + 1} it goes back to the cursor ${JSON.stringify(cursor)}.`,
      );
    cursors.add(cursor);
  }
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

/** Content that is neither text nor an image becomes JSON. */
function readPart(part: McpContent): ContentPart {
  const { type, text, data, mimeType } = part;
  if (type === "text" && text !== undefined) return { type, text };
  if (type === "image" && data !== undefined) return { type, image: `data:${mimeType};base64,${data}` };
  return { type: "text", text: JSON.stringify(part) };
}
