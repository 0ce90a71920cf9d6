import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { checkNode, describeSkew, MIN_NODE } from "../../src/cli/commands/doctor.js";
import { type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { FakeEngine } from "../local/fake-engine.js";
import { runWarm as run } from "./warm-command.js";

interface Report {
  ok: boolean;
  checks: { name: string; status: string; detail: string }[];
}

const KEY = "tml-very-secret-key-of-the-test";

describe("tinkerts doctor", () => {
  let backend: LocalBackend;
  let home: string;
  let other: Server | undefined;
  beforeAll(async () => {
    backend = await startLocalBackend({ engine: new FakeEngine(), apiKeys: [KEY] });
    home = mkdtempSync(join(tmpdir(), "tinkerts-doctor-"));
  });
  afterAll(async () => {
    await backend.close();
    rmSync(home, { recursive: true });
  });
  afterEach(() => other?.close());

  /** Nothing of this machine's own settings counts. */
  const bare = {
    TINKER_API_KEY: "",
    TINKER_BASE_URL: "",
    TINKER_CREDENTIAL_CMD: "",
    VK_DRIVER_FILES: "/nowhere",
  };
  const doctor = (env: Record<string, string>, args: readonly string[] = []) =>
    run(["doctor", ...args], { env: { ...bare, HOME: home, TINKER_BASE_URL: backend.baseURL, ...env } });
  const statuses = ({ stdout }: { stdout: string }) =>
    Object.fromEntries((JSON.parse(stdout) as Report).checks.map(({ name, status }) => [name, status]));

  /** A server that answers every request in its own way. */
  const answering = async (answer: Parameters<typeof createServer>[1] & object) => {
    other = createServer(answer).listen(0, "127.0.0.1");
    await new Promise((resolve) => other!.once("listening", resolve));
    return `http://127.0.0.1:${(other.address() as AddressInfo).port}`;
  };

  it("says ok to each thing where all is well, and never shows the key", async () => {
    const { code, stdout, stderr } = await doctor({ TINKER_API_KEY: KEY });
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout.split("\n")).toEqual([
      `ok       Node     ${process.versions.node}`,
      expect.stringMatching(/^ok {7}Machine {2}\w+ \w+, \d+ threads, \d+ GB of memory$/),
      // Whether `webgpu` is installed or not: there is no driver.
      expect.stringMatching(
        /^skipped {2}GPU {6}(the package webgpu is not installed: npm install webgpu|no GPU was found, or its driver .* is missing)$/,
      ),
      "ok       API key  from TINKER_API_KEY",
      expect.stringMatching(/^ok {7}Server {3}http:\/\/127\.0\.0\.1:\d+ answered in \d+ ms$/),
      "ok       Clock    the same as the server's",
      "ok       Models   fake/tiny",
      expect.stringMatching(/^ok {7}Session {2}opened and alive in \d+ ms$/),
      "",
    ]);
    expect(stdout).not.toContain("secret");
  });

  it("finds the key wherever the SDK does", async () => {
    const detail = async (env: Record<string, string>, args: readonly string[] = []) => {
      const { code, stdout, stderr } = await doctor(env, ["--json", ...args]);
      expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
      expect(stdout).not.toContain("secret");
      return (JSON.parse(stdout) as Report).checks.find(({ name }) => name === "API key");
    };
    mkdirSync(join(home, ".tinker"));
    const stored = { keys: { work: { key: KEY, base_url: backend.baseURL } } };
    writeFileSync(join(home, ".tinker/credentials.json"), JSON.stringify(stored));
    const [option, command, file] = await Promise.all([
      detail({ TINKER_API_KEY: "tml-other" }, ["--api-key", KEY]),
      detail({ TINKER_CREDENTIAL_CMD: `echo ${KEY}` }),
      detail({}),
    ]);
    expect(option).toEqual({ name: "API key", status: "ok", detail: "from --api-key" });
    expect(command?.detail).toBe("printed by the command in TINKER_CREDENTIAL_CMD");
    expect(file?.detail).toBe("stored in ~/.tinker/credentials.json");
    rmSync(join(home, ".tinker"), { recursive: true });
  });

  it("says what to do where something is wrong, and ends with 1", async () => {
    const [noKey, wrongKey, wrongCommand, nobody] = await Promise.all([
      // The proxy keeps the request for the hosted service on this machine.
      doctor({ TINKER_BASE_URL: "", HTTPS_PROXY: "http://127.0.0.1:9", https_proxy: "", NO_PROXY: "" }),
      doctor({ TINKER_API_KEY: "tml-wrong" }),
      doctor({ TINKER_CREDENTIAL_CMD: "exit 3" }),
      doctor({}, ["--base-url", "http://127.0.0.1:9", "--json"]),
    ]);
    expect(noKey.code).toBe(1);
    expect(noKey.stdout).toMatch(
      /^failed {3}API key {2}there is no API key: store one with `tinkerts auth login`, set TINKER_API_KEY/m,
    );
    expect(noKey.stdout).toMatch(/^failed {3}Server {3}https:\/\/tinker\.thinkingmachines\.dev/m);
    expect(noKey.stdout).toMatch(/^skipped {2}Session {2}needs the server$/m);
    expect(wrongKey).toMatchObject({ code: 1, stderr: "error: not all is well: Models\n" });
    expect(wrongKey.stdout).toMatch(/^failed {3}Models .* does not accept the key from TINKER_API_KEY/m);
    expect(wrongCommand.stdout).toMatch(
      /^failed {3}API key {2}TINKER_CREDENTIAL_CMD failed with exit code 3\.$/m,
    );
    expect(nobody).toMatchObject({ code: 1, stderr: "error: not all is well: Server\n" });
    expect(statuses(nobody)).toEqual({
      Node: "ok",
      Machine: "ok",
      GPU: "skipped",
      "API key": "ok",
      Server: "failed",
      Clock: "skipped",
      Models: "skipped",
      Session: "skipped",
    });
  });

  it("notices a server that is none, and one whose clock is wrong", async () => {
    const page = await answering((_, response) => response.writeHead(404).end("<html>"));
    expect(statuses(await doctor({}, ["--base-url", page, "--json"]))).toMatchObject({ Server: "failed" });
    other!.close();
    const late = await answering((_, response) =>
      response
        .writeHead(200, {
          "content-type": "application/json",
          date: new Date(Date.now() + 3_600_000).toUTCString(),
        })
        .end('{"status":"ok"}'),
    );
    const { code, stdout } = await doctor({}, ["--base-url", late]);
    expect(code).toBe(1);
    expect(stdout).toMatch(/^failed {3}Clock {4}this machine's clock is 3600 s behind the server's: set it/m);
  });

  it("prints CSV", async () => {
    const { stdout } = await doctor({ TINKER_API_KEY: KEY }, ["--format", "csv"]);
    expect(stdout).toMatch(
      /^name,status,detail\nNode,ok,\d+\.\d+\.\d+\nMachine,ok,[^\n]*\nGPU,skipped,[^\n]*\nAPI key,ok,from TINKER_API_KEY\n/,
    );
  });

  it("asks for the Node that the package asks for", () => {
    const { engines } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"));
    expect(engines.node).toBe(`>=${MIN_NODE}`);
    expect(checkNode("22.1.0")).toBe("22.1.0");
    expect(() => checkNode("20.9.0")).toThrow("20.9.0 is too old: install 20.18.1 or newer");
    expect(describeSkew(null, 0)).toBe("the server sends no time");
    expect(describeSkew("Thu, 01 Jan 1970 00:00:10 GMT", 40_500)).toBe("30 s ahead of the server's");
  });
});
