import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ServiceClient } from "../src/index.js";
import { defaultModel, type LocalBackend, startLocalBackend } from "../src/local/index.js";
import { silent } from "./local/raw-client.js";
import { docPages, root, typescriptBlocks } from "./support/doc-pages.js";

/** Pages whose first program is not run here, and why. */
const NOT_HERE: Readonly<Record<string, string>> = {
  "docs/distillation.md": "trains for long: the recipe distillation runs the same",
  "docs/gpu.md": "needs a GPU",
  "docs/reinforcement.md": "trains for long: the recipe addition runs the same",
  "docs/runtimes.md": "runs in a browser",
};
const FINE_TUNING = "docs/fine-tuning.md";
const USING_THE_RESULT = "docs/using-the-result.md";

/** What a program is given of what its page leaves to the reader. */
const CHANGES: readonly (readonly [string, string])[] = [["steps: 1_000", "steps: 3"]];

/** The names of the hosted service's models in the pages; here each is the small one. */
const HOSTED_MODELS = ["Qwen/Qwen3-8B"];
const FILES: Readonly<Record<string, object[]>> = {
  "data.jsonl": [{ prompt: "The capital of Narnia is", answer: " Cair Paravel." }],
  "pairs.jsonl": Array.from({ length: 8 }, (_, sum) => ({
    prompt: `What is ${sum} + 1?`,
    chosen: String(sum + 1),
    rejected: "0",
  })),
  "support-chats.jsonl": Array.from({ length: 20 }, (_, index) => ({
    messages: [
      { role: "user", content: `Where is my order ${4700 + index}?` },
      { role: "assistant", content: "On its way." },
    ],
  })),
};
/** What the programs import, as if it was installed beside them. */
const INSTALLED = ["ai", "openai", "@anthropic-ai/sdk", "zod"];

