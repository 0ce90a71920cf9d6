import { TinkerError } from "../errors.js";
import { SDK_VERSION } from "../version.js";
import { ConnectionPools } from "./connection-pools.node.js";
import { connectionsOver } from "./fetch-sender.js";
import type { Platform } from "./platform-types.js";
import { readStoredCredentials, type StoredKeys, storedKeyId } from "./stored-credentials.node.js";

const OS_NAMES: Readonly<Record<string, string>> = {
  darwin: "MacOS",
  win32: "Windows",
  linux: "Linux",
  freebsd: "FreeBSD",
  openbsd: "OpenBSD",
  android: "Android",
};

const ARCHITECTURES: Readonly<Record<string, string>> = {
  ia32: "x32",
  x64: "x64",
  arm: "arm",
  arm64: "arm64",
};

const COMMAND_TIMEOUT_MS = 60_000;

/** The platform in Node. */
export const platform: Platform = {
  env: (name) => process.env[name],

  userAgentHeaders: () => ({
    "User-Agent": `tinkerts/${SDK_VERSION}`,
    "X-Stainless-Lang": "js",
    "X-Stainless-Package-Version": SDK_VERSION,
    "X-Stainless-OS": OS_NAMES[process.platform] ?? `Other:${process.platform}`,
    "X-Stainless-Arch": ARCHITECTURES[process.arch] ?? `other:${process.arch}`,
    "X-Stainless-Runtime": foreignRuntime() ?? "node",
    "X-Stainless-Runtime-Version": process.version,
  }),

  // Bun and Deno answer to Node's name, but their connections are their own.
  createConnections: () => (foreignRuntime() === undefined ? new ConnectionPools() : connectionsOver(fetch)),

  async runCommand(command) {
    const { exec } = await import("node:child_process");
    return new Promise((resolve, reject) => {
      exec(command, { timeout: COMMAND_TIMEOUT_MS, windowsHide: true }, (error, stdout) => {
        // A command that printed a credential and then failed is taken at its word, as the official SDK does.
        if (error === null || stdout.trim() !== "") resolve(stdout);
        else
          reject(
            new TinkerError(
              `TINKER_CREDENTIAL_CMD failed with ${error.signal ?? `exit code ${error.code}`}.`,
            ),
          );
      });
    });
  },

  readStoredCredential(baseURL) {
    let stored: StoredKeys | null;
    try {
      stored = readStoredCredentials() as StoredKeys | null;
    } catch (error) {
      if (error instanceof TinkerError) throw error;
      return undefined;
    }
    const keyId = storedKeyId(stored ?? {}, baseURL);
    const key = keyId === undefined ? undefined : stored?.keys?.[keyId]?.key;
    return typeof key === "string" && key !== "" ? key : undefined;
  },

  ...zstd(),
};

function foreignRuntime(): "bun" | "deno" | undefined {
  if (process.versions["bun"] !== undefined) return "bun";
  return "Deno" in globalThis ? "deno" : undefined;
}

/** node:zlib has zstd from Node 22.15 on, and the types of Node 20 do not know it. */
function zstd(): Pick<Platform, "zstdCompress"> {
  if (process.versions["zstd"] === undefined) return {};
  return {
    async zstdCompress(bytes) {
      const zlib: object = await import("node:zlib");
      const compress = Reflect.get(zlib, "zstdCompress") as ZstdCompress;
      return new Promise((resolve, reject) => {
        compress(bytes, (error, compressed) => (error === null ? resolve(compressed) : reject(error)));
      });
    },
  };
}

type ZstdCompress = (
  bytes: Uint8Array,
  callback: (error: Error | null, compressed: Uint8Array) => void,
) => void;
