import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { describeKey } from "../../src/cli/auth/key-requests.js";
import type { CommandContext } from "../../src/cli/context.js";
import { hasPython, python } from "../conformance/judge.js";
import { type CliServer, startCliServer } from "./server.js";
import { noTerminal, openTerminal } from "./terminal.js";
import { runWarm as run } from "./warm-command.js";

const KEY = "tml-very-secret-key-of-the-test";
/** How the built-in backend names that key, and the id it gives it. */
const NAME = expect.stringMatching(/^key-[0-9a-f]{16}$/);

let server: CliServer;
let home: string;
beforeAll(async () => {
  server = await startCliServer({ apiKeys: [KEY] });
});
afterAll(() => server[Symbol.asyncDispose]());
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "tinkerts-auth-"));
});
afterEach(() => {
  rmSync(home, { recursive: true });
  server.intercept = () => false;
  server.requests.length = 0;
});

const environment = () => ({ ...server.env, HOME: home });
const path = () => join(home, ".tinker/credentials.json");
const readFile = () => JSON.parse(readFileSync(path(), "utf8"));
const auth = (args: readonly string[], input?: string, env: Record<string, string> = {}) =>
  run(["auth", ...args], {
    env: { ...environment(), ...env },
    ...(input !== undefined && { input }),
  });
/** The file as the official command line writes it. */
const store = (keys: object, chosen?: string) => {
  mkdirSync(join(home, ".tinker"));
  writeFileSync(path(), JSON.stringify({ version: 1, default: chosen, keys }));
};
const record = (more: object = {}) => ({
  type: "manual",
  key: KEY,
  name: "laptop",
  details: { org_details: { name: "Example" }, user_details: { email: "me@example.com" } },
  ...more,
});

