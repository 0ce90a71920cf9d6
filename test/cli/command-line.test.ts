import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { SDK_VERSION } from "../../src/version.js";
import { main, run } from "./command.js";

/** The files of this package that a command line loads, as Node's coverage sees them. */
async function loadedFiles(args: readonly string[]): Promise<string[]> {
  const folder = mkdtempSync(join(tmpdir(), "tinkerts-cli-"));
  try {
    await run(args, { env: { NODE_V8_COVERAGE: folder } });
    const reports = readdirSync(folder).map((file) => readFileSync(join(folder, file), "utf8"));
    return reports
      .flatMap((report) => (JSON.parse(report) as { result: { url: string }[] }).result)
      .map(({ url }) => /\/dist\/(.*)$/.exec(url)?.[1])
      .filter((file) => file !== undefined);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

describe("the command line", () => {
  it("prints its version", async () => {
    const expected = { code: 0, stdout: `tinkerts ${SDK_VERSION}\n`, stderr: "" };
    expect(await run(["version"])).toEqual(expected);
    expect(await run(["--version"])).toEqual(expected);
    const { stdout } = await run(["version", "--json"]);
    expect(JSON.parse(stdout)).toEqual({ version: SDK_VERSION });
  });

  it("shows every command in its help, and a command's options in the command's", async () => {
    const { code, stdout, stderr } = await run(["--help"]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    for (const name of ["quickstart", "serve", "version"])
      expect(stdout).toMatch(new RegExp(`^ {2}${name} `, "m"));
    const ofServe = await run(["serve", "--help"]);
    expect(ofServe.stdout).toMatch(/--data-dir <folder>/);
    expect(await run(["help", "serve"])).toEqual(ofServe);
  });

  it("loads neither commands nor the SDK for its help, and only the command that is used", async () => {
    // The last one says in a kilobyte how modules of the bundle import each other.
    const frame = ["bundle/cli.js", "bundle/command.js", "bundle/base.js", "bundle/rolldown-runtime.js"];
    expect((await loadedFiles(["--help"])).sort()).toEqual(frame.toSorted());
    expect((await loadedFiles(["version"])).sort()).toEqual([...frame, "bundle/version.js"].sort());
  });

  it.each([
    [[], /^Usage: tinkerts/],
    [["srve"], /^error: unknown command 'srve'\n\(Did you mean serve\?\)\n$/],
    [["serve", "--prot", "1"], /^error: unknown option '--prot'\n\(Did you mean --port\?\)\n$/],
    [
      ["serve", "--port", "70000"],
      /^error: .*--port.* an integer from 0 to 65535\. \(see tinkerts serve --help\)\n$/,
    ],
    [["serve", "--model", "=x"], /^error: .*--model.* NAME=FOLDER\. \(see tinkerts serve --help\)\n$/],
    [["version", "please"], /^error: too many arguments for 'version'/],
  ])("ends with 2 and says what is wrong with %j", async (args, message) => {
    const { code, stdout, stderr } = await run(args);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(message);
  });

  it("ends with 1 and one sentence when something fails, and with a stack only when asked", async () => {
    const plain = await run(["serve", "--model", "mine=/nowhere"]);
    expect(plain.code).toBe(1);
    expect(plain.stderr).toMatch(/^error: .*\/nowhere.*\n$/);
    for (const args of [
      ["serve", "-v"],
      ["-v", "serve"],
    ]) {
      const verbose = await run([...args, "--model", "mine=/nowhere"]);
      expect(verbose.code).toBe(1);
      expect(verbose.stderr).toMatch(/\n {4}at /);
    }
  });

  it("takes a reader that went away as no error", () => {
    const pipe = `set -o pipefail; "${process.execPath}" "${main}" --help | true`;
    const { status, stderr } = spawnSync("bash", ["-c", pipe], { encoding: "utf8" });
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  });
});
