import { execFile } from "node:child_process";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { main, run } from "./command.js";
import { type CliServer, cleanEnv, startCliServer } from "./server.js";
import { noTerminal, openTerminal } from "./terminal.js";

const WITHOUT_SERVER = cleanEnv("/nonexistent");

describe("global options", () => {
  let server: CliServer;
  let guarded: CliServer;
  beforeAll(async () => {
    [server, guarded] = await Promise.all([
      startCliServer(),
      startCliServer({ apiKeys: ["tml-right-key-of-the-test", "tml-other-key-of-the-test"] }),
    ]);
  });
  afterAll(async () => {
    await server[Symbol.asyncDispose]();
    await guarded[Symbol.asyncDispose]();
  });

  it.each([
    [["--json", "run", "list"]],
    [["run", "--json", "list"]],
    [["run", "list", "--json"]],
    [["-f", "csv", "run", "list", "--format=json"]],
  ])("are taken wherever they stand: %j", async (args) => {
    expect(await server.cli(args)).toEqual({ code: 0, stdout: "[]\n", stderr: "" });
  });

  it("name the server and its key, over what the environment says", async () => {
    const wrong = { TINKER_BASE_URL: "http://127.0.0.1:9", TINKER_API_KEY: "tml-wrong" };
    const options = ["--base-url", guarded.url, "--api-key", "tml-right-key-of-the-test"];
    const { code, stdout } = await run(["models", ...options, "-f", "csv"], {
      env: { ...WITHOUT_SERVER, ...wrong },
    });
    expect({ code, stdout }).toEqual({
      code: 0,
      stdout: "modelName,maxContextLength,trainable,sampleable\nfake/tiny,64,true,true\n",
    });
  });

  it("take the server as host:port of this machine, and with the path of the API behind it", async () => {
    const plain = server.url.replace("http://", "");
    const [bare, whole, foreign, variable] = await Promise.all([
      server.cli(["models", "-f", "csv", "--base-url", plain]),
      server.cli(["models", "-f", "csv", "--base-url", `${server.url}/api/v1/`]),
      server.cli(["models", "--base-url", "gpu-box:8000"]),
      server.cli(["models"], { TINKER_BASE_URL: "gpu-box:8000" }),
    ]);
    expect(bare).toMatchObject({ code: 0, stdout: expect.stringContaining("fake/tiny,64"), stderr: "" });
    expect(whole).toEqual(bare);
    const wanted = 'must be an absolute URL such as "https://gpu-box:8000", got "gpu-box:8000"';
    expect(foreign).toEqual({ code: 1, stdout: "", stderr: `error: --base-url ${wanted}\n` });
    expect(variable.stderr).toBe(`error: TINKER_BASE_URL ${wanted}\n`);
  });

  it.each([
    [
      ["run", "list", "--json", "--format", "csv"],
      "error: --json and --format csv cannot be given together\n",
    ],
  ])("that cannot be given together are refused: %j", async (args, stderr) => {
    expect(await server.cli(args)).toEqual({ code: 2, stdout: "", stderr });
  });

  it.each([
    [
      ["run", "list", "--format", "xml"],
      /--format.*Allowed choices are table, json, csv\. \(see tinkerts run/,
    ],
    [
      ["models", "--timeout", "soon"],
      /--timeout.*number of seconds, or a number with a unit: ms, s, m, h, d\./,
    ],
    [["run", "lsit"], /^error: unknown command 'lsit'\n\(Did you mean list\?\)\n$/],
    [["help", "run", "lsit"], /^error: unknown command 'lsit'\n\(Did you mean list\?\)\n$/],
    [["chekpoint", "list"], /^error: unknown command 'chekpoint'\n\(Did you mean checkpoint\?\)\n$/],
    [["run", "list", "--jsn"], /Did you mean --json\?/],
    [["run"], /^Usage: tinkerts run /],
    [["run", "info"], /missing required argument 'id' \(see tinkerts run info --help\)/],
  ])("and everything else that is wrong end with 2: %j", async (args, message) => {
    const { code, stdout, stderr } = await server.cli(args);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(message);
  });

  it("are in the help of every command, after its own", async () => {
    const [direct, byHelp, group] = await Promise.all([
      server.cli(["run", "list", "--help"]),
      server.cli(["--no-color", "help", "run", "list"]),
      server.cli(["checkpoint", "--help"]),
    ]);
    expect(direct).toMatchObject({ code: 0, stderr: "" });
    expect(direct.stdout).toMatch(
      /^Usage: tinkerts run list \[options\]\n.*--limit.*\nGlobal options:.*--base-url/s,
    );
    expect(byHelp).toEqual(direct);
    for (const name of ["list", "download", "push-hf", "merge", "set-ttl", "delete"])
      expect(group.stdout).toMatch(new RegExp(`^ {2}${name} `, "m"));
  });

  it("say what to do without a key", async () => {
    const { code, stdout, stderr } = await run(["run", "list"], { env: WITHOUT_SERVER });
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr).toMatch(
      /^error: there is no API key: .*tinkerts auth login.*TINKER_API_KEY or give --api-key; .*tinkerts serve.*\n$/,
    );
  });

  it("end with where a wrong key came from", async () => {
    const [option, environment, none] = await Promise.all([
      guarded.cli(["run", "list", "--api-key", "tml-wrong"]),
      guarded.cli(["run", "list"], { TINKER_API_KEY: "tml-wrong" }),
      guarded.cli(["run", "list"]),
    ]);
    expect(option).toMatchObject({ code: 1, stdout: "" });
    expect(option.stderr).toBe(
      `error: ${guarded.url} does not accept the key from --api-key: check it, or make a new one\n`,
    );
    expect(environment.stderr).toMatch(/does not accept the key from TINKER_API_KEY/);
    expect(none.stderr).toMatch(
      /needs an API key: .*tinkerts auth login.* set TINKER_API_KEY or give --api-key\n$/,
    );
  });

  it("end with the URL of a server that cannot be reached", async () => {
    const { code, stderr } = await server.cli(["run", "list", "--base-url", "http://127.0.0.1:9"]);
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /(?:^|\n)error: http:\/\/127\.0\.0\.1:9 cannot be reached \(.*ECONNREFUSED.*\): check --base-url or TINKER_BASE_URL, or start a server with `tinkerts serve`\n$/,
    );
  });

  it("end with advice when the server does not answer in time", async () => {
    const silent: Server = createServer(() => {});
    await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
    const url = `http://127.0.0.1:${(silent.address() as AddressInfo).port}`;
    const { code, stderr } = await server.cli(["models", "--base-url", url, "--timeout", "50ms"]);
    silent.closeAllConnections();
    silent.close();
    expect(code).toBe(1);
    expect(stderr).toMatch(new RegExp(`(?:^|\\n)error: ${url} did not answer in time: .*--timeout.*\n$`));
  });

  it("show requests and a stack only when asked, and never the key", async () => {
    const args = ["run", "info", "nothing", "--api-key", "tml-secret"];
    const [plain, verbose] = await Promise.all([server.cli(args), server.cli(["-v", ...args])]);
    expect(plain).toEqual({
      code: 1,
      stdout: "",
      stderr: `error: ${server.url} has no training run nothing: \`tinkerts run list\` shows those it has\n`,
    });
    expect(verbose.code).toBe(1);
    expect(verbose.stderr).toMatch(/GET .*\/api\/v1\/training_runs\/nothing/);
    expect(verbose.stderr).toMatch(/\n {4}at /);
    expect(verbose.stderr).not.toContain("tml-secret");
  });

  it("take a reader that went away as no error", async () => {
    const pipe = `set -o pipefail; "${process.execPath}" "${main}" models --json | true`;
    const bash = promisify(execFile)("bash", ["-c", pipe], { env: { ...process.env, ...server.env } });
    expect(await bash).toEqual({ stdout: "", stderr: "" });
  });

  it.skipIf(noTerminal)("show weight on a terminal, unless told not to", async () => {
    const shown = async (args: readonly string[], env: Record<string, string> = {}) => {
      const terminal = openTerminal(["models", ...args], { env: { ...server.env, ...env } });
      expect(await terminal.ended).toBe(0);
      return terminal.text();
    };
    const [styled, declined, unwanted, json] = await Promise.all([
      shown([]),
      shown(["--no-color"]),
      shown([], { NO_COLOR: "1" }),
      shown(["--json"]),
    ]);
    expect(styled).toContain("\x1b[1mMODEL");
    for (const text of [declined, unwanted, json]) expect(text).not.toContain("\x1b");
  });
  if (noTerminal) console.warn(noTerminal);
});