describe("tinkerts auth login", () => {
  it("stores a key that is piped in, where only its owner can read it, beside the others", async () => {
    const other = { type: "manual", key: "tml-old", name: "old", note: "", future: { kept: true } };
    const { code, stdout, stderr } = await auth(["login"], ` ${KEY}\r\n`);
    expect({ code, stdout }).toEqual({ code: 0, stdout: "" });
    expect(stderr).toMatch(
      /^logged in: key "key-\w+" \(key-\w+@localhost, local\) for http:\S+ is stored in .*\/\.tinker\/credentials\.json\n$/,
    );
    const keyId = server.url;
    const { keys, ...rest } = readFile();
    // No default: the official package would send that to the hosted service.
    expect(rest).toEqual({ version: 1 });
    expect(keys).toEqual({
      [keyId]: {
        type: "manual",
        key: KEY,
        base_url: server.url,
        name: NAME,
        note: "a key of a tinkerts server",
        details: {
          org_details: { name: "local" },
          user_details: { email: expect.stringMatching(/@localhost$/) },
        },
      },
    });
    expect(statSync(path()).mode & 0o777).toBe(0o600);
    expect(statSync(join(home, ".tinker")).mode & 0o777).toBe(0o700);

    writeFileSync(path(), JSON.stringify({ keys: { a: other }, later: 1 }), { mode: 0o644 });
    const json = await auth(["login", "--json"], KEY);
    expect(json).toMatchObject({ code: 0, stderr: "" });
    expect(JSON.parse(json.stdout)).toEqual({
      keyId,
      name: NAME,
      email: expect.stringMatching(/@localhost$/),
      organization: "local",
      server: server.url,
      path: path(),
    });
    expect(readFile()).toMatchObject({ keys: { a: other, [keyId]: { key: KEY } }, later: 1 });
    expect(statSync(path()).mode & 0o777).toBe(0o600);
    expect(readdirSync(join(home, ".tinker"))).toEqual(["credentials.json"]);
  });

  it("stores a key for one server, beside the hosted service's, and each goes where it belongs", async () => {
    store({ "7": record({ key: "tml-hosted" }) }, "7");
    const sent: unknown[] = [];
    server.intercept = (request) => {
      sent.push(request.headers["x-api-key"]);
      return false;
    };
    const without = await run(["run", "list"], { env: environment() });
    expect(without).toMatchObject({ code: 1 });
    expect(without.stderr).toBe(
      `error: ${server.url} needs an API key: store one with \`tinkerts auth login --base-url ${server.url}\`, ` +
        "set TINKER_API_KEY or give --api-key (the stored key for " +
        "https://tinker.thinkingmachines.dev/services/tinker-prod is not sent to other servers)\n",
    );
    const login = await auth(["login", "--base-url", server.url], KEY, { TINKER_BASE_URL: "" });
    expect(login).toMatchObject({ code: 0 });
    expect(readFile()).toMatchObject({ default: "7", keys: { "7": { key: "tml-hosted" } } });
    expect(await run(["run", "list"], { env: environment() })).toMatchObject({ code: 0 });
    expect(new Set(sent)).toEqual(new Set([undefined, KEY]));
    expect(JSON.parse((await auth(["status", "--json"])).stdout)).toMatchObject({
      credential: "stored key",
      storedFor: ["https://tinker.thinkingmachines.dev/services/tinker-prod", server.url],
    });
    const out = await auth(["logout", "--base-url", server.url], undefined, { TINKER_BASE_URL: "" });
    expect(out).toMatchObject({ code: 0 });
    expect(readFile()).toEqual({ version: 1, default: "7", keys: { "7": record({ key: "tml-hosted" }) } });
  });

  it("keeps every digit of a large key id", async () => {
    server.intercept = (request, response) => {
      if (!request.url!.endsWith("/auth/apikey/me")) return false;
      const { details } = record();
      const text = JSON.stringify({ name: "big", note: '"key_id": 7', details });
      response.writeHead(200, { "content-type": "application/json" });
      response.end(`${text.slice(0, -1)},"key_id":9007199254740993}`);
      return true;
    };
    const context = {
      stderr: process.stderr,
      globals: () => ({ baseURL: server.url }),
      interruption: () => new AbortController().signal,
    } as unknown as CommandContext;
    expect(await describeKey(context, KEY)).toMatchObject({ keyId: "9007199254740993", name: "big" });
  });

  it("stores none that would travel unencrypted to another machine, and asks for none", async () => {
    const { code, stderr } = await auth(["login", "--base-url", "http://192.0.2.1:8642"], KEY);
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr:
        "error: http://192.0.2.1:8642 is another machine without https, where the network could read the key: " +
        "use its https address, or set TINKER_API_KEY if you trust the network\n",
    });
    expect(readdirSync(home)).not.toContain(".tinker");
  });

  it("stores nothing that the server or a look at it refuses", async () => {
    const [wrong, empty, words, gone, hosted] = await Promise.all([
      auth(["login"], "tml-wrong\n"),
      auth(["login"], "\n"),
      auth(["login"], `${KEY}\n${KEY}\n`),
      auth(["login", "--base-url", "http://127.0.0.1:9"], KEY),
      auth(["login"], "sk-not-ours", { TINKER_BASE_URL: "" }),
    ]);
    expect(wrong).toEqual({
      code: 1,
      stdout: "",
      stderr: `error: ${server.url} does not accept this key, so it was not stored: is it all of the key?\n`,
    });
    expect(empty).toMatchObject({ code: 2, stderr: expect.stringMatching(/^error: there is no key: /) });
    expect(words).toMatchObject({ code: 1, stderr: expect.stringMatching(/a key is one word/) });
    expect(gone).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/127\.0\.0\.1:9 cannot be reached/),
    });
    expect(hosted).toMatchObject({ code: 1, stderr: 'error: that is not a key: keys begin with "tml-"\n' });
    for (const { stderr } of [wrong, words, gone]) expect(stderr).not.toMatch(/tml-(very|wrong)/);
    expect(readdirSync(home)).not.toContain(".tinker");
  });

  it("asks to log out first if a key is in use, without a question", async () => {
    store({ "7": record() }, "7");
    expect(await auth(["login"], KEY, { TINKER_BASE_URL: "" })).toEqual({
      code: 1,
      stdout: "",
      stderr:
        "error: there is a stored key for https://tinker.thinkingmachines.dev/services/tinker-prod already, " +
        '"laptop" (me@example.com, Example): run `tinkerts auth logout` first\n',
    });
    expect(server.requests).toEqual([]);
  });

  it("leaves a file alone that it does not understand", async () => {
    store({});
    const later = JSON.stringify({ version: 2, keys: { a: { secret: KEY } } });
    for (const text of [later, `{"keys": "${KEY}`]) {
      writeFileSync(path(), text);
      const { code, stderr } = await auth(["login"], KEY);
      expect({ code, stderr }).toMatchObject({ code: 1, stderr: expect.stringMatching(/move it away/i) });
      expect(stderr).not.toContain("secret");
      expect(readFileSync(path(), "utf8")).toBe(text);
    }
  });

  it("believes your own server that accepts keys but cannot tell whose they are", async () => {
    server.intercept = (request, response) => {
      if (!request.url!.endsWith("/auth/apikey/me")) return false;
      response.writeHead(404, { "content-type": "application/json" }).end('{"detail":"Not Found"}');
      return true;
    };
    const wrong = await auth(["login"], "tml-wrong");
    expect(wrong).toMatchObject({ code: 1, stderr: expect.stringMatching(/does not accept this key/) });
    const right = await auth(["login"], KEY, { TINKER_API_KEY: "tml-wrong" });
    expect(right.stderr).toBe(
      `logged in: key "key of ${server.url}" for ${server.url} is stored in ${path()}\n` +
        "note: TINKER_API_KEY is set and goes before the stored key\n",
    );
    expect(readFile()).toEqual({
      version: 1,
      keys: {
        [server.url]: { type: "manual", key: KEY, name: `key of ${server.url}`, base_url: server.url },
      },
    });
  });

  it.skipIf(noTerminal)(`asks on a terminal, without showing what is typed ${noTerminal ?? ""}`, async () => {
    const prompt = /API key for http:\S+ \(it is not shown\): /;
    const ask = async (keys: string, env: Record<string, string> = {}, shown = prompt) => {
      const terminal = openTerminal(["auth", "login"], { env: { ...environment(), ...env }, columns: 200 });
      await terminal.seen(shown);
      terminal.type(keys);
      const code = await terminal.ended;
      expect(terminal.text()).not.toMatch(/secret|tml-very/);
      return { code, text: terminal.text() };
    };
    const [interrupted, left, hosted] = await Promise.all([
      ask(`${KEY}\x03`),
      ask("\x04"),
      // A key of another kind is refused before anybody is asked about it.
      ask(
        "sk-secret\r",
        { TINKER_BASE_URL: "" },
        /Create an API key at https:\/\/\S+\/keys\?new_key=true&key_name=tinkerts-\S+\s+Paste it here \(it is not shown\): /,
      ),
    ]);
    expect(interrupted).toMatchObject({ code: 130, text: expect.stringContaining("interrupted") });
    expect(left).toMatchObject({ code: 2, text: expect.stringContaining("there is no key") });
    expect(hosted).toMatchObject({ code: 1, text: expect.stringContaining('keys begin with "tml-"') });
    expect(readdirSync(home)).not.toContain(".tinker");
    expect(await ask(`${KEY}x\x7f\r`)).toMatchObject({ code: 0, text: expect.stringContaining("logged in") });
    expect(Object.values(readFile().keys)).toMatchObject([{ key: KEY }]);
  });
});

