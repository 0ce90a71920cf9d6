import { readFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { TinkerError } from "../../errors.js";
import { syncFolder, writeFileAtomic } from "../../files.node.js";
import { compileChatTemplate } from "../../tokenizers/chat-template.js";
import { isRecord } from "../../wire/index.js";
import { prepareGgufModel } from "../gguf/gguf-model.node.js";
import { goTemplate } from "../gguf/go-template.js";
import type { TokenizerMetadata } from "../gguf/tokenizer-metadata.node.js";
import { shellWord } from "../shell-word.js";
import type { ExportTarget } from "./target.js";

const MODEL_FILE = "model.gguf";
/** Ollama's names for settings of `generation_config.json`. */
const PARAMETERS: Readonly<Record<string, string>> = {
  temperature: "temperature",
  top_k: "top_k",
  top_p: "top_p",
  min_p: "min_p",
  repetition_penalty: "repeat_penalty",
};
/** The date for templates that write one: what is written stays in the file. */
const TEMPLATE_DATE = new Date(2024, 6, 26);

/** A folder with a GGUF file and the `Modelfile` that Ollama makes a model from. */
export const OLLAMA_TARGET: ExportTarget = {
  needsAdapter: false,
  async prepare(input) {
    const { system } = input.options;
    if (system?.includes('"""')) {
      throw new TinkerError('system: a Modelfile cannot hold a system prompt with """ in it.');
    }
    const model = await prepareGgufModel(input, MODEL_FILE);
    const text = await modelfile(input.baseFolder, model.tokenizer, system);
    const name = basename(input.output).toLowerCase();
    return {
      bytes: model.bytes + text.length,
      file: undefined,
      commands: [
        `ollama create ${shellWord(name)} -f ${shellWord(join(input.output, "Modelfile"))}`,
        `ollama run ${shellWord(name)}`,
      ],
      close: model.close,
      async write(work) {
        await model.write(work);
        await writeFileAtomic(join(work.folder, "Modelfile"), text);
        await syncFolder(work.folder);
      },
    };
  },
};

async function modelfile(
  baseFolder: string,
  { chatTemplate, stops, settings }: TokenizerMetadata,
  system: string | undefined,
): Promise<string> {
  const lines = [`FROM ./${MODEL_FILE}`];
  const template = chatTemplate && (await templateFor(chatTemplate, settings));
  if (template) lines.push(`TEMPLATE """${template}"""`);
  else lines.push("# No TEMPLATE: Ollama takes the one in the model's file, if it knows it.");
  if (system !== undefined) lines.push(`SYSTEM """${system}"""`);
  for (const stop of stops) lines.push(`PARAMETER stop ${JSON.stringify(stop)}`);
  for (const [name, value] of Object.entries(await generationSettings(baseFolder))) {
    const parameter = PARAMETERS[name];
    if (parameter !== undefined && typeof value === "number") lines.push(`PARAMETER ${parameter} ${value}`);
  }
  return `${lines.join("\n")}\n`;
}

async function templateFor(
  source: string,
  settings: Readonly<Record<string, unknown>>,
): Promise<string | undefined> {
  // llama.cpp opens each text itself.
  const write = await compileChatTemplate(new Map([["default", source]]), { ...settings, bos_token: "" });
  return goTemplate((messages) => write!(messages, { addGenerationPrompt: true, now: () => TEMPLATE_DATE }));
}

async function generationSettings(folder: string): Promise<Record<string, unknown>> {
  try {
    const settings: unknown = JSON.parse(await readFile(join(folder, "generation_config.json"), "utf8"));
    return isRecord(settings) ? settings : {};
  } catch {
    return {};
  }
}
