import { TinkerError } from "../errors.js";
import type { ContentPart, Message, ToolCall } from "../renderers/messages.js";
import { base64ToBytes } from "../wire/base64.js";
import { isRecord } from "../wire/reading.js";
import { readCallMetadata } from "./answer-metadata.js";
import type { Prompt, PromptPart, ToolResultOutput } from "./specification.js";

type PartOf<Type extends PromptPart["type"]> = Extract<PromptPart, { readonly type: Type }>;

/** Turns a prompt of the AI SDK into the messages that renderers write. */
export function messagesOf(prompt: Prompt): readonly Message[] {
  const formatIds = new Map<string, string>();
  return prompt.flatMap((message): Message[] => {
    if (message.role === "system") return [{ role: "system", content: message.content }];
    const calls: ToolCall[] = [];
    const results: Message[] = [];
    const parts: ContentPart[] = [];
    for (const part of message.content) {
      switch (part.type) {
        case "text":
          parts.push({ type: "text", text: part.text });
          break;
        case "reasoning":
          parts.push({ type: "thinking", thinking: part.text });
          break;
        case "file":
          parts.push(imageOf(part.mediaType, part.data));
          break;
        case "tool-call": {
          const call = callOf(part);
          formatIds.set(part.toolCallId, call.id!);
          calls.push(call);
          break;
        }
        case "tool-result":
          results.push({
            role: "tool",
            content: resultContent(part.output),
            toolCallId: formatIds.get(part.toolCallId) ?? part.toolCallId,
            name: part.toolName,
          });
          break;
        // The core acts on it itself, and a refusal comes as a result too.
        case "tool-approval-response":
          break;
        default:
          throw new TinkerError(
            `prompt has a part of the type ${JSON.stringify((part satisfies never as PromptPart).type)}, which ` +
              "this model does not know.",
          );
      }
    }
    if (message.role === "tool") return results;
    const toolCalls = calls.length > 0 ? { toolCalls: calls } : {};
    return [{ role: message.role, content: mergeTexts(parts), ...toolCalls }, ...results];
  });
}

/** Some formats accept only text: several texts are joined, and a message of text alone becomes a string. */
function mergeTexts(parts: readonly ContentPart[]): Message["content"] {
  const merged: ContentPart[] = [];
  for (const part of parts) {
    const last = merged.at(-1);
    if (part.type === "text" && last?.type === "text") {
      merged[merged.length - 1] = { type: "text", text: last.text + part.text };
    } else merged.push(part);
  }
  const [first] = merged;
  if (first === undefined) return "";
  return merged.length === 1 && first.type === "text" ? first.text : merged;
}

/** The tool call as the model wrote it, unless its arguments were changed since. */
function callOf(part: PartOf<"tool-call">): ToolCall {
  const { id = part.toolCallId, arguments: written } = readCallMetadata(part.providerOptions);
  const given = JSON.stringify(part.input ?? {});
  return { id, name: part.toolName, arguments: isSameJson(written, given) ? written! : given };
}

function isSameJson(written: string | undefined, given: string): boolean {
  try {
    return written !== undefined && JSON.stringify(JSON.parse(written)) === given;
  } catch {
    return false;
  }
}

function resultContent(output: ToolResultOutput): Message["content"] {
  switch (output.type) {
    case "text":
    case "error-text":
      return output.value;
    case "json":
    case "error-json":
      return JSON.stringify(output.value) ?? "null";
    case "execution-denied":
      return output.reason ?? "The call was not allowed.";
    case "content":
      return mergeTexts(output.value.map(resultPart));
    default:
      throw new TinkerError(
        `a tool's result has the type ${JSON.stringify((output satisfies never as ToolResultOutput).type)}, which ` +
          "this model does not know.",
      );
  }
}

function resultPart(part: { readonly type: string }): ContentPart {
  const { type, text, data, mediaType } = part as { readonly type: string } & Readonly<
    Record<string, unknown>
  >;
  if (type === "text" && typeof text === "string") return { type: "text", text };
  if (type === "image-data" || type === "file-data") return imageOf(String(mediaType), data);
  throw new TinkerError(
    `A tool's result has a part of the type ${type}. This model takes text and the bytes of PNG and JPEG images.`,
  );
}

/** The renderer decides whether its format takes images. */
function imageOf(mediaType: string, data: unknown): ContentPart {
  const isImage = mediaType.startsWith("image/");
  if (isImage && data instanceof Uint8Array) return { type: "image", image: data };
  if (isImage && typeof data === "string") return { type: "image", image: base64ToBytes(data) };
  const what = isImage && (data instanceof URL || isRecord(data)) ? "an image at an address" : mediaType;
  throw new TinkerError(
    `The prompt has a file (${what}). This model takes text and the bytes of PNG and JPEG images.`,
  );
}