describe("tinkerts auth logout", () => {
  it("forgets the key in use, and no other", async () => {
    const old = record({ name: "old", note: "n" });
    store({ "7": record({ base_url: server.url }), old }, "old");
    const { code, stdout, stderr } = await auth(["logout"], undefined, { TINKER_API_KEY: KEY });
    expect({ code, stdout }).toEqual({ code: 0, stdout: "" });
    expect(stderr).toBe(
      'logged out: key "laptop" (me@example.com, Example) is forgotten, but still valid\n' +
        "note: TINKER_API_KEY is set, and stays in use\n",
    );
    expect(readFile()).toEqual({ version: 1, default: "old", keys: { old } });
    expect(server.requests).toEqual([]);
    expect(await auth(["logout"])).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(
        /^error: there is nothing to log out from: .* has no key for http:\S+ \(there are keys for --base-url https:/,
      ),
    });
  });

  it("says where to delete a key of the hosted service, and has the facts as JSON", async () => {
    store({ "7": record() }, "7");
    const table = await auth(["logout"], undefined, { TINKER_BASE_URL: "" });
    expect(table.stderr).toMatch(
      /still valid: delete it at https:\/\/tinker\.thinkingmachines\.ai\/keys\/7\n$/,
    );
    writeFileSync(path(), JSON.stringify({ keys: { "7": record({ base_url: server.url }) } }));
    const { stdout } = await auth(["logout", "--json"]);
    expect(JSON.parse(stdout)).toEqual({
      keyId: "7",
      name: "laptop",
      server: server.url,
      deletedOnServer: false,
    });
  });

  it("deletes a generated key on the server too", async () => {
    server.intercept = (request, response) => {
      if (request.method !== "DELETE") return false;
      expect(request.headers["x-api-key"]).toBe(KEY);
      response.writeHead(204).end();
      return true;
    };
    store({ "7": record({ type: "generated", base_url: server.url }) });
    expect(await auth(["logout"], undefined, { TINKER_API_KEY: "tml-other" })).toMatchObject({
      code: 0,
      stderr: expect.stringMatching(/is forgotten, and deleted on the server\n/),
    });
    expect(server.requests).toEqual(["DELETE /api/v1/auth/apikey/me"]);
    expect(readFile()).toEqual({ version: 1, keys: {} });
  });

  it("forgets a generated key even if the server does not delete it, and says so", async () => {
    store({ "7": record({ type: "generated", base_url: server.url }) });
    const { code, stderr } = await auth(["logout"]);
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /^error: key "laptop" .* \(id 7\) is forgotten, but was not deleted on the server \(.*set where it is started.*\)\n$/,
    );
    expect(readFile()).toEqual({ version: 1, keys: {} });
  });
});

