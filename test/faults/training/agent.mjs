// An agent with bad habits, trained while processes are killed: it asks again, edits what it said, and dies in the middle.
const { number } = JSON.parse(process.env.TINKERTS_PROBLEM);
const { OPENAI_BASE_URL, OPENAI_API_KEY } = process.env;

async function ask(messages) {
  const answer = await fetch(`${OPENAI_BASE_URL}/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${OPENAI_API_KEY}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "any", messages, tools: [] }),
  });
  if (!answer.ok) throw new Error(await answer.text());
  return [...messages, (await answer.json()).choices[0].message];
}

const user = (content) => ({ role: "user", content });
const question = [user(`What is ${(number * 37) % 90} + ${(number * 59) % 97}?`)];
let history = await ask(question);
if (number % 3 === 0) history = await ask(question);
if (number % 5 === 0) process.kill(process.pid, "SIGKILL");
const edited = number % 4 === 0 ? [user("Add."), ...history.slice(1)] : history;
await ask([...edited, user("Sure?")]);
