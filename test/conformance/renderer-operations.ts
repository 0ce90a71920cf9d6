/** What a renderer is asked, as both sides do it. */
import { isDeepStrictEqual } from "node:util";
import { TinkerError } from "../../src/errors.js";
import type {
  Message,
  MessageDelta,
  Renderer,
  SupervisedExample,
  ToolDeclaration,
  TrainOn,
} from "../../src/renderers/index.js";
import { chunkLength, type ModelInput } from "../../src/wire/index.js";
import type { Conversation } from "./conversations.js";

export type Operation =
  | { readonly operation: "properties" }
  | ({ readonly operation: "prompt"; readonly role?: string; readonly prefill?: string } & Conversation)
  | ({ readonly operation: "example" | "examples"; readonly trainOn: TrainOn } & Conversation)
  | { readonly operation: "tools"; readonly tools: readonly ToolDeclaration[]; readonly system: string }
  | { readonly operation: "parse" | "stream"; readonly tokens: readonly number[] };

/** A result as JSON, or a refusal; ours may also be no refusal but a defect. */
export type Outcome = { readonly ok?: unknown; readonly error?: string; readonly isCrash?: boolean };

/** The operation in the names of the Python package. */
export function forPython(operation: Operation): object {
  if (!("messages" in operation)) return operation;
  const { messages, ...rest } = operation;
  const { trainOn, ...others } = { trainOn: undefined, ...rest };
  return {
    ...others,
    ...(trainOn !== undefined && { train_on: trainOn }),
    messages: messages.map(pythonMessage),
  };
}

/** What our renderer makes of it. */
export function ours(renderer: Renderer, operation: Operation): Outcome {
  try {
    return { ok: perform(renderer, operation) };
  } catch (error) {
    return { error: String(error), isCrash: !(error instanceof TinkerError) };
  }
}

function perform(renderer: Renderer, operation: Operation): unknown {
  switch (operation.operation) {
    case "properties":
      return {
        stopSequences: renderer.stopSequences,
        hasExtensionProperty: renderer.hasExtensionProperty,
      };
    case "prompt": {
      const { role, prefill } = operation;
      return positions(renderer.buildPrompt(wholeConversation(renderer, operation), { role, prefill }));
    }
    case "example":
      return plainExample(
        renderer.buildSupervisedExample(wholeConversation(renderer, operation), operation.trainOn),
      );
    case "examples":
      return renderer
        .buildSupervisedExamples(wholeConversation(renderer, operation), operation.trainOn)
        .map(plainExample);
    case "tools":
      return renderer.declareTools(operation.tools, operation.system).map(pythonMessage);
    case "parse": {
      const { message, termination } = renderer.parseResponse(operation.tokens);
      return { message: pythonMessage(message), termination };
    }
    case "stream":
      return streamed(renderer, operation.tokens);
    default:
      return operation satisfies never;
  }
}

function wholeConversation(
  renderer: Renderer,
  { messages, tools, system }: Conversation,
): readonly Message[] {
  if (tools === undefined) return messages;
  const prefix = renderer.declareTools(tools, system);
  const isFlagged = messages.some(({ trainable }) => trainable !== undefined);
  return [...(isFlagged ? prefix.map((message) => ({ ...message, trainable: false })) : prefix), ...messages];
}

/** The tokens, and at each position of an image its name. */
const positions = ({ chunks }: ModelInput): readonly (number | "image")[] =>
  chunks.flatMap((chunk): readonly (number | "image")[] =>
    chunk.type === "encoded_text"
      ? Array.from(chunk.tokens, Number)
      : new Array(chunkLength(chunk)).fill("image"),
  );

const plainExample = ({ input, weights }: SupervisedExample) => ({
  tokens: positions(input),
  weights: [...weights],
});

function streamed(renderer: Renderer, tokens: readonly number[]): readonly Delta[] {
  const parser = renderer.streamParser();
  const deltas = [...tokens.flatMap((token) => parser.push(token)), ...parser.end()];
  return merged(
    deltas.map((delta) =>
      delta.type === "message" ? { type: "message", message: pythonMessage(delta.message) } : delta,
    ),
  );
}

type Delta =
  | Exclude<MessageDelta, { readonly type: "message" }>
  | { readonly type: "message"; readonly message: object };

/** Joins deltas, since their borders do not matter. */
export function merged(deltas: readonly Delta[]): readonly Delta[] {
  const whole: Delta[] = [];
  for (const delta of deltas) {
    const last = whole.at(-1);
    if (delta.type === "text" && last?.type === "text" && last.contentIndex === delta.contentIndex) {
      whole[whole.length - 1] = { ...delta, text: last.text + delta.text };
    } else if (
      delta.type === "thinking" &&
      last?.type === "thinking" &&
      last.contentIndex === delta.contentIndex
    ) {
      whole[whole.length - 1] = { ...delta, thinking: last.thinking + delta.thinking };
    } else whole.push(delta);
  }
  return whole;
}

/** A message in the shape of the Python package. */
function pythonMessage(message: Message): Record<string, unknown> {
  const { role, content, toolCalls, unparsedToolCalls, trainable, toolCallId, name } = message;
  return {
    role,
    content,
    ...(toolCalls !== undefined && {
      tool_calls: toolCalls.map(({ id, name: called, arguments: given }) => ({
        type: "function",
        id: id ?? null,
        function: { name: called, arguments: given },
      })),
    }),
    ...(unparsedToolCalls !== undefined && {
      unparsed_tool_calls: unparsedToolCalls.map(({ rawText, error }) => ({ raw_text: rawText, error })),
    }),
    ...(trainable !== undefined && { trainable }),
    ...(toolCallId !== undefined && { tool_call_id: toolCallId }),
    ...(name !== undefined && { name }),
  };
}

/** What is wrong between two outcomes; undefined where they agree. Refusals agree whatever their words. */
export type Disagreement = "we crash" | "only we refuse" | "only Python refuses" | "results differ";

export function disagreement(own: Outcome, theirs: Outcome): Disagreement | undefined {
  if (own.isCrash === true) return "we crash";
  if (own.error !== undefined) return theirs.error === undefined ? "only we refuse" : undefined;
  if (theirs.error !== undefined) return "only Python refuses";
  return isDeepStrictEqual(comparable(own.ok), comparable(theirs.ok)) ? undefined : "results differ";
}

/** Without the words in which a tool call is found wrong, and with merged deltas. */
export function comparable(result: unknown): unknown {
  if (Array.isArray(result)) {
    const isStream = result[0]?.type === "header";
    return (isStream ? merged(result as Delta[]) : result).map(comparable);
  }
  if (typeof result !== "object" || result === null) return result;
  const { unparsed_tool_calls: unparsed, supportsStreaming: _, ...rest } = result as Record<string, unknown>;
  return {
    ...Object.fromEntries(Object.entries(rest).map(([key, value]) => [key, comparable(value)])),
    ...(Array.isArray(unparsed) && {
      unparsed_tool_calls: unparsed.map(({ raw_text: rawText }) => ({ raw_text: rawText })),
    }),
  };
}
