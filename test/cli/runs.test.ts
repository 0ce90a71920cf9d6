import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { AuditLogEntry, BillingUsage, SessionSummary, TrainingRun } from "../../src/index.js";
import { type CliServer, readCsv, startCliServer } from "./server.js";
import { noTerminal, openTerminal } from "./terminal.js";

const day = (offset: number) => new Date(Date.now() + offset * 86_400_000).toISOString().slice(0, 10);
const datum = { modelInput: [1, 2], lossFnInputs: { targetTokens: [2, 3], weights: [1, 1] } };

/** All names of fields in JSON but the users' own. */
function keysOf(value: unknown): string[] {
  if (Array.isArray(value)) return value.flatMap(keysOf);
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, child]) => [
    ...(/^[0-9a-f]{8}-/.test(key) ? [] : [key]),
    ...(key === "userMetadata" ? [] : keysOf(child)),
  ]);
}

describe("runs, sessions, usage", () => {
  let server: CliServer;
  let empty: CliServer;
  let runIds: string[];
  let sessionId: string;
  beforeAll(async () => {
    [server, empty] = await Promise.all([startCliServer(), startCliServer()]);
    const first = await server.train({
      displayName: 'a "quoted", name',
      projectId: "project-1",
      metadata: { note: 'one, "two"' },
    });
    await first.forwardBackward([datum], "cross_entropy");
    await first.optimStep({ learningRate: 1e-3 });
    await first.saveState("step-1");
    await first.saveWeightsForSampler("step-1");
    const second = await server.train();
    runIds = [second.modelId, first.modelId];
    sessionId = first.modelId.split(":")[0]!;
  });
  afterAll(async () => {
    await server[Symbol.asyncDispose]();
    await empty[Symbol.asyncDispose]();
  });

  it("lists models, and those with a part of a name", async () => {
    const [table, none] = await Promise.all([
      server.cli(["models", "TINY"]),
      server.json(["models", "large"]),
    ]);
    expect(table).toEqual({
      code: 0,
      stdout: "MODEL      CONTEXT  TRAINABLE  SAMPLEABLE\nfake/tiny       64  yes        yes\n",
      stderr: "",
    });
    expect(none).toEqual([]);
  });

  it("shows who a token belongs to, and that a key has no name", async () => {
    const claims = { sub: "tml:user:1", org_id: "2", email: "me@example.com", exp: 4_000_000_000 };
    const token = `eyJhbGciOiJub25lIn0.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.x`;
    const [table, key] = await Promise.all([
      server.cli(["whoami"], { TINKER_API_KEY: token }),
      server.cli(["whoami", "--api-key", "tml-key"]),
    ]);
    expect(table.stdout).toBe(
      "Email         me@example.com\nUser          tml:user:1\nOrganization  tml:organization:2\n",
    );
    expect(key).toMatchObject({ code: 1, stdout: "", stderr: expect.stringMatching(/plain API keys/) });
  });

  it("lists runs as table, JSON and CSV", async () => {
    const [table, json, csv] = await Promise.all([
      server.cli(["run", "list"]),
      server.json<TrainingRun[]>(["run", "list"]),
      server.cli(["run", "list", "--format", "csv"]),
    ]);
    expect(table).toMatchObject({ code: 0, stderr: "" });
    const [header, ...rows] = table.stdout.trimEnd().split("\n");
    expect(header).toMatch(/^RUN +NAME +BASE MODEL +LORA +LAST REQUEST +STATUS$/);
    expect(rows.map((row) => row.split(/ {2,}/)[0])).toEqual(runIds);
    expect(rows[0]).toMatch(/ {2}- +fake\/tiny +rank 4 +(just now|\d+ seconds? ago) +ok$/);
    expect(rows[1]).toMatch(/ {2}a "quoted", name +fake\/tiny +rank 4 /);
    expect(json.map(({ trainingRunId }) => trainingRunId)).toEqual(runIds);
    expect(json[1]).toMatchObject({
      baseModel: "fake/tiny",
      loraRank: 4,
      lastRequestTime: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/),
      lastCheckpoint: { tinkerPath: `tinker://${runIds[1]}/weights/step-1`, sizeBytes: expect.any(Number) },
      userMetadata: { note: 'one, "two"' },
      name: 'a "quoted", name',
    });
    expect(readCsv(csv.stdout)).toEqual(
      json.map(({ trainingRunId, lastRequestTime }, index) => ({
        trainingRunId,
        name: index === 1 ? 'a "quoted", name' : "",
        baseModel: "fake/tiny",
        lora: "rank 4",
        lastRequestTime,
        status: "ok",
      })),
    );
  });

  it("lists as many runs as asked for, and says how many more there are", async () => {
    const columns = ["--columns", "id"];
    const [first, second] = await Promise.all([
      server.cli(["run", "list", "--limit", "1", ...columns]),
      server.cli(["run", "list", "--limit", "0", "--offset", "1", ...columns]),
    ]);
    expect(first).toEqual({
      code: 0,
      stdout: `RUN\n${runIds[0]}\n`,
      stderr: "1 more; --limit 0 shows all\n",
    });
    expect(second).toEqual({ code: 0, stdout: `RUN\n${runIds[1]}\n`, stderr: "" });
  });

  it("lists the columns, the scope and the project that are asked for", async () => {
    const [csv, ofProject, wrong] = await Promise.all([
      server.cli(["run", "list", "-f", "csv", "-c", "owner, checkpoint,checkpoint-time", "--limit", "1"]),
      server.json<TrainingRun[]>(["run", "list", "--project", "project-1", "--access-scope", "accessible"]),
      server.cli(["run", "list", "--columns", "id,colour"]),
    ]);
    expect(csv.stdout).toBe("modelOwner,lastCheckpoint,lastCheckpointTime\nlocal,,\n");
    expect(ofProject.map(({ trainingRunId }) => trainingRunId)).toEqual([runIds[1]]);
    expect(wrong).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/There is no column colour; there are id, name, model, /),
    });
  });

  it("shows one run", async () => {
    const [table, csv] = await Promise.all([
      server.cli(["run", "info", runIds[1]!]),
      server.cli(["run", "info", runIds[1]!, "-f", "csv"]),
    ]);
    expect(table.stdout).toContain('Name               a "quoted", name\n');
    expect(table.stdout).toContain(`Last checkpoint    tinker://${runIds[1]}/weights/step-1\n`);
    expect(table.stdout).toContain(`Last for sampling  tinker://${runIds[1]}/sampler_weights/step-1\n`);
    expect(table.stdout).toContain('Metadata           note=one, "two"\n');
    expect(readCsv(csv.stdout)[0]).toMatchObject({
      trainingRunId: runIds[1],
      userMetadata: 'note=one, "two"',
    });
  });

  it("names a run by its own metadata, before that of its session", async () => {
    await using other = await startCliServer();
    await other.train({ displayName: "of the session", metadata: { name: "of the run" } });
    const [named] = await other.json<{ name: string }[]>(["run", "list"]);
    expect(named!.name).toBe("of the run");
    other.intercept = (request, response) => {
      if (!request.url!.endsWith("/sessions/search")) return false;
      response.writeHead(404).end();
      return true;
    };
    await other.train({ displayName: "of the session" });
    const listed = await other.json<{ name: string | null }[]>(["run", "list"]);
    expect(listed.map(({ name }) => name)).toEqual([null, "of the run"]);
  });

  it("lists sessions without those that single commands opened, unless all are asked for", async () => {
    await using other = await startCliServer();
    const { modelId } = await other.train({ displayName: "an experiment" });
    await other.cli(["doctor"]);
    await other.cli(["doctor"]);
    const [table, json, all, named, full] = await Promise.all([
      other.cli(["session", "list"]),
      other.json<SessionSummary[]>(["session", "list"]),
      other.json<SessionSummary[]>(["session", "list", "--all"]),
      other.json<SessionSummary[]>(["session", "list", "--name", "doctor"]),
      other.cli(["session", "list", "--limit", "1", "-f", "csv"]),
    ]);
    const sessionId = modelId.split(":")[0];
    expect(table.stdout.split("\n")).toHaveLength(3);
    expect(table.stderr).toBe("2 sessions of single commands are not shown; --all shows all\n");
    expect(json.map((session) => session.sessionId)).toEqual([sessionId]);
    expect(all.map(({ displayName }) => displayName)).toEqual([
      "tinkerts doctor",
      "tinkerts doctor",
      "an experiment",
    ]);
    expect(all.slice(0, 2).map(({ status }) => status)).toEqual([
      expect.objectContaining({ type: "client_finished" }),
      expect.objectContaining({ type: "client_finished" }),
    ]);
    expect(named).toHaveLength(2);
    expect(full.stdout).toContain("an experiment");
  });

  it("sets the price list beside the service's costs, and shows what the session of a run cost", async () => {
    const prices = join(server.folder, "prices.json");
    const price = { prefill: 1, cachedPrefill: 1, sample: 1, train: 1_000_000 };
    writeFileSync(prices, JSON.stringify({ models: { "fake/tiny": price } }));
    const trained = datum.modelInput.length;
    const [table, plain, runs] = await Promise.all([
      server.cli(["billing", "usage", day(0), day(1), "--prices", prices]),
      server.cli(["billing", "usage", day(0), day(1)]),
      server.json<{ trainingRunId: string; costUsd: number | null }[]>([
        ...["run", "list", "--columns", "id,cost", "--prices", prices],
      ]),
    ]);
    expect(table.stdout).toMatch(/BY PRICE LIST/);
    expect(table.stderr).toContain(`In all $0.00 by the service, $${trained}.00 by the price list.`);
    expect(plain.stdout).not.toContain("BY PRICE LIST");
    expect(runs.find((run) => run.trainingRunId === runIds[1])!.costUsd).toBe(trained);
    expect(runs.find((run) => run.trainingRunId === runIds[0])!.costUsd).toBeNull();
  });

  it("speaks camelCase in the JSON of every command", async () => {
    const path = `tinker://${runIds[1]}/weights/step-1`;
    const commands = [
      ["models"],
      ["run", "list"],
      ["run", "info", runIds[1]!],
      ["checkpoint", "list"],
      ["checkpoint", "info", path],
      ["session", "list", "--all"],
      ["session", "info", sessionId],
      ["audit"],
      ["billing", "usage", day(0), day(1)],
      ["billing", "checkpoint-storage"],
      ["auth", "status"],
      ["doctor"],
      ["version"],
    ];
    const answers = await Promise.all(commands.map((args) => server.json<unknown>(args)));
    const names = answers.flatMap(keysOf);
    expect(names.length).toBeGreaterThan(100);
    expect(names.filter((name) => !/^[a-z][A-Za-z0-9]*$/.test(name))).toEqual([]);
  });

  it("lists sessions and shows one", async () => {
    const [table, json, named, info, infoJson, unknown] = await Promise.all([
      server.cli(["session", "list"]),
      server.json<SessionSummary[]>(["session", "list", "--access-scope", "accessible"]),
      server.cli(["session", "list", "--name", "QUOTED", "-f", "csv"]),
      server.cli(["session", "info", sessionId]),
      server.json(["session", "info", sessionId]),
      server.cli(["session", "info", "nothing"]),
    ]);
    expect(table.stdout).toMatch(/^SESSION +NAME +CREATED +STATUS +CHECKPOINTS +STORED +PROJECT +OWNER\n/);
    expect(json.find((session) => session.sessionId === sessionId)).toMatchObject({
      displayName: 'a "quoted", name',
      projectId: "project-1",
      checkpointsCount: 2,
      status: { type: "active" },
    });
    expect(readCsv(named.stdout)).toMatchObject([
      { sessionId, displayName: 'a "quoted", name', status: "active", checkpointsCount: "2" },
    ]);
    expect(info.stdout).toBe(
      `Session   ${sessionId}\nName      a "quoted", name\nRuns      ${runIds[1]}\nSamplers  none\nMetadata  -\n`,
    );
    expect(infoJson).toMatchObject({ sessionId, trainingRunIds: [runIds[1]], samplerIds: [] });
    expect(unknown).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/has no session nothing: `tinkerts session list` shows/),
    });
  });

  it("lists ids alone where a server knows no search of sessions", async () => {
    await using other = await startCliServer();
    const { modelId } = await other.train();
    other.intercept = (request, response) => {
      if (!request.url!.endsWith("/sessions/search")) return false;
      response.writeHead(404, { "content-type": "application/json" }).end('{"detail":"Not Found"}');
      return true;
    };
    const id = modelId.split(":")[0];
    expect(await other.cli(["session", "list"])).toEqual({ code: 0, stdout: `SESSION\n${id}\n`, stderr: "" });
  });

  it("prints no control character and no bidirectional mark of the server, in no format and in no error", async () => {
    await using other = await startCliServer();
    const evil = "run\u001b]0;title\u0007 \u009b2J \u202edlrow \u2066x";
    await other.train({ metadata: { name: evil } });
    other.intercept = (request, response) => {
      if (!request.url!.includes("/training_runs/x")) return false;
      const headers = { "content-type": "application/json" };
      response.writeHead(400, headers).end(JSON.stringify({ detail: `no such thing: ${evil}` }));
      return true;
    };
    const [table, csv, json, refused] = await Promise.all([
      other.cli(["run", "list"]),
      other.cli(["run", "list", "--format", "csv"]),
      other.cli(["run", "list", "--json"]),
      other.cli(["run", "info", "x", "--verbose"]),
    ]);
    for (const { stdout, stderr } of [table, csv, json, refused]) {
      expect((stdout + stderr).replaceAll("\n", "")).not.toMatch(/[\p{Cc}\p{Bidi_Control}]/u);
    }
    expect(table.stdout + csv.stdout).toMatch(/dlrow.*dlrow/s);
    expect(JSON.stringify(JSON.parse(json.stdout))).toContain(JSON.stringify(evil));
    expect(refused).toMatchObject({ code: 1, stderr: expect.stringMatching(/no such thing: run/) });
  });

  it("downloads the trace of a session, or names its URL", async () => {
    const [file, byDefault, url, unknown] = await Promise.all([
      server.json<{ file: string; bytes: number }>([
        "session",
        "export-trace",
        sessionId,
        "-o",
        "a/t.pftrace",
      ]),
      server.cli(["session", "export-trace", sessionId]),
      server.cli(["session", "export-trace", sessionId, "--url-only"]),
      server.cli(["session", "export-trace", "nothing"]),
    ]);
    expect(file.file).toBe(join(server.folder, "a", "t.pftrace"));
    const trace = readFileSync(file.file);
    expect(trace).toHaveLength(file.bytes);
    expect(file.bytes).toBeGreaterThan(100);
    expect(byDefault).toMatchObject({ code: 0, stdout: "" });
    expect(byDefault.stderr).toMatch(/\.pftrace holds the trace \(.*kB\).*ui\.perfetto\.dev/);
    expect(url.stdout).toMatch(new RegExp(`^${server.url}/\\S+\n$`));
    expect((await fetch(url.stdout.trim())).status).toBe(200);
    expect(unknown).toMatchObject({ code: 1, stderr: expect.stringMatching(/has no session nothing/) });
  });

  it("shows the audit log of a day and a type", async () => {
    const [table, json, csv, before, wrong] = await Promise.all([
      server.cli(["audit"]),
      server.json<AuditLogEntry[]>(["audit", "--day", day(0), "--type", "checkpoints"]),
      server.cli(["audit", "-f", "csv"]),
      server.cli(["audit", "--day", "2020-02-29"]),
      server.cli(["audit", "--day", "2020-02-30"]),
    ]);
    const path = `tinker://${runIds[1]}/weights/step-1`;
    expect(table.stdout).toMatch(
      new RegExp(`ago  checkpoints.created  ${path}\\n|just now +checkpoints.created`),
    );
    expect(json[0]).toMatchObject({ event: "checkpoints.created", tinkerPath: path, modelId: runIds[1] });
    expect(readCsv(csv.stdout)[0]).toMatchObject({ tinkerPath: path, timestamp: json[0]!.timestamp });
    expect(before).toEqual({ code: 0, stdout: "", stderr: "no events on 2020-02-29\n" });
    expect(wrong).toMatchObject({ code: 2, stderr: expect.stringMatching(/--day.*date such as 2026-01-31/) });
  });

  it("shows usage, and writes it to files", async () => {
    const window = ["billing", "usage", day(0), day(1)];
    const [table, json, csv, files] = await Promise.all([
      server.cli(window),
      server.json<BillingUsage>(window),
      server.cli([...window, "-f", "csv"]),
      server.cli([...window, "--csv", "usage.csv", "--sessions-csv", "sessions.csv"]),
    ]);
    expect(table.stdout).toMatch(/^HOUR \(UTC\) +USAGE +AMOUNT +BASE MODEL +SESSION/);
    expect(table.stdout).toMatch(/ training +2 tokens +fake\/tiny /);
    expect(table.stdout).toMatch(/ checkpoints +2 saved /);
    expect(json.data.find(({ eventInfo }) => eventInfo.type === "training")).toMatchObject({
      eventInfo: { type: "training", tokenCount: 2 },
      bucketStart: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:00:00/),
      sessionId,
    });
    expect(Object.keys(json.sessions ?? {})).toContain(sessionId);
    expect(readCsv(csv.stdout).find(({ type }) => type === "training")).toMatchObject({
      tokenCount: "2",
      count: "",
      sessionId,
      estimatedCostUsd: "",
    });
    expect(files).toMatchObject({ code: 0, stdout: "" });
    expect(files.stderr).toMatch(/^sessions\.csv holds 1 row\nusage\.csv holds \d+ rows\n$/);
    expect(readFileSync(join(server.folder, "usage.csv"), "utf8")).toBe(csv.stdout);
    expect(readFileSync(join(server.folder, "sessions.csv"), "utf8")).toMatch(
      new RegExp(`^sessionId,userMetadata\\n${sessionId},`),
    );
  });

  it.each([
    [["2026-01-01", "2026-02-01"], /^error: end must be after start and at most 14 days later/],
    [["2026-01-01T00:30:00Z", "2026-01-02"], /^error: start must be a time on a full UTC hour/],
    [["soon", "2026-01-02"], /^error: start must be a time on a full UTC hour, got soon/],
  ])("refuses to show the usage of %j", async (window, message) => {
    const { code, stderr } = await server.cli(["billing", "usage", ...window]);
    expect(code).toBe(2);
    expect(stderr).toMatch(message);
  });

  it("shows what checkpoints take", async () => {
    const storage = ["billing", "checkpoint-storage"];
    const [table, file] = await Promise.all([
      server.cli([...storage, "--project", "project-1"]),
      server.cli([...storage, "--csv", "-"]),
    ]);
    expect(table.stdout).toMatch(/^PROJECT +OWNER +CHECKPOINTS +SIZE\nproject-1 +local +2 +[\d.]+ kB\n$/);
    expect(readCsv(file.stdout)).toMatchObject([{ projectId: "project-1", checkpointCount: "2" }]);
  });

  it("says on standard error that there is nothing, and [] in JSON", async () => {
    const lists = [
      [["run", "list"], "no runs\n"],
      [["session", "list"], "no sessions\n"],
      [["checkpoint", "list"], "no checkpoints\n"],
      [["models", "large"], 'no model\'s name contains "large"\n'],
    ] as const;
    const tables = await Promise.all(lists.map(([args]) => empty.cli(args)));
    expect(tables).toEqual(lists.map(([, stderr]) => ({ code: 0, stdout: "", stderr })));
    expect(await empty.json(["session", "list"])).toEqual([]);
    expect(await empty.json(["billing", "usage", day(0), day(1)])).toMatchObject({ data: [] });
  });

  it.skipIf(noTerminal)("fits the terminal: the least important columns give way", async () => {
    const lines = async (args: readonly string[], columns: number) => {
      const terminal = openTerminal([...args, "--no-color"], { env: server.env, columns });
      expect(await terminal.ended).toBe(0);
      return terminal.text().trimEnd().split("\r\n");
    };
    const COLUMNS_BELOW = /^ {2}NAME +BASE MODEL +LORA +LAST REQUEST +STATUS$/;
    const [narrow, wide, cut, tiny] = await Promise.all([
      lines(["run", "list"], 80),
      lines(["run", "list"], 130),
      lines(["audit"], 70),
      lines(["run", "list"], 50),
    ]);
    expect(narrow.slice(0, 2)).toEqual(["RUN", expect.stringMatching(COLUMNS_BELOW)]);
    expect(narrow.slice(2).filter((_, index) => index % 2 === 0)).toEqual(runIds);
    expect(narrow).toHaveLength(6);
    expect(wide[0]).toMatch(/^RUN +NAME +BASE MODEL +LORA +LAST REQUEST +STATUS$/);
    expect(tiny.join(" ")).toContain("no room for LoRA, Status: widen the terminal, or use --json or");
    expect(cut[1]).toMatch(/ {2}tinker:\/\/.*….*step-1$/);
    for (const line of [...narrow, ...cut]) expect(line.length).toBeLessThanOrEqual(80);
  });
});
