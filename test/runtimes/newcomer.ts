import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { SampleResponse } from "../../src/index.js";
import { encodeSampleResponse } from "../../src/wire/protobuf.js";
import { type ProtocolServer, startProtocolServer } from "../support/protocol-server.js";

/** The package's own folder; the tests of runtimes use what ships, so it must have been built. */
export const packageFolder = fileURLToPath(new URL("../..", import.meta.url));

export function requireBuild(): void {
  if (existsSync(join(packageFolder, "dist/bundle/index.js"))) return;
  throw new Error("dist/ is missing: these tests use the built package. Run `npm run build` first.");
}

/**
 * An empty folder in which the built SDK is installed as `tinkerts`. Copied, not linked: Bun reads the
 * tsconfig.json next to a module, and the package does not carry one.
 */
export function newcomerFolder(): { path: string; remove: () => void } {
  requireBuild();
  const path = realpathSync(mkdtempSync(join(tmpdir(), "tinkerts-runtimes-")));
  const installed = join(path, "node_modules/tinkerts");
  cpSync(join(packageFolder, "dist/bundle"), join(installed, "dist/bundle"), { recursive: true });
  cpSync(join(packageFolder, "package.json"), join(installed, "package.json"));
  const { dependencies } = JSON.parse(readFileSync(join(packageFolder, "package.json"), "utf8"));
  for (const dependency of Object.keys(dependencies)) {
    const link = join(path, "node_modules", dependency);
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(join(packageFolder, "node_modules", dependency), link, "dir");
  }
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}

export const SAMPLED_TOKENS = [101, 7, 65_535];
export const SAMPLED_LOGPROBS = [-0.5, -0.25, -0.125];

const RESPONSE: SampleResponse = {
  sequences: [
    {
      stopReason: "stop",
      sequenceId: null,
      tokens: Int32Array.from(SAMPLED_TOKENS),
      logprobs: Float32Array.from(SAMPLED_LOGPROBS),
      topkLogprobs: null,
    },
  ],
  promptLogprobs: null,
  topkPromptLogprobs: null,
  targetPromptLogprobs: null,
  promptCacheHitTokens: 0,
  promptAltTokens: null,
};

/** A Tinker server that answers each sample with the same tokens, after one "try again". */
export async function samplingServer(): Promise<ProtocolServer> {
  const server = await startProtocolServer({ cors: true });
  server.accept("POST /api/v1/asample", [
    { json: { type: "try_again", queue_state: "active" } },
    { bytes: encodeSampleResponse(RESPONSE) },
  ]);
  return server;
}
