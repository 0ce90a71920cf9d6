import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { batches, conversations, trainSupervised } from "../../src/cookbook/index.js";
import { ServiceClient } from "../../src/index.js";
import { defaultModel } from "../../src/local/default-model.js";
import { startLocalBackend } from "../../src/local/index.js";
import { RunLog } from "../../src/training/run-log.node.js";
import { silent } from "../local/raw-client.js";
import { dashboardOf } from "./dashboard-of.js";
import { explainSkip, hasPythonModule, lastLine, runPython } from "./judge.js";

explainSkip("same-run.test.ts");

const SETTINGS = {
  renderer: "qwen3_instruct",
  batchSize: 6,
  rank: 8,
  learningRate: 1e-3,
  schedule: "cosine",
  evaluateEvery: 3,
  saveEvery: 4,
  maxLength: 48,
} as const;

const row = (index: number) => ({
  messages: [
    ...(index % 4 === 0 ? [{ role: "system", content: "Be brief." }] : []),
    { role: "user", content: `What is ${index} + ${(index * 7) % 10}?` },
    { role: "assistant", content: `It is ${index + ((index * 7) % 10)}.` },
    ...(index % 3 === 0
      ? [
          { role: "user", content: "And twice that?" },
          {
            role: "assistant",
            content: `${2 * (index + ((index * 7) % 10))}, a number of some length: café ☕.`,
          },
        ]
      : []),
  ],
});

const rows = Array.from({ length: 60 }, (_, index) => row(index));
const testRows = Array.from({ length: 7 }, (_, index) => row(100 + index));

/** A server of its own, with the weights to begin from, which the seed makes the same everywhere. */
async function freshBackend() {
  const backend = await startLocalBackend({ logger: silent });
  const service = new ServiceClient(backend);
  const training = await service.createLoraTrainingClient({
    baseModel: defaultModel.name,
    rank: SETTINGS.rank,
    seed: 3,
  });
  const { path } = await training.saveState("start");
  return { backend, service, startFrom: path };
}

interface Step {
  readonly step: number;
  readonly [name: string]: number;
}

it.skipIf(!hasPythonModule("tinker_cookbook", "same-run.test.ts"))(
  "a supervised run has the same losses to the last digit, from the Python cookbook and from ours",
  async () => {
    const folder = await mkdtemp(join(tmpdir(), "tinkerts-same-run-"));
    const [first, second] = [await freshBackend(), await freshBackend()];
    try {
      const { renderer, saveEvery, ...shared } = SETTINGS;
      await trainSupervised({
        ...shared,
        service: first.service,
        model: defaultModel.name,
        data: conversations(rows),
        testData: conversations(testRows),
        startFrom: first.startFrom,
        renderer,
        save: { everySteps: saveEvery },
        folder: join(folder, "ours"),
        loggers: [],
      });
      await using log = await RunLog.open(join(folder, "ours"));
      const ours = (await log.readMetrics()) as unknown as readonly Step[];

      const order = batches(rows, { batchSize: SETTINGS.batchSize });
      const inOrder = Array.from({ length: order.stepsPerEpoch }, (_, step) => order.indices(step)).flat();
      const settings = {
        ...SETTINGS,
        rows: inOrder.map((index) => rows[index]),
        testRows,
        startFrom: second.startFrom,
      };
      const { baseURL, apiKey } = second.backend;
      const output = await runPython("supervised.py", {
        baseURL,
        apiKey,
        model: defaultModel.name,
        folder,
        env: { SETTINGS: JSON.stringify(settings) },
      });
      const theirs = lastLine<Step[]>(output);
      expect(theirs).toHaveLength(order.stepsPerEpoch);
      for (const step of theirs) {
        const mine = ours.find((line) => line.step === step.step)!;
        for (const name of ["train_mean_nll", "test/nll", "learning_rate", "num_sequences", "num_tokens"]) {
          expect(mine[name], `${name} of step ${step.step}`).toBe(step[name]);
        }
      }
      expect(theirs.filter((step) => step["test/nll"] !== undefined)).toHaveLength(4);
      // Their folder opens in the dashboard as it is.
      const shown = await dashboardOf(join(folder, "run"));
      const last = theirs.at(-1)!;
      expect(shown.run).toMatchObject({
        model: defaultModel.name,
        state: "finished",
        step: last.step,
        headline: { name: "train_mean_nll", value: last["train_mean_nll"] },
      });
      const { badLines, series } = shown.metrics;
      expect(badLines).toBe(0);
      expect(series["train_mean_nll"]?.values).toEqual(theirs.map((step) => step["train_mean_nll"]));
      expect(series["test/nll"]?.steps).toHaveLength(4);
      expect(shown.checkpoints.filter(({ isFinal }) => isFinal).map(({ kind }) => kind)).toEqual([
        "training",
        "sampler",
      ]);
      // After the last step only ours is measured.
      expect(ours.at(-1)!["test/nll"]).toBeLessThan(theirs[0]!["test/nll"]!);
    } finally {
      for (const { service, backend } of [first, second]) {
        await service.close();
        await backend.close();
      }
      await rm(folder, { recursive: true });
    }
  },
);
