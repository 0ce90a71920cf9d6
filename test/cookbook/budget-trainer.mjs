/** Trains under a budget in a folder, says which step has ended, and waits for nothing if killed. */

import { ServiceClient } from "tinkerts";
import { conversations, trainSupervised } from "tinkerts/cookbook";

const [baseURL, folder, seed, tokens] = process.argv.slice(2);
const rows = Array.from({ length: 48 }, (_, index) => ({
  messages: [
    { role: "user", content: `Say ${"one ".repeat(1 + (index % 5))}` },
    { role: "assistant", content: "two ".repeat(1 + ((index * 7) % 9)) },
  ],
}));
const service = new ServiceClient({ baseURL, apiKey: "tml-local", logLevel: "off" });
const run = await trainSupervised({
  ...{ service, model: "tinkerts/nano", data: conversations(rows), folder, seed: Number(seed), rank: 2 },
  ...{ testSize: 0, batchSize: 3, epochs: 2, save: { everySteps: 4 } },
  budget: { tokens: Number(tokens) },
  loggers: [
    {
      config: () => {},
      metrics: (_, step) => void process.stdout.write(`ended ${step}\n`),
      close: () => {},
    },
  ],
});
process.stdout.write(`${JSON.stringify({ isFinished: run.isFinished, by: run.paused?.by ?? null })}\n`);
await service.close();
