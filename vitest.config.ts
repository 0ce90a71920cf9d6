import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const source = (path: string) => fileURLToPath(new URL(`./src/${path}`, import.meta.url));

export default defineConfig({
  resolve: {
    alias: {
      "#platform": source("transport/platform.node.ts"),
      "#heartbeat": source("session/heartbeat-loop.node.ts"),
    },
  },
  test: {
    include: ["src/**/*.test.ts", "test/**/*.test.ts"],
    pool: "forks",
    execArgv: ["--expose-gc"],
    testTimeout: 30_000,
    env: { TINKER_TELEMETRY: "0", TINKER_API_KEY: "", TINKER_BASE_URL: "" },
  },
});
