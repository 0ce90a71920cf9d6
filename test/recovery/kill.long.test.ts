import { spawn } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ServiceClient, type TrainingClient } from "../../src/index.js";
import { runFolderName } from "../../src/local/store/names.js";
import { type RunCheckpoint, type RunEvent, runWithRecovery } from "../../src/training/recovery/index.js";
import { RunLog } from "../../src/training/run-log.node.js";
import { start } from "../cli/command.js";
import { CHECKPOINT_EVERY, STEPS, trainStep } from "./training-step.js";

const model = fileURLToPath(new URL("../fixtures/engine/qwen3", import.meta.url));

/** A backend in a process of its own, that can be killed and comes back at the same place with the same data. */
class MortalBackend {
  readonly #dataDir: string;
  #server: ReturnType<typeof start> | undefined;
  baseURL = "";
  kills = 0;

  constructor(dataDir: string) {
    this.#dataDir = dataDir;
  }

  async start(): Promise<void> {
    const port = this.baseURL === "" ? "0" : new URL(this.baseURL).port;
    const server = start(
      [
        "serve",
        "--port",
        port,
        "--threads",
        "1",
        "--model",
        `test/tiny=${model}`,
        "--data-dir",
        this.#dataDir,
      ],
      { cwd: this.#dataDir },
    );
    this.#server = server;
    this.baseURL = (await server.seen(/TINKER_BASE_URL=(\S+)/))[1]!;
  }

  async kill(): Promise<void> {
    this.kills += 1;
    this.#server?.child.kill("SIGKILL");
    await this.#server?.finished;
  }

  service = () => new ServiceClient({ baseURL: this.baseURL, apiKey: "tml-local" });
}

const sourceFile = (path: string) => fileURLToPath(new URL(`../../src/${path}`, import.meta.url));

/** Runs the trainer to its end, or kills it when it has begun a step. */
function runTrainer(
  program: string,
  args: readonly string[],
  killAtStep?: number,
): Promise<"killed" | "ended"> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [program, ...args], { stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    let errors = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      output += text;
      if (output.includes(`begun ${killAtStep}\n`)) child.kill("SIGKILL");
    });
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      errors += text;
    });
    child.on("close", (code, signal) => {
      if (signal === "SIGKILL") resolve("killed");
      else if (code === 0) resolve("ended");
      else reject(new Error(`The trainer failed: ${errors}`));
    });
  });
}

/** The bytes of a checkpoint's weights and optimizer, as they are on disk. */
async function filesOf(dataDir: string, path: string): Promise<Record<string, string>> {
  const [run, kind, name] = path.slice("tinker://".length).split("/") as [string, string, string];
  const checkpoint = join(dataDir, "runs", runFolderName(run), "checkpoints", kind, name);
  const files = (await readdir(checkpoint)).filter((file) => file.endsWith(".safetensors"));
  const contents = files.map(async (file) => [
    file,
    (await readFile(join(checkpoint, file))).toString("base64"),
  ]);
  return Object.fromEntries(await Promise.all(contents)) as Record<string, string>;
}

