import { execFile } from "node:child_process";
import { copyFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { newcomerFolder } from "../support/newcomer.js";
import type { ProtocolServer } from "../support/protocol-server.js";
import { SAMPLED_LOGPROBS, SAMPLED_TOKENS, samplingServer } from "./sampling-server.js";

const run = promisify(execFile);

interface Runtime {
  readonly name: string;
  readonly command: string;
  readonly flags: readonly string[];
  /** What the client says it runs on. */
  readonly reported: string;
}

const RUNTIMES: readonly Runtime[] = [
  { name: "Node", command: process.execPath, flags: [], reported: "node" },
  {
    name: "Node with the neutral build",
    command: process.execPath,
    flags: ["--conditions=browser"],
    reported: "worker",
  },
  { name: "Bun", command: "bun", flags: ["run"], reported: "bun" },
  {
    name: "Deno",
    command: "deno",
    flags: ["run", "--allow-all", "--no-lock", "--node-modules-dir=manual"],
    reported: "deno",
  },
];

async function whyMissing({ command }: Runtime): Promise<string | undefined> {
  try {
    await run(command, ["--version"]);
    return undefined;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "ENOENT" ? `no ${command} on the PATH` : String(error);
  }
}

const candidates = await Promise.all(
  RUNTIMES.map(async (runtime) => ({ ...runtime, skipReason: await whyMissing(runtime) })),
);

describe("the same script samples in", () => {
  const folder = newcomerFolder();
  let server: ProtocolServer;

  beforeAll(() => {
    copyFileSync(fileURLToPath(new URL("sample.mjs", import.meta.url)), join(folder.path, "sample.mjs"));
  });
  afterAll(() => folder.remove());
  beforeEach(async () => {
    server = await samplingServer();
  });
  afterEach(() => server.close());

  for (const { name, command, flags, reported, skipReason } of candidates) {
    if (skipReason !== undefined) console.warn(`${name} is skipped: ${skipReason}`);
    it.skipIf(skipReason !== undefined)(
      skipReason === undefined ? name : `${name} (${skipReason})`,
      async () => {
        const { stdout, stderr } = await run(command, [...flags, "sample.mjs", server.url], {
          cwd: folder.path,
        });
        expect(stderr).toBe("");
        expect(JSON.parse(stdout)).toEqual({
          tokens: SAMPLED_TOKENS,
          logprobs: SAMPLED_LOGPROBS,
          stopReason: "stop",
          refused: "prompt[1]",
        });
        const [sample] = server.requestsTo("POST /api/v1/asample");
        expect(sample?.headers["x-stainless-runtime"]).toBe(reported);
        expect(server.requestsTo("POST /api/v1/sessions/*/finish")).toHaveLength(1);
      },
    );
  }
});
