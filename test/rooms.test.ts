import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { fieldNames } from "../src/wire/index.js";

const source = fileURLToPath(new URL("../src", import.meta.url));

/** From top to bottom: a room, or a part of one, may import from those below it. */
const ROOMS = [
  "cli",
  "dashboard/index.ts",
  "dashboard/page",
  "dashboard/server",
  "dashboard/runs",
  "dashboard/api.ts",
  "ai-sdk",
  "cookbook/index.ts",
  "cookbook/distillation",
  "cookbook/preferences",
  "cookbook/reinforcement",
  "cookbook/supervised",
  "cookbook/runs",
  "cookbook/rollouts",
  "cookbook/environments",
  "cookbook/evaluation",
  "cookbook/data",
  "cookbook/chat",
  "local/index.ts",
  "local/start.ts",
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
  "local/model-source.ts",
  "local/hub-model.ts",
  "local/default-model.ts",
  "local/store",
  "local/engine",
  "local/engine/kernels",
  "local/tokenizer.ts",
  "renderers",
  "clients",
  "training",
  "tokenizers",
  "checkpoints",
  "futures",
  "session",
  "transport",
  "wire",
];
const NODE_ROOMS = new Set(["cli", "dashboard", "local"]);

/** Where `process.getBuiltinModule` may stand in a room that also runs elsewhere: the name says that it is for Node. */
const NODE_BUILTINS = /(\.node|\/node-builtins|-thread)\.ts$/;

/** Files whose snake_case names belong to another format than the protocol. */
const OTHER_FORMATS: Readonly<Record<string, string>> = {
  "checkpoints/lora.ts": "PEFT's tensor names (base_model.model...)",
  "checkpoints/model-card.ts": "Hugging Face's model card",
  "cookbook/environments/environment.ts": "the Python cookbook's reasons for the end of an episode",
  "cookbook/environments/message-environment.ts": "the Python cookbook's reasons for the end of an episode",
  "cookbook/preferences/dpo-training.ts": "the Python cookbook's names of metrics",
  "cookbook/reinforcement/settings.ts": "the Python cookbook's config.json",
  "cookbook/rollouts/episode.ts": "the Python cookbook's reasons for the end of an episode",
  "cookbook/rollouts/group-rewards.ts": "the Python cookbook's reasons for the end of an episode",
  "cookbook/runs/settings.ts": "the Python cookbook's config.json",
  "cookbook/supervised/cross-entropy-step.ts": "the Python cookbook's names of metrics",
  "dashboard/page/curve-data.ts": "the Python cookbook's names of metrics",
  "local/engine/model/lora.ts": "PEFT's tensor names (base_model.model...)",
  "local/server/chat/anthropic-messages.ts": "Anthropic's answers",
  "local/server/chat/anthropic-request.ts": "Anthropic's requests",
  "local/server/chat/chat-completions.ts": "OpenAI's requests",
  "local/server/chat/chat-request.ts": "OpenAI's requests",
  "local/server/chat/completions.ts": "OpenAI's requests",
  "local/server/chat/openai-request.ts": "OpenAI's requests",
  "local/server/chat/sample-work.ts": "OpenAI's requests",
};

const files = readdirSync(source, { recursive: true, encoding: "utf8" })
  .filter((file) => /\.tsx?$/.test(file) && !file.endsWith(".test.ts") && !file.includes("/wasm/"))
  .map((file) => ({ file, room: file.includes("/") ? file.split("/")[0]! : undefined }));

const read = (file: string) => readFileSync(join(source, file), "utf8");

function importsOf(file: string): string[] {
  return [
    ...read(file).matchAll(
      /(?:^|\n)\s*(?:import|export)[^;"']*?from\s*["']([^"']+)["']|import\(\s*["']([^"']+)["']\s*\)/g,
    ),
  ].map((match) => match[1] ?? match[2]!);
}

/** The place of a file in `ROOMS`, by the longest name that it begins with; -1 for the files above all rooms. */
function floorOf(file: string): number {
  let found = -1;
  for (const [index, room] of ROOMS.entries()) {
    const isIn = file === room || file.startsWith(`${room}/`);
    if (isIn && (found === -1 || room.length > ROOMS[found]!.length)) found = index;
  }
  return found;
}

describe("the rooms of the house", () => {
  it("are all known", () => {
    const unknown = files.filter(({ file, room }) => room !== undefined && floorOf(file) === -1);
    expect(unknown).toEqual([]);
  });

  it("import only from the rooms below them", () => {
    const upward: string[] = [];
    for (const { file, room } of files) {
      if (room === undefined) continue;
      for (const specifier of importsOf(file)) {
        if (!specifier.startsWith(".")) continue;
        const target = relative(source, resolve(source, dirname(file), specifier)).replace(/\.js$/, ".ts");
        // errors.ts and its like, which belong to all.
        const isShared = !target.includes("/");
        if (!isShared && floorOf(target) < floorOf(file)) upward.push(`${file} -> ${target}`);
      }
    }
    expect(upward).toEqual([]);
  });

  it("use Node only in files named for it", () => {
    const neutral = files.filter(({ room }) => !NODE_ROOMS.has(room ?? ""));
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
        .filter(({ room }) => room !== "wire")
        .map(({ file }) => [file, snakeCaseIn(read(file)).filter((word) => names.has(word))] as const)
        .filter(([, words]) => words.length > 0),
    );
    expect([...found].filter(([file]) => !Object.hasOwn(OTHER_FORMATS, file))).toEqual([]);
    expect(Object.keys(OTHER_FORMATS).filter((file) => !found.has(file))).toEqual([]);
  });

  it("each begin with an index that says what they are for", () => {
    const indexes = [...new Set(files.map(({ room }) => room).filter((room) => room !== undefined))].map(
      (room) => ({ room, contract: /^\/\*\*\s+\S.*\.\s*\*\//s.test(read(join(room, "index.ts"))) }),
    );
    expect(indexes.filter(({ contract }) => !contract)).toEqual([]);
  });
});

function snakeCaseIn(text: string): string[] {
  const code = text.replace(/\/\*[\s\S]*?\*\/|(^|\s)\/\/.*$/gm, "");
  return [...code.matchAll(/\b[a-z]+(?:_[a-z0-9]+)+\b/g)].map(([word]) => word);
}
