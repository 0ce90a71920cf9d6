import { spawn } from "node:child_process";
import { mkdtemp, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openStore } from "../../src/local/store/index.js";

const ROUNDS = 6;

describe("kill -9 while checkpoints are being written", () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "tinkerts-crash-"));
    await build({
      configFile: false,
      logLevel: "silent",
      build: {
        ssr: fileURLToPath(new URL("./crash-writer.ts", import.meta.url)),
        outDir: join(folder, "program"),
        rolldownOptions: { output: { entryFileNames: "crash-writer.mjs" } },
      },
    });
    await symlink(
      fileURLToPath(new URL("../../node_modules", import.meta.url)),
      join(folder, "node_modules"),
    );
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  it("loses none that was acknowledged, lists none that is not whole", async () => {
    const dataDir = join(folder, "data");
    const acknowledged = new Map<string, number>();
    for (let round = 0; round < ROUNDS; round += 1) {
      const lines = await runAndKill(join(folder, "program", "crash-writer.mjs"), dataDir, round * 37);
      for (const line of lines) {
        const [word, name, number, path] = line.split(" ");
        const run = path?.split("/")[2];
        if (word === "saved") acknowledged.set(`${run}/${name}`, Number(number));
      }
    }
    expect(acknowledged.size).toBeGreaterThan(ROUNDS);
    const store = await openStore(dataDir, { wallNow: () => Date.now() });
    for (const [key, round] of acknowledged) {
      const [runId, name] = key.split("/") as [string, string];
      const record = store.checkpoints.get(runId, "weights", name);
      const savedRound = Number(record?.userMetadata?.["round"]);
      // Of "latest" a newer one may have become whole just before its answer was cut off.
      if (name === "latest") expect(savedRound).toBeGreaterThanOrEqual(round);
      else expect([key, savedRound]).toEqual([key, round]);
    }
    for (const record of store.checkpoints.list()) {
      const state = await store.checkpoints.readState(record, store.runs.get(record.runId)!.lora);
      expect(state.optimizer?.step).toBe(Number(record.userMetadata?.["round"]) + 1);
      const [, tensor] = Object.entries(state.tensors).find(([name]) => name.includes("lora_B"))!;
      expect(tensor?.data[0]).toBe(weightAfter(Number(record.userMetadata?.["round"])));
    }
    expect(store.runs.list()).toHaveLength(ROUNDS);
    await store.close();
  });
});

/** What the fake engine's one weight is after the steps of all rounds up to this one. */
function weightAfter(lastRound: number): number {
  const weight = Float32Array.of(5);
  const first = new Float32Array(1);
  for (let round = 0; round <= lastRound; round += 1) {
    first[0] = 0.9 * first[0]! + (1 - 0.9) * round;
    weight[0]! += first[0]!;
  }
  return weight[0]!;
}

function runAndKill(program: string, dataDir: string, afterMs: number): Promise<string[]> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [program, dataDir], { stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    let errors = "";
    let timer: NodeJS.Timeout | undefined;
    child.stdout.on("data", (chunk: Buffer) => {
      output += chunk.toString();
      if (output.split("\nsaved ").length > 2) timer ??= setTimeout(() => child.kill("SIGKILL"), afterMs);
    });
    child.stderr.on("data", (chunk: Buffer) => {
      errors += chunk.toString();
    });
    child.on("close", (_, signal) => {
      clearTimeout(timer);
      if (signal === "SIGKILL") resolve(output.split("\n").slice(0, -1));
      else reject(new Error(`The writer ended by itself: ${errors}`));
    });
  });
}
