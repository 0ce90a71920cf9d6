import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import type { Reporter } from "vitest/node";

const source = (path: string) => fileURLToPath(new URL(`./src/${path}`, import.meta.url));

/** Closes the run with one plain line that any machine can read. */
const plainSummary: Reporter = {
  onTestRunEnd(modules, errors) {
    const count = { passed: 0, failed: errors.length, skipped: 0, pending: 0 };
    for (const module of modules) {
      if (module.state() === "failed" && module.children.size === 0) count.failed += 1;
      for (const test of module.children.allTests()) count[test.result().state] += 1;
    }
    console.log(`\n${count.passed} passed, ${count.failed} failed, ${count.skipped} skipped`);
  },
};

export default defineConfig({
  resolve: {
    alias: {
      "#platform": source("transport/platform.node.ts"),
      "#heartbeat": source("session/heartbeat-loop.node.ts"),
    },
  },
  test: {
    include: ["src/**/*.test.ts", "test/**/*.test.ts"],
    exclude: ["test/gpu/**"],
    pool: "forks",
    // Many tests wait rather than work; vitest alone would leave one core of two idle.
    maxWorkers: Math.max(2, availableParallelism() - 1),
    execArgv: ["--expose-gc"],
    reporters: ["default", plainSummary],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    env: { TINKER_TELEMETRY: "0", TINKER_API_KEY: "", TINKER_BASE_URL: "" },
  },
});
