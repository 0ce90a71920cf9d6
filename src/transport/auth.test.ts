import { describe, expect, it } from "vitest";
import { TinkerError, ValidationError } from "../errors.js";
import { type CredentialSource, HOSTED_BASE_URL, resolveAuth, StaticKeyAuth } from "./auth.js";
import type { Platform } from "./platform-types.js";

const JWT = "eyJhbGciOiJub25lIn0.e30.x";

interface World {
  env?: Record<string, string>;
  stored?: string;
  prints?: string[];
}

/** A platform with the given environment, stored key and outputs of the credential command. */
function worldOf({ env = {}, stored, prints = [] }: World): Platform & { commands: string[] } {
  const commands: string[] = [];
  return {
    commands,
    env: (name) => env[name],
    userAgentHeaders: () => ({}),
    createConnections: () => {
      throw new Error("not used");
    },
    readStoredCredential: (baseURL) => (baseURL === HOSTED_BASE_URL ? stored : undefined),
    async runCommand(command) {
      commands.push(command);
      return prints[commands.length - 1] ?? "";
    },
  };
}

const resolve = (world: World, apiKey?: string | (() => string | Promise<string>), options = {}) =>
  resolveAuth({ apiKey, baseURL: HOSTED_BASE_URL, platform: worldOf(world), ...options });
const CMD = { TINKER_CREDENTIAL_CMD: "print-key" };

describe("resolveAuth", () => {
  it.each<[string, World, string | undefined, string, CredentialSource]>([
    [
      "the apiKey option",
      { env: { TINKER_API_KEY: "tml-env", ...CMD }, stored: "tml-stored" },
      "tml-option",
      "tml-option",
      "apiKey",
    ],
    [
      "TINKER_API_KEY",
      { env: { TINKER_API_KEY: "tml-env", ...CMD }, stored: "tml-stored" },
      undefined,
      "tml-env",
      "TINKER_API_KEY",
    ],
    [
      "TINKER_API_KEY when the option is empty",
      { env: { TINKER_API_KEY: "tml-env" } },
      "",
      "tml-env",
      "TINKER_API_KEY",
    ],
    [
      "the command",
      { env: CMD, stored: "tml-stored", prints: ["tml-cmd\n"] },
      undefined,
      "tml-cmd",
      "TINKER_CREDENTIAL_CMD",
    ],
    [
      "the command when the key is malformed",
      { env: CMD, prints: ["tml-cmd"] },
      "wrong",
      "tml-cmd",
      "TINKER_CREDENTIAL_CMD",
    ],
    [
      "the stored key",
      { env: { TINKER_API_KEY: "" }, stored: "tml-stored" },
      undefined,
      "tml-stored",
      "stored key",
    ],
    ["a JWT", { env: CMD }, JWT, JWT, "apiKey"],
  ])("takes %s, and says so", async (_name, world, apiKey, expected, source) => {
    const auth = resolve(world, apiKey);
    expect(await auth.token()).toBe(expected);
    expect(auth.source).toBe(source);
  });

  it("refuses a key of another service", () => {
    expect(() => resolve({ stored: "tml-stored" }, "sk-other")).toThrow(ValidationError);
    expect(() => resolve({ stored: "tml-stored" }, "sk-other")).toThrow(/must start with "tml-"/);
    expect(() => resolve({}, 5 as never)).toThrow("apiKey must be a string or a function, got number");
  });

  it("says what to do when there is no credential", () => {
    expect(() => resolve({})).toThrow(/pass the apiKey option, set TINKER_API_KEY/);
  });

  it("sends none to your own server, and accepts any key for it", async () => {
    const baseURL = "http://localhost:8000";
    expect(await resolve({}, undefined, { baseURL }).token()).toBeUndefined();
    expect(await resolve({}, "dummy", { baseURL }).token()).toBe("dummy");
    expect(await resolve({ stored: "tml-stored" }, undefined, { baseURL }).token()).toBeUndefined();
  });

  it("asks a key function every time and before anything else", async () => {
    let calls = 0;
    const auth = resolve({ env: { TINKER_API_KEY: "tml-env", ...CMD } }, async () => `tml-${++calls}`, {
      enforceCommand: true,
    });
    expect([await auth.token(), await auth.token()]).toEqual(["tml-1", "tml-2"]);
  });

  it("does not accept an empty key from a key function", async () => {
    await expect(resolve({}, () => "").token()).rejects.toThrow(/apiKey function must return a key/);
  });

  it("runs the command every time", async () => {
    const platform = worldOf({ env: CMD, prints: ["tml-1", " tml-2 \n"] });
    const auth = resolveAuth({ apiKey: undefined, baseURL: HOSTED_BASE_URL, platform });
    expect([await auth.token(), await auth.token()]).toEqual(["tml-1", "tml-2"]);
    expect(platform.commands).toEqual(["print-key", "print-key"]);
  });

  it("does not accept an empty answer of the command", async () => {
    await expect(resolve({ env: CMD, prints: ["  \n"] }).token()).rejects.toThrow(
      "TINKER_CREDENTIAL_CMD printed no credential.",
    );
  });

  it("enforces the command over a plain key, but not over a JWT", async () => {
    const enforced = { enforceCommand: true };
    expect(await resolve({ env: CMD, prints: ["tml-cmd"] }, "tml-key", enforced).token()).toBe("tml-cmd");
    expect(resolve({}, JWT, enforced)).toBeInstanceOf(StaticKeyAuth);
    expect(() => resolve({}, "tml-key", enforced)).toThrow(TinkerError);
    expect(() => resolve({}, "tml-key", enforced)).toThrow(/requires dynamic credentials/);
  });
});
