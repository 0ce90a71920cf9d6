import type OpenAI from "openai";
import { callText } from "./scripted-sampler.js";

const tools = [
  {
    type: "function" as const,
    function: {
      name: "add",
      description: "Adds.",
      parameters: { type: "object", properties: { a: { type: "integer" } } },
    },
  },
];
/** A call of the tool, as the model writes it. */
export const add = (a: number) => callText("add", { a });

/** An agent as people write them with OpenAI's client: it calls tools until it has an answer. */
export async function runAgent(client: OpenAI, question: string, isStreamed = false): Promise<string> {
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: question }];
  for (;;) {
    const body = { model: "gpt-4o", messages, tools };
    const { choices } = isStreamed
      ? await client.chat.completions.stream(body).finalChatCompletion()
      : await client.chat.completions.create(body);
    const { message } = choices[0]!;
    messages.push(message);
    if (!message.tool_calls?.length) return message.content ?? "";
    for (const { id } of message.tool_calls) messages.push({ role: "tool", tool_call_id: id, content: "7" });
  }
}
