import { mkdir, open } from "node:fs/promises";
import { join } from "node:path";
import { TinkerError } from "../../errors.js";
import { syncFolder, writeFileAtomic, writeFully } from "../../files.node.js";
import { elementCount } from "../../wire/tensors/element-count.js";
import { MergedWeights } from "../merged-weights.node.js";
import { ADAPTER_CONFIG, ADAPTER_WEIGHTS } from "../peft.node.js";
import { DTYPE_BYTES, encodeHeader } from "../safetensors.js";
import { HEAD_MODULE, type ServedAdapter, servedAdapter } from "../serving-adapter.node.js";
import { shellWord } from "../shell-word.js";
import type { ExportTarget, ExportWork } from "./target.js";

/** The ranks that `--max-lora-rank` of vLLM may have. */
const MAX_LORA_RANKS = [8, 16, 32, 64, 128, 256, 320, 512];

/** An adapter as vLLM and SGLang take it, in PEFT's format, with the module names of the served model. */
export const VLLM_TARGET: ExportTarget = {
  needsAdapter: true,

  async prepare({ baseFolder, baseModel, adapter, output, options }) {
    // The merge is planned, too: it finds out whether the adapter fits the model.
    const weights = await MergedWeights.open(baseFolder, adapter!.folder);
    try {
      const { names, base } = weights;
      if (names.family === "deepseek_v3") {
        throw new TinkerError(
          "vLLM and SGLang load no adapters of DeepSeek V3 models: merge the adapter instead (--to hf).",
        );
      }
      const changesHead = [...weights.adapter!.pairs.keys()].some(
        (path) => names.servedModuleOf(path) === HEAD_MODULE,
      );
      if (changesHead && options.head === undefined) {
        throw new TinkerError(
          "The adapter changes the output head, which vLLM does not load: merge it (--to hf), train without it (--for-vllm; in a program, trainUnembed: false), leave the head's changes out (--head drop), or keep them for another server (--head keep).",
        );
      }
      const served = servedAdapter(weights.adapter!, names, {
        baseModel,
        dropHead: options.head === "drop",
        outputsOf: (module) => base.tensors.get(`${names.moduleOf(module)}.weight`)!.shape[0]!,
      });
      return {
        bytes: served.tensors.reduce((sum, tensor) => sum + bytesOf(tensor), 0),
        file: undefined,
        commands: commandsFor(served, baseModel, output),
        close: () => weights.close(),
        write: (work) => write(served, work),
      };
    } catch (error) {
      weights.close();
      throw error;
    }
  },
};

function bytesOf({ dtype, shape }: ServedAdapter["tensors"][number]): number {
  return elementCount(shape) * DTYPE_BYTES[dtype];
}

async function write({ tensors, config }: ServedAdapter, work: ExportWork): Promise<void> {
  await mkdir(work.folder, { recursive: true });
  const handle = await open(join(work.folder, ADAPTER_WEIGHTS), "w");
  try {
    const { header } = encodeHeader(tensors, { format: "pt" });
    await writeFully(handle, header, 0);
    let position = header.length;
    for (const tensor of tensors) {
      const bytes = tensor.read();
      work.count(bytes.length);
      await writeFully(handle, bytes, position);
      position += bytes.length;
    }
    await handle.sync();
  } finally {
    await handle.close();
  }
  await writeFileAtomic(join(work.folder, ADAPTER_CONFIG), `${JSON.stringify(config, null, 2)}\n`);
  await syncFolder(work.folder);
}

function commandsFor({ rank, hasExperts }: ServedAdapter, baseModel: string, output: string): string[] {
  const limit = MAX_LORA_RANKS.find((each) => each >= rank) ?? rank;
  const model = shellWord(baseModel);
  const adapter = shellWord(`tuned=${output}`);
  const vllm = `vllm serve ${model} --enable-lora --max-lora-rank ${limit} --lora-modules ${adapter}`;
  // SGLang has no adapters of experts.
  return hasExperts
    ? [vllm]
    : [vllm, `python3 -m sglang.launch_server --model-path ${model} --lora-paths ${adapter}`];
}
