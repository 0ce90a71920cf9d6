import { prepareGgufAdapter } from "../gguf/gguf-adapter.node.js";
import { shellWord } from "../shell-word.js";
import type { ExportTarget } from "./target.js";

const FILE = "adapter.gguf";

/** An adapter alone as GGUF, for use over a GGUF file of its base model. */
export const GGUF_ADAPTER_TARGET: ExportTarget = {
  needsAdapter: true,
  async prepare(input) {
    const name = input.baseModel.split("/").at(-1)!;
    return {
      ...(await prepareGgufAdapter(input, FILE)),
      file: FILE,
      commands: [`llama-server -m ${shellWord(`${name}.gguf`)} --lora ${shellWord(input.output)}`],
    };
  },
};
