import { wrongField } from "../../wire/fields/check-keys.js";
import {
  abortSignal,
  boolean,
  functionOf,
  having,
  type OptionsOf,
  oneOf,
  option,
  optional,
  optionTable,
  text,
  withDefault,
} from "../../wire/index.js";
import type { CheckpointUrls } from "../download.node.js";

/** Formats that a model can be exported to. */
export const EXPORT_TARGETS = ["gguf", "ollama", "llama.cpp-lora", "hf", "vllm"] as const;
/** One of the things that a model can be exported to. */
export type ExportTargetName = (typeof EXPORT_TARGETS)[number];

/** How values are stored in a GGUF file. */
export const GGUF_TYPES = ["f32", "f16", "bf16", "q8_0", "q6_K", "q4_K_M", "q4_0"] as const;
/** One of the ways in which values are stored in a GGUF file. */
export type GgufType = (typeof GGUF_TYPES)[number];

/** How far an export is, for `onProgress`. */
export interface ExportProgress {
  /** `downloading` fetches the adapter or the base model, `writing` makes the result. */
  readonly phase: "downloading" | "writing";
  readonly bytes: number;
  /** Undefined if the server does not say how large a download is. */
  readonly totalBytes: number | undefined;
}

/** Options of `exportModel`: what to export, as what, and where to. */
export interface ExportOptions {
  /** `gguf` (llama.cpp, LM Studio), `ollama`, `llama.cpp-lora` (the adapter alone), `hf` (a merged model folder) or `vllm` (an adapter for vLLM and SGLang). */
  readonly to: ExportTargetName;
  /** The file (`gguf`, `llama.cpp-lora`) or folder to make. It must not exist yet. */
  readonly output: string;
  /** Folder of an adapter, or the `tinker://` path of a checkpoint. Without one, the base model alone is exported. */
  readonly adapter?: string | undefined;
  /** Base model: a folder or a Hugging Face id. Default: the one that the adapter names. */
  readonly baseModel?: string | undefined;
  /** Where a `tinker://` path is downloaded from: a `RestClient`. */
  readonly source?: CheckpointUrls | undefined;
  /** Download the checkpoint's files one by one even if the server makes archives. Default: false. */
  readonly fileByFile?: boolean | undefined;
  /** Downloads the checkpoint: for a built-in backend that listens on no port, its `fetch`. */
  readonly fetch?: typeof fetch | undefined;
  /** How weights are stored in a GGUF file. Default: `q8_0`; for `llama.cpp-lora`, `f16`. */
  readonly type?: GgufType | undefined;
  /** Whether `hf` writes weights in packed formats (FP8, INT4, MXFP4) as BF16. Default: false, the format is kept. */
  readonly dequantize?: boolean | undefined;
  /** `experts-fp8`: `hf` writes the weights of routed experts in FP8, for vLLM, and the others as BF16. Default: not. */
  readonly quantize?: "experts-fp8" | undefined;
  /** Changes of the output head, which vLLM does not load: `drop` leaves them out of a `vllm` export, `keep` keeps them. Default: refused. */
  readonly head?: "drop" | "keep" | undefined;
  /** System prompt of an Ollama model. */
  readonly system?: string | undefined;
  readonly onProgress?: ((progress: ExportProgress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

const FIELDS = {
  to: option(oneOf(...EXPORT_TARGETS), "what to make of the model", { flag: true }),
  output: option(text, "file or folder to make", { flag: true, otherwise: "named after the model" }),
  adapter: option(optional(text), "folder of an adapter, or a tinker:// path"),
  baseModel: option(optional(text), "base model: a folder or a Hugging Face id", {
    flag: "base",
    otherwise: "as named by the adapter",
  }),
  source: option(
    optional(having<CheckpointUrls>("a RestClient", "getCheckpointArchiveUrl")),
    "where checkpoints are downloaded from",
  ),
  fileByFile: option(withDefault(boolean, false), "download single files of a checkpoint"),
  fetch: option(optional(functionOf<typeof fetch>()), "downloads the checkpoint"),
  type: option(optional(oneOf(...GGUF_TYPES)), "how a GGUF file stores weights", {
    flag: true,
    otherwise: "q8_0, or f16 for llama.cpp-lora",
  }),
  dequantize: option(
    withDefault(boolean, false),
    "write packed weights (FP8, INT4, MXFP4) as BF16, for --to hf",
    {
      flag: true,
    },
  ),
  quantize: option(optional(oneOf("experts-fp8")), "write routed experts in FP8 for vLLM, for --to hf", {
    flag: true,
  }),
  head: option(
    optional(oneOf("drop", "keep")),
    "changes of the output head, which vLLM does not load: leave them out or keep them, for --to vllm",
    { flag: true },
  ),
  system: option(optional(text), "system prompt, for --to ollama", { flag: true }),
  onProgress: option(optional(functionOf<(progress: ExportProgress) => void>()), "called with the progress"),
  signal: option(optional(abortSignal), "ends the export"),
} satisfies OptionsOf<ExportOptions>;

/** Options that some targets have and others do not. */
const OPTIONS_OF_TARGETS = {
  type: ["gguf", "ollama", "llama.cpp-lora"],
  system: ["ollama"],
  dequantize: ["hf"],
  quantize: ["hf"],
  head: ["vllm"],
} as const satisfies Partial<Record<keyof ExportOptions, readonly ExportTargetName[]>>;

/** The options of an export, each described once. */
export const EXPORT_OPTIONS = optionTable(FIELDS, (options) => {
  for (const [name, targets] of Object.entries(OPTIONS_OF_TARGETS)) {
    const value = options[name as keyof typeof OPTIONS_OF_TARGETS];
    const isSet = value !== undefined && value !== false;
    if (isSet && !targets.some((target) => target === options.to)) {
      throw wrongField(name, `is an option of ${targets.join(" and ")}, not of ${options.to}`);
    }
  }
});

/** Checked options of an export. */
export type FilledExportOptions = ReturnType<(typeof EXPORT_OPTIONS)["check"]>;
