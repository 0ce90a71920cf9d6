import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { defaultModel, type LocalBackend } from "../../src/local/index.js";
import { scripted } from "./openai-server.js";
import type { ScriptedEngine } from "./scripted-engine.js";

const root = fileURLToPath(new URL("../..", import.meta.url));
const page = readFileSync(join(root, "docs/openai-api.md"), "utf8");
const blocks = [...page.matchAll(/^## (.+?)\n(?:(?!^## )[\s\S])*?^```ts\n([\s\S]*?)^```$/gm)].map(
  ([, heading, code]) => ({ heading: heading!, code: code! }),
);

describe("the code in docs/openai-api.md", () => {
  let backend: LocalBackend;
  let engine: ScriptedEngine;
  let folder: string;
  beforeAll(async () => {
    ({ backend, engine } = await scripted(defaultModel.name, { listen: true }));
    // Within the package, so that its imports are found.
    folder = mkdtempSync(join(root, "node_modules/.openai-docs-"));
  });
  afterAll(async () => {
    rmSync(folder, { recursive: true });
    await backend.close();
  });

  it("is for each client", () => {
    expect(blocks.map(({ heading }) => heading)).toEqual([
      "The openai package",
      "The Responses API",
      "The AI SDK",
      "LangChain",
      "Tools",
    ]);
  });

  it.each(blocks)("runs: $heading", async ({ heading, code }) => {
    engine.answers = heading === "Tools" ? ['{"a": 2}}\n</tool_call>'] : ["Seven.", "Seven."];
    const file = join(folder, `${heading.replaceAll(" ", "-")}.mjs`);
    writeFileSync(file, code.replaceAll("!", "").replaceAll("http://127.0.0.1:8642", backend.baseURL));
    const said = await new Promise<string>((resolve, reject) => {
      let output = "";
      const child = spawn(process.execPath, [file], { stdio: ["ignore", "pipe", "pipe"] });
      for (const stream of [child.stdout, child.stderr])
        stream.on("data", (chunk: Buffer) => {
          output += String(chunk);
        });
      child.on("exit", (status) => (status === 0 ? resolve(output) : reject(new Error(output))));
    });
    expect(said).toContain(heading === "Tools" ? `arguments: '{"a": 2}'` : "Seven.");
  });
});
