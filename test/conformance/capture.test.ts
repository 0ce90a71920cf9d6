/** Captured samples, read into rows by the Python cookbook's own store. */
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { capture, startCapture, startGateway } from "../../src/gateway/index.js";
import { ModelInput } from "../../src/index.js";
import { nano, ScriptedSampler } from "../gateway/scripted-sampler.js";
import { silent } from "../local/raw-client.js";
import { folderForTests } from "../support/folder-for-tests.js";
import { explainSkip, hasPythonModule, lastLine, runPython } from "./judge.js";

explainSkip("capture.test.ts");
const home = folderForTests("conformance-capture");
const encoded = (text: string) => nano.encode(text, { addSpecialTokens: false });

interface Stored {
  readonly kinds: readonly string[];
  readonly inserted: number;
  readonly deduped: number;
  readonly rows: readonly Readonly<Record<string, unknown>>[];
}

async function stored(folder: string): Promise<Stored> {
  const file = join(folder, "capture", "sample.jsonl");
  const unused = { baseURL: "http://127.0.0.1:1", apiKey: "tml-none", model: "none" };
  return lastLine(await runPython("capture.py", { ...unused, env: { CAPTURED: file } }));
}

describe.skipIf(!hasPythonModule("tinker_cookbook", "capture.test.ts"))("rows of the Python cookbook", () => {
  it("are made of samples of one's own code, with all of their scope", async () => {
    const folder = join(home, "own");
    const captured = await startCapture({ folder, logger: silent });
    const sampler = captured.sampler(new ScriptedSampler("a", "b", new Error("no server")).sampler, "step-3");
    const scope = { run_id: "mine", run_attempt: 2, split: "train", iteration: 7, phase: "warm" };
    await capture(scope, async () => {
      for (const traj of [0, 1])
        await capture({ group_idx: 4, traj_idx: traj, purpose: "policy" }, () =>
          sampler.sample({ prompt: ModelInput.fromInts(encoded("Hi")), samplingParams: { maxTokens: 8 } }),
        );
      await sampler.sample({ prompt: ModelInput.fromInts([1]) }).catch(() => {});
    });
    await captured.close();
    const { rows, ...counts } = await stored(folder);
    expect(counts).toEqual({ kinds: ["sample"], inserted: 2, deduped: 2 });
    for (const [traj, row] of rows.entries()) {
      const { phase, ...columns } = { ...scope, group_idx: 4, traj_idx: traj, purpose: "policy" };
      expect(row).toMatchObject({
        ...{ ...columns, policy_version: "step-3", prompt_tokens: encoded("Hi"), sample_idx: 0 },
        sampled_tokens: encoded(`${"ab"[traj]!}<|im_end|>`),
        metadata: { status: "ok", stop_reason: "stop", scope: { phase } },
      });
      expect((row["logprobs"] as number[]).length).toBe((row["sampled_tokens"] as number[]).length);
    }
  });

  it("are made of an agent's session, whose address says its scope", async () => {
    const folder = join(home, "agent");
    const gateway = await startGateway({
      ...{ models: { nano: new ScriptedSampler("one", "two").sampler }, maxContextLength: 8192 },
      ...{ logger: silent, record: folder, listen: false },
    });
    const messages: object[] = [{ role: "user", content: "Count." }];
    for (const next of ["On.", "Stop."]) {
      const answer = await gateway.fetch(
        `${gateway.url}/r/run/mine/iter/3/group/1/traj/5/v1/chat/completions`,
        {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({ model: "any", messages }),
        },
      );
      const { choices } = (await answer.json()) as { choices: { message: object }[] };
      messages.push(choices[0]!.message, { role: "user", content: next });
    }
    await gateway.close();
    const { rows, ...counts } = await stored(folder);
    expect(counts).toEqual({ kinds: ["sample"], inserted: 2, deduped: 2 });
    const scope = { run_id: "mine", iteration: 3, group_idx: 1, traj_idx: 5 };
    expect(rows).toMatchObject([
      { ...scope, sampled_tokens: encoded("one<|im_end|>") },
      { ...scope, sampled_tokens: encoded("two<|im_end|>") },
    ]);
    const [first, second] = rows.map((row) => row as Record<string, number[]>);
    const known = [...first!["prompt_tokens"]!, ...first!["sampled_tokens"]!];
    expect(second!["prompt_tokens"]!.slice(0, known.length)).toEqual(known);
  });
});