describe("tinkerts auth status", () => {
  it("tells which key is in use and that the server accepts it, never the key", async () => {
    store({ "7": record({ base_url: server.url }) });
    const [table, json, csv] = await Promise.all([
      auth(["status"]),
      auth(["status", "--json"], undefined, { TINKER_API_KEY: KEY }),
      auth(["status", "--format", "csv", "--api-key", KEY]),
    ]);
    expect(table).toEqual({
      code: 0,
      stdout:
        `Server      ${server.url}\n` +
        "API key     stored in ~/.tinker/credentials.json\n" +
        'Stored key  "laptop" (me@example.com, Example)\n' +
        `Stored for  ${server.url}\n` +
        "Accessible  yes\n",
      stderr: "",
    });
    expect(JSON.parse(json.stdout)).toEqual({
      server: server.url,
      credential: "TINKER_API_KEY",
      storedKey: '"laptop" (me@example.com, Example)',
      storedFor: [server.url],
      accessible: true,
      error: null,
    });
    expect(csv.stdout).toMatch(
      /^server,credential,storedKey,storedFor,accessible\n.*,from --api-key,.*,true\n$/,
    );
    for (const { stdout } of [table, json, csv]) expect(stdout).not.toContain("secret");
  });

  it("exits with 1 and the next step if there is no credential", async () => {
    const [none, hosted, gone] = await Promise.all([
      auth(["status"]),
      auth(["status", "--json"], undefined, { TINKER_BASE_URL: "" }),
      auth(["status", "--base-url", "http://127.0.0.1:9"]),
    ]);
    expect(none).toMatchObject({
      code: 1,
      stdout: expect.stringMatching(/^API key +none\n.*Accessible +no\n/ms),
      stderr: expect.stringMatching(/needs an API key: store one with `tinkerts auth login --base-url http:/),
    });
    expect(hosted.code).toBe(1);
    expect(JSON.parse(hosted.stdout)).toMatchObject({
      credential: "none",
      accessible: false,
      error: expect.stringMatching(/^there is no API key: store one with `tinkerts auth login`/),
    });
    expect(gone).toMatchObject({ code: 1, stderr: expect.stringMatching(/cannot be reached/) });
  });

  it("says at once that the stored key is no longer accepted, and that an account has no credit", async () => {
    store({ "7": record({ key: "tml-revoked", base_url: server.url }) });
    expect(await auth(["status"])).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(
        /does not accept the key stored in ~\/\.tinker\/credentials\.json: forget it with `tinkerts auth logout`/,
      ),
    });
    server.intercept = (request, response) => {
      if (!request.url!.endsWith("/get_server_capabilities")) return false;
      response.writeHead(402, { "content-type": "application/json" }).end('{"detail":"add a card"}');
      return true;
    };
    expect(await auth(["status", "--api-key", KEY])).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("add a card"),
    });
  });

  it("needs no key if the server needs none, and no readable file if another key is in use", async () => {
    await using open = await startCliServer();
    const keyless = await auth(["status", "--json"], undefined, { TINKER_BASE_URL: open.url });
    expect(keyless.code).toBe(0);
    expect(JSON.parse(keyless.stdout)).toMatchObject({
      credential: "none",
      accessible: true,
      storedKey: null,
    });
    store({});
    writeFileSync(path(), "broken");
    const [broken, other] = await Promise.all([auth(["status"]), auth(["status", "--api-key", KEY])]);
    expect(broken).toMatchObject({ code: 1, stderr: expect.stringMatching(/is not valid JSON/) });
    expect(other).toMatchObject({ code: 0, stderr: "" });
  });
});

if (!hasPython) {
  console.log(
    "test/cli/auth.test.ts: the official Python package skipped, TINKERTS_PYTHON names no Python with tinker",
  );
}
describe.skipIf(!hasPython)("the official Python package", () => {
  const execute = promisify(execFile);
  const judge = async (code: string) => {
    // Empty, a key is a wrong one to it.
    const { TINKER_API_KEY: _, ...env }: NodeJS.ProcessEnv = { ...process.env, ...environment() };
    // The package now and then aborts while the interpreter shuts down.
    const leave = "import os, sys; sys.stdout.flush(); os._exit(0)";
    const { stdout } = await execute(python, ["-c", `${code}\n${leave}`], { env });
    return stdout.trim();
  };

  it("reads the hosted service's key beside those of other servers, which it leaves", async () => {
    store({ "7": record() }, "7");
    const other = "tml-key-of-another-server";
    await using open = await startCliServer({ apiKeys: [other] });
    expect(await auth(["login", "--base-url", open.url], other)).toMatchObject({ code: 0 });
    const token = await judge(
      "from tinker.lib.credentials import *; import tinker.auth\n" +
        "store = JsonCredentialStore(default_credentials_path())\n" +
        "store.set_default(store.get_default_key_id())\n" +
        "tinker.auth.raise_if_tinker_not_accessible()\n" +
        "print(tinker.auth.get_tinker_token())",
    );
    expect(token).toBe(KEY);
    expect(readFile()).toMatchObject({
      default: "7",
      keys: { "7": { key: KEY }, [open.url]: { key: other } },
    });
  });

  it("stores what we read, and sees that we forgot it", async () => {
    const cli = (command: string) =>
      judge(
        "from click.testing import CliRunner; from tinker.cli.commands.auth import cli\n" +
          `result = CliRunner().invoke(cli, ["${command}"], input="${KEY}\\n")\n` +
          "print(result.exit_code, result.exception)",
      );
    expect(await cli("login")).toBe("0 None");
    const hosted = { TINKER_BASE_URL: "" };
    const status = await auth(["status", "--json"]);
    expect(JSON.parse(status.stdout)).toMatchObject({ credential: "none", storedKey: null });
    expect(await auth(["login"], KEY, hosted)).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/a stored key for \S+ already/),
    });
    expect(await auth(["logout"], undefined, hosted)).toMatchObject({ code: 0 });
    expect(await cli("status")).toMatch(/^1 .*No Tinker credentials/);
  });
});
