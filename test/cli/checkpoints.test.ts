import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { Checkpoint, TrainingClient } from "../../src/index.js";
import { start } from "./command.js";
import { type CliServer, readCsv, startCliServer } from "./server.js";
import { noTerminal, openTerminal } from "./terminal.js";

let server: CliServer;
let training: TrainingClient;
let runId: string;
const path = (name: string, kind = "weights") => `tinker://${runId}/${kind}/${name}`;
const list = async () => (await server.rest.listCheckpoints(runId)).items;
const saved = async () => (await list()).map(({ checkpointId }) => checkpointId);

beforeAll(async () => {
  server = await startCliServer();
});
afterAll(() => server[Symbol.asyncDispose]());
beforeEach(async () => {
  server.intercept = () => false;
  training = await server.train();
  runId = training.modelId;
  await training.saveState("a");
});

describe("tinkerts checkpoint", () => {
  it("lists checkpoints of one run and of all, as table, JSON and CSV", async () => {
    await training.saveWeightsForSampler("b", { ttlSeconds: 86_400 * 3 });
    const command = ["checkpoint", "list", "--run-id", runId];
    const [table, json, csv, limited, later] = await Promise.all([
      server.cli(command),
      server.json<Checkpoint[]>(command),
      server.cli([...command, "--format", "csv"]),
      server.cli([...command, "--limit", "1"]),
      server.json<Checkpoint[]>(["checkpoint", "list", "--offset", "1", "--limit", "1"]),
    ]);
    const [header, ...rows] = table.stdout.trimEnd().split("\n");
    expect(header).toMatch(/^PATH +TYPE +SIZE +PUBLIC +CREATED +EXPIRES$/);
    expect(rows[0]).toMatch(/\/sampler_weights\/b +sampler +[\d.]+ k?B +no +.*(ago|now) +in 2 days$/);
    expect(rows[1]).toMatch(/\/weights\/a +training +[\d.]+ k?B +no +.*(ago|now) +never$/);
    expect(json).toMatchObject([
      { tinkerPath: path("b", "sampler_weights"), checkpointType: "sampler", sizeBytes: expect.any(Number) },
      { tinkerPath: path("a"), checkpointType: "training", public: false, expiresAt: null },
    ]);
    expect(json[0]!.expiresAt).toMatch(/^\d{4}-\d\d-\d\dT/);
    expect(readCsv(csv.stdout)).toEqual(
      json.map((checkpoint) => ({
        tinkerPath: checkpoint.tinkerPath,
        checkpointType: checkpoint.checkpointType,
        sizeBytes: String(checkpoint.sizeBytes),
        public: "false",
        time: checkpoint.time,
        expiresAt: checkpoint.expiresAt ?? "",
      })),
    );
    expect(limited.stdout).not.toContain("weights/a");
    expect(limited.stderr).toBe("1 more; --limit 0 shows all\n");
    expect(later.map(({ tinkerPath }) => tinkerPath)).toEqual([path("a")]);
  });

  it("shows one checkpoint", async () => {
    const [table, json, unknown, wrong, run] = await Promise.all([
      server.cli(["checkpoint", "info", path("a")]),
      server.json(["checkpoint", "info", path("a")]),
      server.cli(["checkpoint", "info", path("nothing")]),
      server.cli(["checkpoint", "info", "weights/a"]),
      server.cli(["checkpoint", "list", "--run-id", "nothing"]),
    ]);
    expect(table.stdout).toMatch(
      new RegExp(`^Path +${path("a")}\nType +training\nSize +[\\d.]+ k?B\nPublic +no\n`),
    );
    expect(table.stdout).toMatch(/Base model +fake\/tiny\nLoRA rank +4\nTrained parts +attention\n +MLP\n/);
    expect(json).toMatchObject({
      tinkerPath: path("a"),
      trainingRunId: runId,
      baseModel: "fake/tiny",
      loraRank: 4,
      trainMlp: true,
    });
    expect(unknown).toEqual({
      code: 1,
      stdout: "",
      stderr: `error: ${server.url} has no checkpoint ${path("nothing")}: \`tinkerts checkpoint list\` shows those it has\n`,
    });
    expect(wrong).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/path looks like tinker:\/\/<run>\/weights\/<name>/),
    });
    expect(run).toMatchObject({ code: 1, stderr: expect.stringMatching(/has no training run nothing: /) });
  });

  it("publishes, unpublishes and sets when a checkpoint expires", async () => {
    const state = async () => (await list())[0]!;
    expect(await server.cli(["checkpoint", "publish", path("a")])).toEqual({
      code: 0,
      stdout: "",
      stderr: `anyone can read ${path("a")} now\n`,
    });
    expect(await state()).toMatchObject({ public: true });
    expect(await server.json(["checkpoint", "unpublish", path("a")])).toEqual({
      tinkerPath: path("a"),
      public: false,
    });
    expect(await state()).toMatchObject({ public: false });
    const { stderr } = await server.cli(["checkpoint", "set-ttl", path("a"), "--ttl", "7d"]);
    expect(stderr).toBe(`${path("a")} expires in 7 days\n`);
    const { expiresAt } = await state();
    expect(Date.parse(expiresAt!) - Date.now()).toBeGreaterThan(6.9 * 86_400_000);
    expect((await server.cli(["checkpoint", "set-ttl", path("a"), "--remove"])).stderr).toBe(
      `${path("a")} never expires\n`,
    );
    expect(await state()).toMatchObject({ expiresAt: null });
    const events = await server.json<{ eventDetails: object }[]>(["audit"]);
    expect(events).toContainEqual(expect.objectContaining({ eventDetails: { ttlSeconds: 604_800 } }));
    const answers = await Promise.all([
      server.cli(["checkpoint", "set-ttl", path("a")]),
      server.cli(["checkpoint", "set-ttl", path("a"), "--ttl", "1h", "--remove"]),
      server.cli(["checkpoint", "set-ttl", path("a"), "--ttl", "never"]),
      server.cli(["checkpoint", "publish", path("nothing")]),
    ]);
    expect(answers.map(({ code }) => code)).toEqual([2, 2, 2, 1]);
    expect(answers[0]!.stderr).toMatch(/give either --ttl <time> .* or --remove/);
    expect(answers[3]!.stderr).toMatch(/has no checkpoint .*nothing/);
  });
});

