import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { conversations, trainSupervised } from "../../src/cookbook/index.js";
import { ServiceClient } from "../../src/index.js";
import { startLocalBackend } from "../../src/local/index.js";
import { silent } from "../local/raw-client.js";
import { start } from "./command.js";
import { cleanEnv } from "./server.js";
import { runWarm as run } from "./warm-command.js";

const ROW = '{"messages":[{"role":"user","content":"1+1="},{"role":"assistant","content":"2"}]}\n';
const NOTICE =
  "No server and no API key are set: the built-in backend does the work and keeps its data in .tinkerts.\n";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "tinkerts-built-in-"));
  writeFileSync(join(folder, "rows.jsonl"), ROW.repeat(16));
});
afterAll(() => rmSync(folder, { recursive: true }));

const runIn = (cwd: string, args: readonly string[], input: string) =>
  run(args, { cwd, env: { ...cleanEnv(folder), HF_ENDPOINT: "http://127.0.0.1:9" }, input });
const cli = (args: readonly string[], input?: string) => runIn(folder, args, input ?? "");
const ask = ["--prompt", "20+31=", "--temperature", "0", "--stop", "\\n"];

describe("without a key and without a server", () => {
  it("the built-in backend answers, refuses under its own name, and trains what later commands use", async () => {
    expect(await cli(["sample", "--model", "tinkerts/nano", ...ask])).toEqual({
      code: 0,
      stdout: "51\n",
      stderr: NOTICE,
    });
    const trained = await cli(["train", "sft", "rows.jsonl", "--no-dashboard", "--max-steps", "1"]);
    expect(trained.stderr).toContain("\n  npx tinkerts chat --model runs/rows-nano\n");
    const chat = ["chat", "--max-tokens", "4", "--temperature", "0", "--model"];
    const [byFolder, byPath] = [
      await cli([...chat, "runs/rows-nano"], "1+1=\n"),
      await cli([...chat, trained.stdout.trim()], "1+1=\n"),
    ];
    expect(byFolder).toMatchObject({ code: 0, stdout: expect.stringMatching(/\S/) });
    expect(byPath.stdout).toBe(byFolder.stdout);
    expect((await cli(["sample", "--model", "tinker://no/sampler_weights/x", ...ask])).stderr).toMatch(
      /error: the built-in backend has no such thing: .*tinker:\/\/no/,
    );
  });

  it("the run folder of a program is a model, from any folder, and its run goes on; one without weights says so", async () => {
    const [run, elsewhere] = ["program-run", "elsewhere"].map((name) => join(folder, name)) as [
      string,
      string,
    ];
    mkdirSync(elsewhere);
    const service = new ServiceClient(await startLocalBackend({ threads: 1, listen: false, logger: silent }));
    await trainSupervised({
      service,
      model: "tinkerts/nano",
      data: conversations(join(folder, "rows.jsonl")),
      maxSteps: 1,
      folder: run,
      loggers: [],
    });
    await service.close();
    const inFolder = (cwd: string, args: readonly string[]) => runIn(cwd, args, "");
    const answer = await inFolder(elsewhere, ["sample", "--model", "../program-run", ...ask]);
    expect(answer).toMatchObject({ code: 0, stdout: expect.stringMatching(/\S/) });
    expect(existsSync(join(elsewhere, ".tinkerts"))).toBe(false);
    const onward = [
      "train",
      "sft",
      "rows.jsonl",
      "--no-dashboard",
      "--max-steps",
      "2",
      "--folder",
      "program-run",
    ];
    expect((await cli(onward)).stderr).toContain("Going on after 1 step,");
    const trained = ["sample", "--model", "../runs/rows-nano", ...ask];
    expect((await inFolder(elsewhere, trained)).stderr).toContain(
      "error: the weights of the run in ../runs/rows-nano are neither in ../runs/rows-nano/weights nor in .tinkerts: use the folder or the server that it was trained in",
    );
  });

  it("a misspelt model name gets a suggestion, and a missing key is reported before a download", async () => {
    for (const name of ["nano", "tinkert/nano"]) {
      expect(await cli(["chat", "--model", name])).toEqual({
        code: 2,
        stdout: "",
        stderr: `error: there is no model ${name}: did you mean tinkerts/nano?\n`,
      });
    }
    expect(await cli(["chat", "--model", "runs/rows-nanno"])).toMatchObject({
      code: 2,
      stderr: "error: there is no run in runs/rows-nanno: did you mean runs/rows-nano?\n",
    });
    const { code, stderr } = await cli(["sample", "--model", "Qwen/Qwen3-8B", "--prompt", "x"]);
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /^No API key and no server are set: .*tinkerts auth login.*\nerror: Model Qwen\/Qwen3-8B could not be downloaded/,
    );
  });

  it("a dry run finds what the backend would refuse, even if the data is in use; other commands use a server that runs here", async () => {
    const server = start(["serve", "--port", "0"], { cwd: folder, env: cleanEnv(folder) });
    await server.seen(/TINKER_API_KEY/);
    const served = await cli(["sample", "--model", "tinkerts/nano", ...ask]);
    expect(served).toMatchObject({ code: 0, stdout: "51\n" });
    expect(served.stderr).toMatch(/^`tinkerts serve` runs in this folder: it does the work, at http:\S+\n$/);
    server.child.kill("SIGINT");
    await server.finished;
    const dry = (args: readonly string[]) => cli(["train", ...args, "--dry-run"]);
    const [fits, rank, teacher, startFrom, folderOfRun, nothing] = await Promise.all([
      dry(["sft", "rows.jsonl"]),
      dry(["sft", "rows.jsonl", "--rank", "4096"]),
      dry(["distill", "rows.jsonl", "--model", "tinkerts/nano", "--teacher", "no/such", "--max-tokens", "4"]),
      dry(["sft", "rows.jsonl", "--start-from", "tinker://x/weights/y"]),
      dry(["sft", "rows.jsonl", "--start-from", "runs/other"]),
      dry(["sft", "rows.jsonl", "--no-train-attn", "--no-train-mlp", "--no-train-unembed"]),
    ]);
    expect(nothing).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("trainAttn, trainMlp and trainUnembed are all off"),
    });
    expect(fits.code).toBe(0);
    expect(rank.stderr).toContain(
      "error: the built-in backend refuses this: rank must be at most 256, got 4096",
    );
    expect(teacher.stderr).toMatch(
      /error: the built-in backend refuses this: --teacher must be a model .*no\/such/,
    );
    expect(folderOfRun).toMatchObject({
      code: 2,
      stderr: `error: --start-from must be saved weights, tinker://RUN/weights/NAME, or the folder of a PEFT adapter, got "runs/other"; the folder of a run is given as --model\n`,
    });
    expect(startFrom.stderr).toMatch(
      /error: the built-in backend has no such thing: .*tinker:\/\/x\/weights\/y/,
    );
  });
});
