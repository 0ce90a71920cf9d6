import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { fieldNames } from "../src/wire/index.js";

const source = fileURLToPath(new URL("../src", import.meta.url));

/** From top to bottom: a module, or a part of one, may import from those below it. */
const MODULES = [
  "cli",
  "dashboard/index.ts",
  "dashboard/page",
  "dashboard/server",
  "dashboard/runs",
  "dashboard/api.ts",
  "ai-sdk",
  "cookbook/index.ts",
  "cookbook/sweeps",
  "cookbook/distillation",
  "cookbook/preferences",
  "cookbook/reinforcement",
  "cookbook/supervised",
  "cookbook/runs",
  "cookbook/agents",
  "cookbook/rollouts",
  "cookbook/environments",
  "cookbook/evaluation",
  "cookbook/costs",
  "cookbook/data",
  "cookbook/chat",
  "gateway",
  "local/index.ts",
  "local/start.ts",
  "local/options.ts",
  "local/server/index.ts",
  "local/server/server.ts",
  "local/server/chat",
  "local/server/admin",
  "local/server/training",
  "local/server/sampling",
  "local/server/checkpoints",
  "local/server/sessions",
  "local/server/futures",
  "local/server/access",
  "local/server/activity.ts",
  "local/server/http",
  "local/socket.ts",
  "local/work-under-way.ts",
  "local/model-source.ts",
  "local/default-model.ts",
  "local/store",
  "local/engine",
  "local/engine/kernels",
  "local/tokenizer.ts",
  "chat-api",
  "renderers",
  "clients",
  "training",
  "checkpoints/index.ts",
  "checkpoints/merge.node.ts",
  "checkpoints/export",
  "checkpoints/gguf",
  "checkpoints/export/target.ts",
  "checkpoints/export/options.ts",
  "checkpoints/hub-model.node.ts",
  "checkpoints/hub-snapshot.node.ts",
  "tokenizers",
  "checkpoints",
  "futures",
  "session",
  "transport",
  "wire",
];
/** Names the parts of a server, as types, for all of them. */
const TYPES_OF_PARTS = "local/server/services.ts";
const NODE_ONLY = new Set(["cli", "dashboard", "gateway", "local"]);

/** Files of other modules that may call `process.getBuiltinModule`. */
const NODE_BUILTINS = /(\.node|\/node-builtins|-thread)\.ts$/;

/** Files whose snake_case names belong to another format than the protocol. */
const OTHER_FORMATS: Readonly<Record<string, string>> = {
  "chat-api/anthropic-messages.ts": "Anthropic's answers",
  "chat-api/anthropic-request.ts": "Anthropic's requests",
  "chat-api/chat-completions.ts": "OpenAI's requests",
  "chat-api/chat-request.ts": "OpenAI's requests",
  "chat-api/completions.ts": "OpenAI's requests",
  "chat-api/openai-request.ts": "OpenAI's requests",
  "chat-api/responses/request.ts": "OpenAI's requests",
  "chat-api/responses/routes.ts": "OpenAI's requests",
  "checkpoints/export/ollama.node.ts": "Hugging Face's and Ollama's settings of sampling",
  "checkpoints/gguf/gguf-adapter.node.ts": "GGUF's metadata",
  "clients/observers.ts": "OpenTelemetry's names of attributes",
  "checkpoints/lora.ts": "PEFT's tensor names (base_model.model...)",
  "checkpoints/model-card.ts": "Hugging Face's model card",
  "cookbook/environments/environment.ts": "the Python cookbook's reasons for the end of an episode",
  "cookbook/environments/message-environment.ts": "the Python cookbook's reasons for the end of an episode",
  "cookbook/reinforcement/group-source.ts": "the Python cookbook's config.json",
  "cookbook/reinforcement/settings.ts": "the Python cookbook's config.json",
  "cookbook/rollouts/episode.ts": "the Python cookbook's reasons for the end of an episode",
  "cookbook/rollouts/group-rewards.ts": "the Python cookbook's reasons for the end of an episode",
  "cookbook/runs/options.ts": "the Python cookbook's config.json",
  "cookbook/supervised/cross-entropy-step.ts": "the Python cookbook's names of metrics",
  "cookbook/runs/warnings.ts": "the Python cookbook's names of metrics",
  "dashboard/page/curve-data.ts": "the Python cookbook's names of metrics",
  "gateway/recording/capture-record.ts": "the Python cookbook's capture records",
  "gateway/recording/export-rows.ts": "Anthropic's and OpenAI's reasons for the end of an answer",
  "local/engine/model/lora.ts": "PEFT's tensor names (base_model.model...)",
};

/** Written by a generator, or programs that users copy. */
const COPIED = /^(?:wire\/gen|cli\/recipes|cli\/quickstart)\//;

const files = readdirSync(source, { recursive: true, encoding: "utf8" })
  .filter((file) => /\.tsx?$/.test(file) && !file.endsWith(".test.ts") && !file.includes("/wasm/"))
  .map((file) => ({ file, module: file.includes("/") ? file.split("/")[0]! : undefined }));

const read = (file: string) => readFileSync(join(source, file), "utf8");