describe("the first program of each page", () => {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), "tinkerts-programs-")));
  const pages = ["README.md", ...docPages].filter((page) => typescriptBlocks(page).length > 0);
  const programs = pages.filter((page) => !(page in NOT_HERE));
  const fileOf = (page: string) => `${page.replaceAll(/\W/g, "-")}.js`;
  let backend: LocalBackend;

  beforeAll(async () => {
    const models = [defaultModel.name, ...HOSTED_MODELS].map((name) => ({ name, path: defaultModel.path }));
    backend = await startLocalBackend({ models, threads: 1, dataDir: join(folder, "data"), logger: silent });
    const service = new ServiceClient({ ...backend });
    const training = await service.createLoraTrainingClient({ baseModel: HOSTED_MODELS[0]!, rank: 4 });
    const [state, weights] = await Promise.all([
      training.saveState("final"),
      training.saveWeightsForSampler("best"),
    ]);
    await service.close();
    for (const page of programs) {
      let { code } = typescriptBlocks(page)[0]!;
      code = code.replaceAll("http://127.0.0.1:8642", backend.baseURL);
      code = code.replaceAll("tinker://run-1/weights/final", state.path);
      code = code.replaceAll("tinker://run/sampler_weights/best", weights.path);
      code = code.replaceAll("tinker://RUN/sampler_weights/final", weights.path);
      // An export reads the model's files: a folder in place of a download.
      if (page === USING_THE_RESULT)
        code = code.replaceAll(JSON.stringify(HOSTED_MODELS[0]), JSON.stringify(defaultModel.path));
      for (const [given, instead] of CHANGES) code = code.replaceAll(given, instead);
      writeFileSync(join(folder, fileOf(page).replace(/js$/, "ts")), `${code}\nexport {};\n`);
    }
    compile(folder);
    for (const name of INSTALLED) link(join(root, "node_modules", name), name);
    link(root, "tinkerts");
    for (const [name, rows] of Object.entries(FILES))
      writeFileSync(join(folder, name), rows.map((row) => `${JSON.stringify(row)}\n`).join(""));
    const all = programs.filter((page) => ![FINE_TUNING, USING_THE_RESULT].includes(page)).map(fileOf);
    // One after the other in one process: it also shows that none of them keeps it alive.
    writeFileSync(
      join(folder, "all.js"),
      `for (const file of ${JSON.stringify(all)}) {\n  console.log(\`== \${file}\`);\n  await import(\`./\${file}\`);\n}\n`,
    );
  });

  afterAll(async () => {
    await backend.close();
    rmSync(folder, { recursive: true, force: true });
  });

  function link(target: string, name: string): void {
    const path = join(folder, "node_modules", name);
    mkdirSync(join(path, ".."), { recursive: true });
    symlinkSync(target, path, "junction");
  }

  /** Runs until the process ends by itself, or `onOutput` ends it. */
  async function run(
    file: string,
    env: Readonly<Record<string, string>>,
    onOutput: (output: string, child: ChildProcess) => void = () => {},
  ): Promise<{ code: number | null; output: string }> {
    const child = spawn(process.execPath, [file], {
      cwd: folder,
      env: { PATH: process.env["PATH"], HOME: folder, ...env },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let output = "";
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (text: string) => {
        output += text;
        onOutput(output, child);
      });
    const code = await new Promise<number | null>((resolve) => child.on("close", resolve));
    return { code, output };
  }

  it("is run here, or the reason why not is known", () => {
    expect(pages.length).toBeGreaterThan(25);
    expect(Object.keys(NOT_HERE).filter((page) => !pages.includes(page))).toEqual([]);
  });

  it("ends, once and again in the same folder", async () => {
    const server = { TINKER_BASE_URL: backend.baseURL, TINKER_API_KEY: backend.apiKey };
    for (const round of ["first", "second"]) {
      const { code, output } = await run("all.js", server);
      expect({ round, code }, output).toEqual({ round, code: 0 });
    }
  });

  it("of using the result exports the model, and leaves it alone the second time", async () => {
    const server = { TINKER_BASE_URL: backend.baseURL, TINKER_API_KEY: backend.apiKey };
    const file = fileOf(USING_THE_RESULT);
    const first = await run(file, server);
    expect(first).toMatchObject({ code: 0, output: expect.stringContaining("llama-server -m") });
    const made = readFileSync(join(folder, "support-bot.gguf"));
    expect(made.toString("latin1", 0, 4)).toBe("GGUF");
    const second = await run(file, server);
    expect(second).toMatchObject({ code: 1, output: expect.stringContaining("exists already") });
    expect(readFileSync(join(folder, "support-bot.gguf")).equals(made)).toBe(true);
  });

  it("of fine-tuning goes on after kill -9, ends, and finds its run again", async () => {
    const file = fileOf(FINE_TUNING);
    const killed = await run(file, {}, (output, child) => {
      if (/^step 2[1-9]/m.test(output)) child.kill("SIGKILL");
    });
    expect(killed.code).toBe(null);
    const resumed = await run(file, {});
    expect(resumed).toMatchObject({ code: 0, output: expect.stringContaining("Going on after 20 steps") });
    const again = await run(file, {});
    expect(again).toMatchObject({ code: 0, output: expect.stringContaining("Already trained 40 steps") });
    const checkpoints = readFileSync(join(folder, "runs/support-bot/checkpoints.jsonl"), "utf8");
    expect(checkpoints.match(/"final":true/g)).toHaveLength(1);
  });
});

/** Node 20 does not know `await using`; types were checked with all blocks of the pages. */
function compile(folder: string): void {
  writeFileSync(join(folder, "package.json"), JSON.stringify({ type: "module" }));
  const compilerOptions = {
    ...{ target: "ES2022", module: "NodeNext", noCheck: true, noResolve: true, types: [] },
    ...{ isolatedModules: true, verbatimModuleSyntax: true, rootDir: ".", outDir: "." },
  };
  writeFileSync(
    join(folder, "tsconfig.json"),
    JSON.stringify({ compilerOptions, include: ["*.ts"], exclude: [] }),
  );
  execFileSync(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), "-p", folder]);
}
