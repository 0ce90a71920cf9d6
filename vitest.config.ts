import { readdirSync, readFileSync } from "node:fs";
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
      // A file or a group of tests that broke before it had any.
      for (const part of [module, ...module.children.allSuites()]) count.failed += part.errors().length;
      for (const test of module.children.allTests()) count[test.result().state] += 1;
    }
    console.log(`\n${count.passed} passed, ${count.failed} failed, ${count.skipped} skipped`);
  },
};

/** These change globals, or count what the whole process has open, so each gets a process of its own. */
const ALONE = [
  "src/session/heartbeat-loop.node.test.ts",
  "src/transport/clock.test.ts",
  "test/engine/lasting-engine.test.ts",
  "test/local/stream-sdk.test.ts",
  "test/transport/connections.test.ts",
  "test/transport/web-platform.test.ts",
];

/** Tests of `--mode long`: whole files, and those that have more cases there. */
const longTests = () =>
  ["src", "test"].flatMap((top) =>
    readdirSync(top, { recursive: true, encoding: "utf8" })
      .map((file) => `${top}/${file}`)
      .filter((file) => file.endsWith(".test.ts"))
      .filter(
        (file) => file.endsWith(".long.test.ts") || readFileSync(file, "utf8").includes("support/long.js"),
      ),
  );

/** Others share a process, so that the sources are loaded once for many files. */
const projectsOf = (mode: string) => {
  const project = (name: string, test: object) => ({ extends: true as const, test: { name, ...test } });
  // A project does not see the mode, so what depends on it is said here.
  if (mode === "long") return [project("long", { include: longTests(), env: { TINKERTS_TESTS: "long" } })];
  const exclude = ["test/gpu/**", "**/*.long.test.ts"];
  return [
    project("together", {
      include: ["src/**/*.test.ts", "test/**/*.test.ts"],
      exclude: [...exclude, ...ALONE],
      isolate: false,
    }),
    project("alone", { include: ALONE, exclude }),
  ];
};

export default defineConfig(({ mode }) => ({
  resolve: {
    alias: {
      "#platform": source("transport/platform.node.ts"),
      "#heartbeat": source("session/heartbeat-loop.node.ts"),
    },
  },
  test: {
    projects: projectsOf(mode),
    setupFiles: ["test/support/patience.ts"],
    expect: { poll: { timeout: 120_000 } },
    pool: "forks",
    // Many tests wait rather than work; vitest alone would leave one core of two idle.
    maxWorkers: Math.max(2, availableParallelism() - 1),
    execArgv: ["--expose-gc"],
    reporters: ["default", plainSummary],
    // On a busy machine all takes longer: only what never ends fails.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    env: { TINKER_TELEMETRY: "0", TINKER_API_KEY: "", TINKER_BASE_URL: "" },
  },
}));
