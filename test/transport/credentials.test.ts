import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { AuthenticationError, TinkerError } from "../../src/errors.js";
import { HttpClient, type HttpClientOptions, JwtAuthProvider, jwtClaims } from "../../src/transport/index.js";
import { FakeClock } from "../support/fake-clock.js";
import type { ProtocolServer } from "../support/protocol-server.js";
import { clientForTest, environment, jwtOf, REQUEST, ROUTE, serverForTest } from "./helpers.js";

const NO_KEY: HttpClientOptions = { apiKey: undefined };
const keysSent = (server: ProtocolServer, route = ROUTE) =>
  server.requestsTo(route).map(({ headers }) => headers["x-api-key"]);

/** A home folder with this credentials file, until the test ends. */
function home(text: string | undefined): string {
  const folder = mkdtempSync(join(tmpdir(), "tinkerts-home-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  if (text !== undefined) {
    mkdirSync(join(folder, ".tinker"));
    writeFileSync(join(folder, ".tinker", "credentials.json"), text);
  }
  environment({ HOME: folder, USERPROFILE: folder });
  return folder;
}

describe("credentials", () => {
  it("come from a key function, asked before every attempt", async () => {
    const server = await serverForTest();
    server.on(ROUTE, [{ status: 500 }, { json: {} }]);
    let calls = 0;
    await clientForTest(server, { apiKey: async () => `tml-${++calls}` }).exchange(REQUEST);
    expect(keysSent(server)).toEqual(["tml-1", "tml-2"]);
  });

  it("that cannot be had fail the call as they are, without retries", async () => {
    const server = await serverForTest();
    const failure = new Error("vault is locked");
    const client = clientForTest(server, { apiKey: () => Promise.reject(failure) });
    await expect(client.exchange(REQUEST)).rejects.toBe(failure);
    expect(client.clock.sleeps).toEqual([]);
    expect(server.requests).toHaveLength(0);
  });

  it("come from TINKER_CREDENTIAL_CMD, run in a shell for every attempt", async () => {
    const server = await serverForTest();
    server.on(ROUTE, { json: {} });
    home(undefined);
    environment({ TINKER_CREDENTIAL_CMD: "echo tml-from-$((40 + 2))" });
    await clientForTest(server, NO_KEY).exchange(REQUEST);
    expect(keysSent(server)).toEqual(["tml-from-42"]);
  });

  it.each([
    ["true", "TINKER_CREDENTIAL_CMD printed no credential."],
    ["echo oops >&2; exit 3", "TINKER_CREDENTIAL_CMD failed with exit code 3."],
  ])("report a command that prints nothing: %s", async (command, message) => {
    const server = await serverForTest();
    home(undefined);
    environment({ TINKER_CREDENTIAL_CMD: command });
    await expect(clientForTest(server, NO_KEY).exchange(REQUEST)).rejects.toThrow(message);
    expect(server.requests).toHaveLength(0);
  });

  it("from the file go to the server they were stored for, and to no other", async () => {
    const [server, other] = [await serverForTest(), await serverForTest()];
    server.on(ROUTE, { json: {} });
    other.on(ROUTE, { json: {} });
    // "b" as `tinker auth login` writes it: the hosted service's.
    const keys = {
      a: { type: "manual", key: "tml-a", name: "a" },
      b: { type: "manual", key: "tml-b", name: "b" },
      c: { type: "manual", key: "tml-c", name: "c", base_url: server.url },
      d: { type: "manual", key: "tml-d", name: "d", base_url: "http://192.0.2.1:8642" },
      e: { type: "manual", key: "tml-e", name: "e", base_url: "https://tinker.example" },
    };
    home(JSON.stringify({ version: 1, default: "b", keys }));
    await clientForTest(server, NO_KEY).exchange(REQUEST);
    await clientForTest(other, NO_KEY).exchange(REQUEST);
    expect([...keysSent(server), ...keysSent(other)]).toEqual(["tml-c", undefined]);
    const keyFor = (baseURL?: string) => new HttpClient({ baseURL }).auth.token();
    expect(keyFor()).toBe("tml-b");
    expect(keyFor("https://tinker.example/")).toBe("tml-e");
    expect(keyFor("https://tinker.thinkingmachines.dev.example")).toBeUndefined();
    // Over http to another machine the network could read it, whatever the file says.
    expect(keyFor("http://192.0.2.1:8642")).toBeUndefined();
    expect(keyFor("http://tinker.example")).toBeUndefined();
  });

  it.each([undefined, "{}", '{"default":"gone","keys":{}}', '{"default":null}'])(
    "are not needed by a server of one's own (file: %s)",
    async (text) => {
      const server = await serverForTest();
      server.on(ROUTE, { json: {} });
      home(text);
      await clientForTest(server, NO_KEY).exchange(REQUEST);
      expect(keysSent(server)).toEqual([undefined]);
    },
  );

  it("report a file that is broken, without showing it", async () => {
    home('{"keys": {"a": {"key": "tml-secret"');
    expect(() => new HttpClient({ baseURL: "http://localhost:1" })).toThrow(
      /credentials.json is not valid JSON/,
    );
    expect(() => new HttpClient({ baseURL: "http://localhost:1" })).not.toThrow(/secret/);
  });

  it("are needed by the hosted service", () => {
    home(undefined);
    expect(() => new HttpClient()).toThrow(TinkerError);
    expect(() => new HttpClient()).toThrow(/No API key/);
    environment({ TINKER_API_KEY: "tml-env" });
    expect(new HttpClient().baseURL).toBe("https://tinker.thinkingmachines.dev/services/tinker-prod");
  });

  it("and base URL and Cloudflare access come from the environment", async () => {
    const server = await serverForTest();
    server.on(ROUTE, { json: {} });
    environment({
      TINKER_API_KEY: "tml-env",
      TINKER_BASE_URL: `${server.url}/`,
      CLOUDFLARE_ACCESS_CLIENT_ID: "cf-id",
      CLOUDFLARE_ACCESS_CLIENT_SECRET: "cf-secret",
    });
    const client = new HttpClient();
    onTestFinished(() => client.close());
    await client.exchange(REQUEST);
    expect(server.requests[0]?.headers).toMatchObject({
      "x-api-key": "tml-env",
      "cf-access-client-id": "cf-id",
      "cf-access-client-secret": "cf-secret",
    });
  });
});

const AUTH = "POST /api/v1/auth/token";

/** A client that exchanges its key for JWTs which live for `lifeSeconds`. */
async function jwtWorld(lifeSeconds = 3600) {
  const server = await serverForTest();
  const clock = new FakeClock();
  const client = clientForTest(server, { clock, maxRetries: 0 });
  const auth = new JwtAuthProvider(client, client.auth);
  client.auth = auth;
  let issued = 0;
  const issue = () => {
    issued += 1;
    return { json: { jwt: jwtOf({ n: issued, exp: clock.wallNow() / 1000 + lifeSeconds, email: "a@b.c" }) } };
  };
  server.on(AUTH, issue).on(ROUTE, { json: {} });
  /** Which of the issued tokens a request carried. */
  const used = () => keysSent(server).map((jwt) => jwtClaims(String(jwt))["n"]);
  const exchanges = () => server.requestsTo(AUTH).length;
  return { server, clock, client, auth, issue, used, exchanges };
}

describe("JWT exchange", () => {
  it("sends the credential once and the JWT from then on", async () => {
    const { server, client, auth, used } = await jwtWorld();
    await client.exchange(REQUEST);
    await client.exchange(REQUEST);
    expect(keysSent(server, AUTH)).toEqual(["tml-test"]);
    expect(used()).toEqual([1, 1]);
    expect(await auth.claims()).toMatchObject({ email: "a@b.c" });
  });

  it("is made once for many callers", async () => {
    const { client, used, exchanges } = await jwtWorld();
    await Promise.all(Array.from({ length: 20 }, () => client.exchange(REQUEST)));
    expect(exchanges()).toBe(1);
    expect(used()).toEqual(Array(20).fill(1));
  });

  it("is repeated in the background 300 s before the token ends", async () => {
    const { clock, client, used, exchanges } = await jwtWorld(3600);
    await client.exchange(REQUEST);
    await clock.advance(3_299_000);
    expect(exchanges()).toBe(1);
    await clock.advance(1000);
    await vi.waitFor(() => expect(exchanges()).toBe(2));
    await client.exchange(REQUEST);
    expect(used()).toEqual([1, 2]);
    // The next refresh is planned from the new token, once.
    await vi.waitFor(() => expect(clock.pending).toBe(1));
    await clock.advance(3_300_000);
    await vi.waitFor(() => expect(exchanges()).toBe(3));
  });

  it("is repeated on demand when 60 s or less are left, as after a machine's sleep", async () => {
    const { clock, client, used, exchanges } = await jwtWorld(3600);
    await client.exchange(REQUEST);
    clock.jumpWall(3_539_000);
    await client.exchange(REQUEST);
    expect(exchanges()).toBe(1);
    clock.jumpWall(1000);
    await Promise.all([client.exchange(REQUEST), client.exchange(REQUEST)]);
    expect(exchanges()).toBe(2);
    expect(used()).toEqual([1, 1, 2, 2]);
  });

  it("fails: the old token is kept, and the next try waits 60 s while it lives", async () => {
    const { server, clock, client, used, exchanges, issue } = await jwtWorld(100);
    await client.exchange(REQUEST);
    server.on(AUTH, { status: 503, json: {} });
    await clock.advance(45_000);
    // 55 s are left: on demand, and it fails.
    await client.exchange(REQUEST);
    expect(exchanges()).toBe(2);
    server.on(AUTH, issue);
    await client.exchange(REQUEST);
    expect(exchanges()).toBe(2);
    expect(used()).toEqual([1, 1, 1]);
    await clock.advance(60_000);
    await vi.waitFor(() => expect(exchanges()).toBe(3));
    await client.exchange(REQUEST);
    expect(used()).toEqual([1, 1, 1, 2]);
  });

  it("tries at once when the old token is past its end", async () => {
    const { server, clock, client, exchanges, used, issue } = await jwtWorld(100);
    await client.exchange(REQUEST);
    server.on(AUTH, { status: 503, json: {} });
    await clock.advance(99_000);
    await vi.waitFor(() => expect(exchanges()).toBe(2));
    await vi.waitFor(() => expect(clock.pending).toBe(1));
    await clock.advance(2000);
    server.on(AUTH, issue);
    await client.exchange(REQUEST);
    expect(exchanges()).toBe(3);
    expect(used()).toEqual([1, 2]);
  });

  it("does not hurry with tokens that live shorter than the margin", async () => {
    const { clock, client, exchanges } = await jwtWorld(8);
    await client.exchange(REQUEST);
    await clock.advance(4900);
    expect(exchanges()).toBe(1);
    await clock.advance(100);
    await vi.waitFor(() => expect(exchanges()).toBe(2));
  });

  it("that fails at first is the caller's error, and is tried again at the next call", async () => {
    const { server, client, used, issue } = await jwtWorld();
    server.on(AUTH, { status: 401, json: { detail: "who are you" } });
    await expect(client.exchange(REQUEST)).rejects.toBeInstanceOf(AuthenticationError);
    await expect(client.exchange(REQUEST)).rejects.toThrow(
      /POST \/api\/v1\/auth\/token answered 401: who are you/,
    );
    server.on(AUTH, issue);
    await client.exchange(REQUEST);
    expect(used()).toEqual([1]);
  });

  it("does not accept an answer without a jwt", async () => {
    const { server, client } = await jwtWorld();
    server.on(AUTH, { json: { token: "x" } });
    await expect(client.exchange(REQUEST)).rejects.toThrow(/the answer had no jwt/);
  });

  it("uses a token whose end cannot be read, and renews it after a minute", async () => {
    const { server, clock, client, exchanges } = await jwtWorld();
    server.on(AUTH, { json: { jwt: "eyJ.not-json.x" } });
    await client.exchange(REQUEST);
    expect(keysSent(server)).toEqual(["eyJ.not-json.x"]);
    await clock.advance(60_000);
    await vi.waitFor(() => expect(exchanges()).toBe(2));
  });

  it("ends with the client", async () => {
    const { clock, client } = await jwtWorld();
    await client.exchange(REQUEST);
    expect(clock.pending).toBe(1);
    await client.close();
    expect(clock.pending).toBe(0);
  });
});

describe("jwtClaims", () => {
  it("reads base64url and non-ASCII text", () => {
    const claims = { email: "jürgen@例え.jp", user_urn: "urn:>>>???" };
    expect(jwtClaims(jwtOf(claims))).toEqual(claims);
  });

  it.each(["", "abc", "a.b.c", "a.e30", `a.${Buffer.from("7").toString("base64")}.c`])(
    "refuses %j",
    (text) => {
      if (text === "a.e30") expect(jwtClaims(text)).toEqual({});
      else expect(() => jwtClaims(text)).toThrow("The token is not a JWT whose claims can be read.");
    },
  );
});
