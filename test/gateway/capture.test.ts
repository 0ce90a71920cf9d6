import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, it } from "vitest";
import { type CaptureOptions, capture, startCapture } from "../../src/gateway/index.js";
import { ModelInput } from "../../src/index.js";
import { silent } from "../local/raw-client.js";
import { folderForTests } from "../support/folder-for-tests.js";
import { nano, ScriptedSampler } from "./scripted-sampler.js";

const home = folderForTests("capture");
const tokens = nano.encode("Once upon", { addSpecialTokens: false }) as number[];
const prompt = ModelInput.fromInts(tokens);

async function rows(folder: string): Promise<Record<string, unknown>[]> {
  const text = await readFile(join(folder, "capture", "sample.jsonl"), "utf8");
  return text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}

it("stamps samples of your own code with the scope of their call, however they overlap", async () => {
  const folder = join(home, "scopes");
  await using captured = await startCapture({ folder, logger: silent });
  const script = new ScriptedSampler("a", "b", "c", new Error("no server"));
  script.before = () => nextTurn();
  const sampler = captured.sampler(script.sampler, "step-3");
  const episode = async (traj: number) =>
    capture({ traj_idx: traj }, async () => {
      await nextTurn();
      return sampler.sample({ prompt, samplingParams: { maxTokens: 8 } });
    });
  await capture({ run_id: "mine", group_idx: 4 }, () => Promise.all([episode(0), episode(1)]));
  await sampler.sample({ prompt, numSamples: 1 });
  await expect(sampler.sample({ prompt })).rejects.toThrow("no server");
  expect(await sampler.getBaseModel()).toBe("tinkerts/nano");
  await captured.close();
  expect(captured.counts).toEqual({ captured: 4, lost: 0 });
  const found = (await rows(folder)).toSorted(
    (one, other) => Number(one["seq_id"]) - Number(other["seq_id"]),
  );
  expect(found.map(({ scope }) => scope)).toEqual([
    { run_id: "mine", group_idx: 4, traj_idx: 0 },
    { run_id: "mine", group_idx: 4, traj_idx: 1 },
    { run_id: "scopes" },
    { run_id: "scopes" },
  ]);
  expect(found[0]).toMatchObject({
    ...{ kind: "sample", status: "ok", policy_version: "step-3", prompt_tokens: tokens, num_samples: 1 },
    samples: [{ tokens: nano.encode("a<|im_end|>", { addSpecialTokens: false }), stop_reason: "stop" }],
  });
  expect(found[3]).toMatchObject({ status: "error", error: "no server", samples: [] });
});

it("stays within its bytes and says once what is lost; two do not write into one file", async () => {
  const folder = join(home, "full");
  const warnings: string[] = [];
  const logger = { ...silent, warn: (text: string) => void warnings.push(text) };
  const captured = await startCapture({ folder, maxBytes: 600, logger });
  await expect(startCapture({ folder })).rejects.toThrow("is in use by this process");
  const sampler = captured.sampler(new ScriptedSampler().sampler);
  for (let count = 0; count < 4; count += 1) await sampler.sample({ prompt });
  await captured.close();
  expect(captured.counts.captured + captured.counts.lost).toBe(4);
  expect(captured.counts.lost).toBeGreaterThan(0);
  expect(warnings).toEqual([expect.stringContaining("the file has reached its limit")]);
  expect(await rows(folder)).toHaveLength(captured.counts.captured);
  await expect(startCapture({} as CaptureOptions)).rejects.toThrow("folder must be a non-empty string");
  expect(() => capture({ group: {} } as never, () => 1)).toThrow("scope must be an object of texts");
});
