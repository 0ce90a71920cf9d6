/**
 * A file of conversations in, a fine-tuned chat model out. The file has one conversation a line, in the shape of
 * OpenAI's API. `trainSupervised` holds some rows out, chooses the settings, trains, measures, and keeps the run in a
 * folder; `chat` asks the trained model; `evaluate` grades it on questions that it has not seen.
 *
 * The model is trained to add numbers of two digits and to answer as a sailor would.
 */
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ServiceClient } from "tinkerts";
import { chat, conversations, evaluate, exactMatch, trainSupervised } from "tinkerts/cookbook";
import { startLocalBackend } from "tinkerts/local";

const model = "tinkerts/nano";
const folder = await mkdtemp(join(tmpdir(), "tinkerts-fine-tune-"));

const sums = Array.from({ length: 100 }, (_, index) => [Math.floor(index / 10), index % 10] as const);
type Sum = (typeof sums)[number];
const question = ([a, b]: Sum) => `What is ${a} + ${b}?`;
const answer = ([a, b]: Sum) => `Ahoy! ${a + b}.`;
const isHeldBack = ([a, b]: Sum) => (a + 3 * b) % 10 === 7;

const file = join(folder, "chats.jsonl");
const rows = sums
  .filter((sum) => !isHeldBack(sum))
  .map((sum) => ({
    messages: [
      { role: "user", content: question(sum) },
      { role: "assistant", content: answer(sum) },
    ],
  }));
await writeFile(file, rows.map((row) => `${JSON.stringify(row)}\n`).join(""));

await using backend = await startLocalBackend();
await using service = new ServiceClient(backend);
const run = await trainSupervised({
  service,
  model,
  data: conversations(file),
  epochs: 6,
  folder: join(folder, "run"),
});

const sampler = await service.createSamplingClient({ modelPath: run.samplerPath });
const { message } = await chat(sampler, [{ role: "user", content: question([4, 1]) }], { temperature: 0 });
console.log(`${question([4, 1])} ${message.content}`);

const tasks = sums.filter(isHeldBack).map((sum) => ({ prompt: question(sum), answer: answer(sum) }));
const before = await evaluate({
  sampler: await service.createSamplingClient({ baseModel: model }),
  tasks,
  grade: exactMatch(),
  temperature: 0,
});
const after = await evaluate({ sampler, tasks, grade: exactMatch(), temperature: 0 });
console.log(
  `Of ${tasks.length} questions it has not seen: ${before.numCorrect} right before, ${after.numCorrect} after.`,
);
await rm(folder, { recursive: true });

assert.equal(before.numCorrect, 0);
assert.ok(after.score >= 0.5, `only ${after.numCorrect} right`);
