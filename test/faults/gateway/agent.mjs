// An agent with a name: it talks for some turns, asks again when a request fails, and writes down what it was answered.
import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const PAUSE_MS = 50;
const [baseURL, name, log, turns] = process.argv.slice(2);
const number = Number(/\d+$/.exec(name)[0]);

/** The answer, whole; undefined where it did not come or broke off. */
async function ask(messages, isStreamed) {
  const address = `${baseURL.replace(/\/v1$/, "")}/s/${name}/v1/chat/completions`;
  const body = JSON.stringify({ model: "any", messages, max_tokens: 16, stream: isStreamed });
  try {
    const response = await fetch(address, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body,
    });
    const text = await response.text();
    if (response.status >= 400 && response.status < 500 && response.status !== 429)
      throw new Error(`the gateway refused for good: ${response.status} ${text}`);
    if (!response.ok) return undefined;
    if (!isStreamed) return JSON.parse(text).choices[0].message.content;
    if (!text.trim().endsWith("data: [DONE]")) return undefined;
    const events = text.split("\n\n").filter((event) => event.startsWith("data: {"));
    return events.map((event) => JSON.parse(event.slice(6)).choices[0]?.delta.content ?? "").join("");
  } catch (error) {
    if (error.message.startsWith("the gateway refused")) throw error;
    return undefined;
  }
}

const messages = [];
for (let turn = 0; turn < Number(turns); turn += 1) {
  messages.push({ role: "user", content: `What is ${10 + number} + ${20 + turn}?` });
  let content = await ask(messages, turn % 2 === 0);
  while (content === undefined) {
    await sleep(PAUSE_MS);
    content = await ask(messages, turn % 2 === 0);
  }
  appendFileSync(log, `${JSON.stringify({ session: name, message: messages.length, content })}\n`);
  messages.push({ role: "assistant", content });
  // Some change what they have said.
  if (number % 3 === 0 && turn === 2) messages[0].content += " Be quick.";
}