function importsOf(file: string): string[] {
  return [
    ...read(file).matchAll(
      /(?:^|\n)\s*(?:import|export)[^;"']*?from\s*["']([^"']+)["']|import\(\s*["']([^"']+)["']\s*\)/g,
    ),
  ].map((match) => match[1] ?? match[2]!);
}

/** The place of a file in `MODULES`, by the longest name that it begins with; -1 for the files of no module. */
function placeOf(file: string): number {
  let found = -1;
  for (const [index, module] of MODULES.entries()) {
    const isIn = file === module || file.startsWith(`${module}/`);
    if (isIn && (found === -1 || module.length > MODULES[found]!.length)) found = index;
  }
  return found;
}

describe("the modules of src", () => {
  it("are all known", () => {
    const unknown = files.filter(
      ({ file, module }) => module !== undefined && file !== TYPES_OF_PARTS && placeOf(file) === -1,
    );
    expect(unknown).toEqual([]);
  });

  it("import only from the modules below them", () => {
    const upward: string[] = [];
    for (const { file, module } of files) {
      if (module === undefined) continue;
      for (const specifier of importsOf(file)) {
        if (!specifier.startsWith(".")) continue;
        const target = relative(source, resolve(source, dirname(file), specifier)).replace(/\.js$/, ".ts");
        // errors.ts and its like, which belong to all.
        const isShared = !target.includes("/") || target === TYPES_OF_PARTS;
        if (!isShared && file !== TYPES_OF_PARTS && placeOf(target) < placeOf(file))
          upward.push(`${file} -> ${target}`);
      }
    }
    expect(upward).toEqual([]);
  });

  it("use Node only in files named for it", () => {
    const neutral = files.filter(({ module }) => !NODE_ONLY.has(module ?? ""));
    const imported = neutral
      .filter(({ file }) => !file.endsWith(".node.ts"))
      .flatMap(({ file }) =>
        importsOf(file)
          .filter((specifier) => specifier.startsWith("node:") || specifier === "undici")
          .map((specifier) => `${file} -> ${specifier}`),
      );
    const asked = neutral
      .filter(({ file }) => !NODE_BUILTINS.test(file) && /\bgetBuiltinModule\b/.test(read(file)))
      .map(({ file }) => `${file} -> getBuiltinModule`);
    expect([...imported, ...asked]).toEqual([]);
  });

  it("keep Node out of the engine, which also runs in a page, and out of all that it imports", () => {
    const wrong: string[] = [];
    const isNode = (specifier: string) =>
      /^(node:|undici$|#)/.test(specifier) || specifier.endsWith(".node.ts");
    const engine = files.filter(({ file }) => file.startsWith("local/engine/") && !file.endsWith(".node.ts"));
    const reached = new Set(engine.map(({ file }) => file));
    for (const file of reached) {
      for (const specifier of importsOf(file)) {
        const isRelative = specifier.startsWith(".");
        const target = isRelative
          ? relative(source, resolve(source, dirname(file), specifier)).replace(/\.js$/, ".ts")
          : specifier;
        if (isNode(target)) wrong.push(`${file} -> ${target}`);
        else if (isRelative) reached.add(target);
      }
    }
    expect(wrong).toEqual([]);
    expect(reached.size).toBeGreaterThan(60);
  });

  it("name the fields of the protocol in camelCase; wire/ alone, and what other formats own, in snake_case", () => {
    const names = fieldNames();
    const found = new Map(
      files
        .filter(({ module }) => module !== "wire")
        .map(({ file }) => [file, snakeCaseIn(read(file)).filter((word) => names.has(word))] as const)
        .filter(([, words]) => words.length > 0),
    );
    expect([...found].filter(([file]) => !Object.hasOwn(OTHER_FORMATS, file))).toEqual([]);
    expect(Object.keys(OTHER_FORMATS).filter((file) => !found.has(file))).toEqual([]);
  });

  it("give a name to one thing", () => {
    const places = new Map<string, string[]>();
    for (const { file } of files.filter(
      ({ file }) => !file.startsWith("cli/commands/") && !COPIED.test(file),
    )) {
      const declared = read(file).matchAll(
        /^export (?:abstract |async )*(?:class|interface|type|const|let|function\*?) +([\w$]+)/gm,
      );
      // Two forms of one module, for Node and without it, and overloads are one place.
      const place = file.replace(".node.ts", ".ts");
      for (const [, name] of declared) places.set(name!, [...(places.get(name!) ?? []), place]);
    }
    const twice = [...places].filter(([, of]) => new Set(of).size > 1);
    expect(twice).toEqual([]);
  });

  it("each begin with an index that says what they are for", () => {
    const indexes = [
      ...new Set(files.map(({ module }) => module).filter((module) => module !== undefined)),
    ].map((module) => ({
      module,
      contract: /^\/\*\*\s+\S.*\.\s*\*\//s.test(read(join(module, "index.ts"))),
    }));
    expect(indexes.filter(({ contract }) => !contract)).toEqual([]);
  });
});

function snakeCaseIn(text: string): string[] {
  const code = text.replace(/\/\*[\s\S]*?\*\/|(^|\s)\/\/.*$/gm, "");
  return [...code.matchAll(/\b[a-z]+(?:_[a-z0-9]+)+\b/g)].map(([word]) => word);
}
