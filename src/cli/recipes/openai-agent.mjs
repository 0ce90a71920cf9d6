// An agent as a plain script: OpenAI's client finds its address and key in the environment, and the word is its input.
import { text } from "node:stream/consumers";
import OpenAI from "openai";

const word = (await text(process.stdin)).trim();
const client = new OpenAI({ maxRetries: 0 });
const tools = [
  {
    type: "function",
    function: {
      name: "reverse",
      description: "Writes a word backwards.",
      parameters: { type: "object", properties: { word: { type: "string" } } },
    },
  },
];

const messages = [{ role: "user", content: `Write ${word} backwards.` }];
for (let turn = 0; turn < 3; turn += 1) {
  const { choices } = await client.chat.completions.create({ model: "gpt-5", messages, tools });
  const { message } = choices[0];
  messages.push(message);
  if (!message.tool_calls?.length) {
    console.log(message.content);
    break;
  }
  for (const call of message.tool_calls) {
    const given = JSON.parse(call.function.arguments);
    messages.push({
      role: "tool",
      tool_call_id: call.id,
      content: [...String(given.word)].reverse().join(""),
    });
  }
}
