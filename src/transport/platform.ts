import { SDK_VERSION } from "../version.js";
import { connectionsOver } from "./fetch-sender.js";
import type { Platform } from "./platform-types.js";

/** Browsers, workers, Deno, Bun: one `fetch`, whose connections belong to the runtime. */
export const platform: Platform = {
  env(name) {
    const scope = globalThis as { process?: { env?: Record<string, string | undefined> } };
    try {
      return scope.process?.env?.[name];
    } catch {
      // Deno throws when it may not read the environment.
      return undefined;
    }
  },

  userAgentHeaders() {
    const runtime = detectRuntime();
    return {
      "X-Stainless-Lang": "js",
      "X-Stainless-Package-Version": SDK_VERSION,
      "X-Stainless-OS": "Unknown",
      "X-Stainless-Arch": "unknown",
      "X-Stainless-Runtime": runtime.name,
      "X-Stainless-Runtime-Version": runtime.version,
    };
  },

  createConnections: () => connectionsOver((input, init) => globalThis.fetch(input, init)),
};

function detectRuntime(): { name: string; version: string } {
  const scope = globalThis as {
    Deno?: { version?: { deno?: string } };
    Bun?: { version?: string };
    window?: unknown;
  };
  if (scope.Deno !== undefined) return { name: "deno", version: scope.Deno.version?.deno ?? "unknown" };
  if (scope.Bun !== undefined) return { name: "bun", version: scope.Bun.version ?? "unknown" };
  return { name: scope.window === undefined ? "worker" : "browser", version: "unknown" };
}
