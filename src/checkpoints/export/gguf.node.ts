import { prepareGgufModel } from "../gguf/gguf-model.node.js";
import { shellWord } from "../shell-word.js";
import type { ExportTarget } from "./target.js";

const FILE = "model.gguf";

/** A model as one GGUF file, for llama.cpp and programs that stand on it. */
export const GGUF_TARGET: ExportTarget = {
  needsAdapter: false,
  async prepare(input) {
    const { bytes, write, close } = await prepareGgufModel(input, FILE);
    return {
      ...{ bytes, write, close },
      file: FILE,
      commands: ["llama-server", "llama-cli"].map((program) => `${program} -m ${shellWord(input.output)}`),
    };
  },
};
