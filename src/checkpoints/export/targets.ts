import type { ExportTargetName } from "./options.js";
import type { ExportTarget } from "./target.js";

/** Every target; its code is loaded when it is used. */
export const TARGETS: Readonly<Record<ExportTargetName, () => Promise<ExportTarget>>> = {
  gguf: () => import("./gguf.node.js").then((module) => module.GGUF_TARGET),
  vllm: () => import("./vllm.node.js").then((module) => module.VLLM_TARGET),
  "llama.cpp-lora": () => import("./gguf-adapter.node.js").then((module) => module.GGUF_ADAPTER_TARGET),
  ollama: () => import("./ollama.node.js").then((module) => module.OLLAMA_TARGET),
  hf: () => import("./hf.node.js").then((module) => module.HF_TARGET),
};