describe("tinkerts checkpoint delete", () => {
  it("deletes what is named, reports each failure, and ends with 1 if there is one", async () => {
    await training.saveState("b");
    const { code, stdout, stderr } = await server.cli([
      "checkpoint",
      "delete",
      "-y",
      path("a"),
      path("nothing"),
      path("b"),
    ]);
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr.split("\n")).toEqual([
      `${path("nothing")} was not deleted: there is no such checkpoint`,
      "deleted 2 checkpoints",
      "error: 1 of 3 checkpoints could not be deleted",
      "",
    ]);
    expect(await saved()).toEqual([]);
  });

  it("deletes the checkpoints of a run that its options choose", async () => {
    const before = new Date().toISOString();
    await training.saveState("b");
    await training.saveWeightsForSampler("c");
    const of = ["checkpoint", "delete", "--run-id", runId, "-y"];
    expect(await server.json([...of, "--type", "sampler_weights"])).toEqual([
      { tinkerPath: path("c", "sampler_weights"), deleted: true },
    ]);
    const old = await server.cli([...of, "--before", before, "--after", "1h", "-f", "csv"]);
    expect(old.stdout).toBe(`tinkerPath,deleted,error\n${path("a")},true,\n`);
    expect(await server.cli([...of, "--before", "2020-01-31"])).toEqual({
      code: 0,
      stdout: "",
      stderr: `run ${runId} has no such checkpoints\n`,
    });
    expect(await server.json([...of, "--type", "external"])).toEqual([]);
    expect(await saved()).toEqual(["weights/b"]);
    expect((await server.cli(of)).stderr).toBe("deleted 1 checkpoint\n");
  });

  it("deletes nothing without -y if there is no terminal to ask on", async () => {
    const { code, stdout, stderr } = await server.cli(["checkpoint", "delete", path("a")]);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(/^PATH +SIZE +CREATED\n.*\/weights\/a +[\d.]+ k?B .*\nerror: .*give -y/);
    expect(await saved()).toEqual(["weights/a"]);
  });

  it.each([
    [[], /name the checkpoints to delete, or give --run-id/],
    [["tinker://r/weights/a", "--run-id", "r"], /either paths or --run-id/],
    [["tinker://r/weights/a", "--type", "weights"], /--type, --before and --after .*give --run-id/],
    [["tinker://r/weights/a", "step-1"], /'step-1' is invalid for argument 'paths'/],
    [["--run-id", "r", "--before", "yesterday"], /--before.*2026-01-31T08:00:00Z, or an age such as 7d/],
  ])("refuses %j", async (args, message) => {
    const { code, stderr } = await server.cli(["checkpoint", "delete", ...args]);
    expect(code).toBe(2);
    expect(stderr).toMatch(message);
  });

  it.skipIf(noTerminal)("asks on a terminal, and takes only a yes for one", async () => {
    await training.saveState("b");
    const ask = async (keys: string, args: readonly string[]) => {
      const terminal = openTerminal(["checkpoint", "delete", ...args], { env: server.env, columns: 120 });
      await terminal.seen(/\/weights\/a +[\d.]+ k?B/);
      await terminal.seen(/Delete \d checkpoints? \([\d.]+ k?B\) for good\? \[y\/N\] /);
      terminal.type(keys);
      return { code: await terminal.ended, text: terminal.text() };
    };
    expect(await ask("\r", [path("a")])).toMatchObject({
      code: 0,
      text: expect.stringContaining("nothing was deleted"),
    });
    expect(await ask("\x03", [path("a")])).toMatchObject({
      code: 130,
      text: expect.stringContaining("interrupted"),
    });
    expect(await saved()).toEqual(["weights/b", "weights/a"]);
    expect(await ask("yes\r", ["--run-id", runId])).toMatchObject({
      code: 0,
      text: expect.stringContaining("deleted 2 checkpoints"),
    });
    expect(await saved()).toEqual([]);
  });
});