describe("a run of 60 steps whose backend is killed", () => {
  let folder: string;
  let backend: MortalBackend;
  let expected: { checkpoint: RunCheckpoint; losses: number[] };

  const train = async ({
    onCall,
    ...options
  }: {
    log?: RunLog;
    onEvent?: (event: RunEvent) => void;
    signal?: AbortSignal;
    onCall?: (step: number) => void;
  }) =>
    runWithRecovery({
      service: backend.service,
      start: (service) => service.createLoraTrainingClient({ baseModel: "test/tiny", rank: 4, seed: 1 }),
      step: (training: TrainingClient, step) => {
        onCall?.(step);
        return { loss: trainStep(training, step) };
      },
      steps: STEPS,
      checkpointEvery: CHECKPOINT_EVERY,
      policy: { backoffMs: 100 },
      ...options,
    });

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "tinkerts-kill-"));
    backend = new MortalBackend(folder);
    await backend.start();
    const losses: number[] = [];
    const { checkpoint, restores } = await train({
      onEvent: (event) => {
        if (event.type === "step") losses.push(event.metrics["loss"] as number);
      },
    });
    expect(restores).toBe(0);
    expect(losses).toHaveLength(STEPS);
    expect(losses.at(-1)).toBeLessThan(losses[0]!);
    expected = { checkpoint, losses };
  });
  afterAll(async () => {
    await backend.kill();
    await rm(folder, { recursive: true, force: true });
  });

  it("twice, at random moments, ends with the weights of an undisturbed run, bit for bit", async () => {
    await using log = await RunLog.open(join(folder, "run"), { config: { learningRate: 1e-2 } });
    const moments = [5 + Math.floor(Math.random() * 22), 32 + Math.floor(Math.random() * 18)];
    const delaysMs = moments.map(() => Math.random() * 20);
    console.log(`killed at steps ${moments.join(", ")}, after ${delaysMs.map(Math.round).join(", ")} ms`);
    const events: RunEvent[] = [];
    const restarts: Promise<void>[] = [];
    const result = await train({
      log,
      onEvent: (event) => events.push(event),
      onCall: (step) => {
        if (step !== moments[backend.kills]) return;
        const restart = new Promise((resolve) => setTimeout(resolve, delaysMs[backend.kills]!));
        moments[backend.kills] = -1;
        restarts.push(restart.then(() => backend.kill()).then(() => backend.start()));
      },
    });
    await Promise.all(restarts);

    expect(backend.kills).toBe(2);
    expect(result.restores).toBe(2);
    const weights = await filesOf(folder, result.checkpoint.statePath);
    expect(Object.keys(weights).length).toBeGreaterThanOrEqual(2);
    expect(weights).toEqual(await filesOf(folder, expected.checkpoint.statePath));

    const seen = events.map(({ type }) => type);
    expect(seen.filter((type) => type !== "step" && type !== "checkpoint")).toEqual([
      "started",
      ...["failed", "restoring", "restored"],
      ...["failed", "restoring", "restored"],
      "finished",
    ]);
    for (const event of events) {
      if (event.type === "step") expect(event.metrics["loss"]).toBe(expected.losses[event.step]);
      if (event.type === "failed") expect(event.reason).toBe("lost");
    }
    // On disk every step stands once, in order.
    const metrics = await log.readMetrics();
    expect(metrics).toEqual(expected.losses.map((loss, step) => ({ step, loss })));
    expect(log.checkpoints.map(({ batch }) => batch)).toEqual([0, 7, 14, 21, 28, 35, 42, 49, 56, 60]);
    expect(log.lastCheckpoint).toMatchObject({ name: "final", final: true, samplerPath: expect.any(String) });
  });

  it("goes on in another process's place, too", async () => {
    const path = join(folder, "interrupted");
    const stop = new AbortController();
    {
      await using log = await RunLog.open(path);
      const stopped = train({
        log,
        signal: stop.signal,
        onCall: (step) => {
          if (step === 33) stop.abort();
        },
      });
      await expect(stopped).rejects.toThrow("The run was aborted");
    }
    await using log = await RunLog.open(path);
    expect(log.lastCheckpoint?.batch).toBe(28);
    const calls: number[] = [];
    const { checkpoint } = await train({ log, onCall: (step) => calls.push(step) });
    expect(calls[0]).toBe(28);
    expect(calls).toHaveLength(STEPS - 28);
    expect(await filesOf(folder, checkpoint.statePath)).toEqual(
      await filesOf(folder, expected.checkpoint.statePath),
    );
    expect(await log.readMetrics()).toEqual(expected.losses.map((loss, step) => ({ step, loss })));

    const again = await train({ log, onCall: () => expect.unreachable("nothing is left to train") });
    expect(again.checkpoint).toEqual(checkpoint);
  });

  it("goes on when the trainer itself is killed, three times", async () => {
    const program = join(folder, "program");
    await build({
      configFile: false,
      logLevel: "silent",
      resolve: {
        alias: {
          "#platform": sourceFile("transport/platform.node.ts"),
          "#heartbeat": sourceFile("session/heartbeat-loop.node.ts"),
        },
      },
      build: {
        ssr: fileURLToPath(new URL("./trainer.ts", import.meta.url)),
        outDir: program,
        rolldownOptions: { output: { entryFileNames: "trainer.mjs" } },
      },
    });
    await symlink(
      fileURLToPath(new URL("../../node_modules", import.meta.url)),
      join(folder, "node_modules"),
    );
    const path = join(folder, "killed");
    const moments = [3, 20, 40].map((first) => first + Math.floor(Math.random() * 12));
    console.log(`trainer killed at steps ${moments.join(", ")}`);
    for (const moment of moments) {
      expect(await runTrainer(join(program, "trainer.mjs"), [backend.baseURL, path], moment)).toBe("killed");
    }
    expect(await runTrainer(join(program, "trainer.mjs"), [backend.baseURL, path])).toBe("ended");
    await using log = await RunLog.open(path);
    expect(await filesOf(folder, log.lastCheckpoint?.statePath ?? "")).toEqual(
      await filesOf(folder, expected.checkpoint.statePath),
    );
    expect(await log.readMetrics()).toEqual(expected.losses.map((loss, step) => ({ step, loss })));
  });

  it("restores when the server has ended the session", async () => {
    const events: RunEvent[] = [];
    let isEnded = false;
    const { checkpoint, restores } = await runWithRecovery({
      service: backend.service,
      start: (service) => service.createLoraTrainingClient({ baseModel: "test/tiny", rank: 4, seed: 1 }),
      step: async (training, step) => {
        if (step === 10 && !isEnded) {
          isEnded = true;
          const [sessionId] = training.modelId.split(":");
          await fetch(`${backend.baseURL}/api/v1/sessions/${sessionId}/finish`, {
            method: "POST",
            headers: { "content-type": "application/json", "x-api-key": "tml-local" },
            body: JSON.stringify({ reason: { type: "interrupted" }, detail: null }),
          });
        }
        await trainStep(training, step);
      },
      steps: STEPS,
      policy: { backoffMs: 10 },
      onEvent: (event) => events.push(event),
    });
    expect(restores).toBe(1);
    expect(events.find(({ type }) => type === "failed")).toMatchObject({ reason: "lost" });
    expect(await filesOf(folder, checkpoint.statePath)).toEqual(
      await filesOf(folder, expected.checkpoint.statePath),
    );
  });
});
