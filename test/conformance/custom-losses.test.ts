import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { ServiceClient } from "../../src/index.js";
import { defaultModel } from "../../src/local/default-model.js";
import { startLocalBackend } from "../../src/local/index.js";
import { Tensor } from "../../src/training/autograd/index.js";
import { evaluateCustomLoss } from "../../src/training/custom-loss.js";
import type { CustomLossRank } from "../../src/wire/index.js";
import { silent } from "../local/raw-client.js";
import { execPython, explainSkip, hasPythonModule, lastLine, runPython } from "./judge.js";
import { startRecorder } from "./recorder.js";
import { writeReport } from "./report.js";
import { TRACED_LOSSES } from "./traced-losses.js";

explainSkip("custom-losses.test.ts");

interface Row {
  readonly name: string;
  /** How far the logprobs of the trained models are apart, relative to the largest of 1 and their size. */
  readonly logprobs: number;
  /** The same of losses and metrics, step by step, beside the package's own path in each precision. */
  readonly float64: readonly number[];
  readonly float32: readonly number[];
}

describe.skipIf(!hasPythonModule("torch", "custom-losses.test.ts"))("custom losses", () => {
  it("of the official client train on the server as in the client", async () => {
    await using backend = await startLocalBackend({ logger: silent });
    const settings = { baseURL: backend.baseURL, apiKey: backend.apiKey, model: defaultModel.name };
    const { rows, torch } = lastLine<{ rows: Row[]; torch: string }>(
      await runPython("custom_losses.py", settings),
    );
    const most = (of: (row: Row) => number) => Math.max(...rows.map(of));
    const found = {
      losses: rows.length,
      torch,
      float64: most((row) => Math.max(...row.float64)),
      logprobs: most((row) => row.logprobs),
      float32: most((row) => row.float32[0]!),
    };
    writeReport("custom-losses", found);
    expect(found.losses).toBe(30);
    expect(found.float64).toBeLessThan(1e-9);
    expect(found.logprobs).toBeLessThan(1e-6);
    // Later steps start from weights that float32 has rounded apart.
    expect(found.float32).toBeLessThan(1e-6);
  });

  it("of ours are rebuilt from what is uploaded, by the package and torch.fx, to the same values", async () => {
    await using recorder = await startRecorder({ logger: silent });
    await using service = new ServiceClient({ baseURL: recorder.baseURL, apiKey: "tml-local" });
    for (const { lossFn, inputs } of TRACED_LOSSES)
      await service.createCustomLoss(lossFn, { inputs: inputs as Record<string, CustomLossRank> });
    const uploads = recorder.requests.filter(({ path }) => path === "/create_custom_loss");
    expect(uploads.map(({ status }) => status)).toEqual(TRACED_LOSSES.map(() => 200));
    const folder = await mkdtemp(join(tmpdir(), "tinkerts-losses-"));
    const lines = uploads.map(({ body }, index) => {
      const request = JSON.parse(Buffer.from(body).toString()) as unknown;
      const values = Object.values(TRACED_LOSSES[index]!.values).map((value) => ({
        ...value,
        data: [...value.data],
        dtype: "float64",
      }));
      return JSON.stringify({ request, values });
    });
    const file = join(folder, "losses.jsonl");
    await writeFile(file, lines.join("\n"));
    const output = await execPython("custom_losses.py", ["rebuild", file]).finally(() =>
      rm(folder, { recursive: true }),
    );
    const rebuilt = lastLine<{ loss: number; metrics: Record<string, number>; gradient: number[] }[]>(output);
    for (const [index, { name, lossFn, values }] of TRACED_LOSSES.entries()) {
      const { logprobs, ...inputs } = Object.fromEntries(
        Object.entries(values).map(([key, { data, shape }]) => [
          key,
          new Tensor(data, shape, { requiresGradient: key === "logprobs" }),
        ]),
      );
      const eager = await evaluateCustomLoss(() => lossFn(logprobs!, inputs), [], [logprobs!]);
      const { loss, metrics, gradient } = rebuilt[index]!;
      const close = (given: number, expected: number) =>
        expect(Math.abs(given - expected), name).toBeLessThan(1e-6 * Math.max(1, Math.abs(expected)));
      close(loss, eager.loss);
      for (const [at, value] of gradient.entries()) close(value, eager.gradients[0]![at]!);
      for (const [key, value] of Object.entries(metrics)) close(value, eager.metrics[key]!);
      expect(Object.keys(metrics), name).toEqual(Object.keys(eager.metrics));
    }
  });
});