describe("tinkerts checkpoint download", () => {
  const files = ["adapter_config.json", "adapter_model.safetensors", "optimizer.safetensors"];
  const folderOf = (name: string) => `${runId}_${name}`;

  it("makes a folder named for the checkpoint, and replaces it only with --force", async () => {
    const download = ["checkpoint", "download", path("a")];
    const first = await server.cli(download);
    const folder = join(server.folder, folderOf("weights_a"));
    expect(first).toMatchObject({ code: 0, stderr: "" });
    expect(first.stdout).toMatch(
      new RegExp(`^Folder  ${folder}\nFiles   ${files.join("\n        ")}\nSize +[\\d.]+ k?B\n$`),
    );
    expect(readdirSync(folder).sort()).toEqual(files);
    const second = await server.cli(download);
    expect(second).toEqual({
      code: 1,
      stdout: "",
      stderr: `error: ${folder} exists already: give --force to replace it, or another --output\n`,
    });
    const [forced, elsewhere, unknown] = await Promise.all([
      server.json([...download, "--force"]),
      server.json<{ folder: string }>([...download, "--output", "models/mine"]),
      server.cli(["checkpoint", "download", path("nothing")]),
    ]);
    expect(forced).toEqual({ tinkerPath: path("a"), folder, files, bytes: expect.any(Number) });
    expect(elsewhere.folder).toBe(join(server.folder, "models/mine", folderOf("weights_a")));
    expect(unknown).toMatchObject({ code: 1, stderr: expect.stringMatching(/has no checkpoint .*nothing/) });
  });

  it("goes on where it was interrupted", async () => {
    const args = ["checkpoint", "download", path("a"), "-o", "resumed"];
    const output = join(server.folder, "resumed");
    const half = new Promise<number>((resolve) => {
      server.intercept = async (request, response) => {
        if (!request.url!.includes("/downloads/")) return false;
        const answer = await server.answer(request);
        const bytes = Buffer.from(await answer.arrayBuffer());
        const length = Math.floor(bytes.length / 2);
        response.writeHead(answer.status, Object.fromEntries(answer.headers));
        response.write(bytes.subarray(0, length), () => resolve(length));
        return true;
      };
    });
    const { child, finished } = start(args, { cwd: server.folder, env: server.env });
    const length = await half;
    const partial = join(output, `.${folderOf("weights_a")}.download`, "files", "archive.tar.gz");
    while (!existsSync(partial) || readFileSync(partial).length < length) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    child.kill("SIGINT");
    expect(await finished).toEqual({
      code: 130,
      stdout: "",
      stderr: "What was downloaded is kept: run the same command to continue.\ninterrupted\n",
    });
    expect(existsSync(join(output, folderOf("weights_a")))).toBe(false);

    server.intercept = () => false;
    server.requests.length = 0;
    expect(await server.cli(args)).toMatchObject({ code: 0 });
    expect(server.requests.at(-1)).toMatch(new RegExp(` bytes=${length}-$`));
    expect(readdirSync(output)).toEqual([folderOf("weights_a")]);
  });

  it("goes through an export where the server makes no archives, and leaves none behind", async () => {
    await training.saveWeightsForSampler("b");
    server.intercept = (request, response) => {
      if (!request.url!.endsWith("/archive")) return false;
      response.writeHead(404, { "content-type": "application/json" }).end('{"detail":"Not Found"}');
      return true;
    };
    const { code, stdout, stderr } = await server.cli([
      "checkpoint",
      "download",
      path("a"),
      "-o",
      "exported",
      "--json",
    ]);
    expect({ code, stderr }).toEqual({
      code: 0,
      stderr:
        "The server makes no archives: the checkpoint is loaded into a new training run and exported.\n",
    });
    expect(JSON.parse(stdout)).toMatchObject({
      folder: join(server.folder, "exported", folderOf("weights_a")),
      files: files.slice(0, 2),
    });
    const everything = (await server.rest.listUserCheckpoints({ limit: 1000 })).items;
    expect(everything.filter(({ checkpointType }) => checkpointType === "external")).toEqual([]);
    expect(await server.cli(["checkpoint", "download", path("b", "sampler_weights")])).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/does not give sampler checkpoints away: save a training checkpoint/),
    });
  });

  it.skipIf(noTerminal)("shows how far it is on a terminal", async () => {
    server.intercept = async (request, response) => {
      if (!request.url!.includes("/downloads/")) return false;
      const bytes = Buffer.from(await (await server.answer(request)).arrayBuffer());
      response.writeHead(200, { "content-length": bytes.length }).end(bytes);
      return true;
    };
    const terminal = openTerminal(["checkpoint", "download", path("a"), "-o", "shown"], {
      cwd: server.folder,
      env: server.env,
    });
    await terminal.seen(/downloading {2}━+ {2}100% {2}([\d.]+ k?B) of \1/);
    await terminal.seen(/Folder/);
    expect(await terminal.ended).toBe(0);
  });
  if (noTerminal) console.warn(noTerminal);
});
