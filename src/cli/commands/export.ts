import { stat } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { type ExportedModel, exportModel } from "../../checkpoints/export/export-model.node.js";
import {
  EXPORT_OPTIONS,
  type ExportOptions,
  type ExportTargetName,
} from "../../checkpoints/export/options.js";
import { ADAPTER_CONFIG, readAdapterSettings } from "../../checkpoints/peft.node.js";
import type { CheckpointSource } from "../../checkpoints/push.node.js";
import { defaultModel } from "../../local/default-model.js";
import { isTinkerPath, parseTinkerPath } from "../../wire/records/tinker-path.js";
import { type CommandContext, type CommandModule, UsageError } from "../context.js";
import { type Agreement, checkExport } from "../export/check-export.js";
import { llamaPackage } from "../export/llama-cpp.js";
import { hasServer, openService } from "../local-service.js";
import { type NamedModel, namedModel, samplingSource } from "../named-model.js";
import { addFlags, optionsFromFlags } from "../option-flags.js";
import { printDone, progressBar } from "../output/index.js";
import { withCheckpointSource } from "./checkpoint-source.js";

interface CommandOptions {
  readonly to: ExportTargetName;
  readonly output?: string;
  readonly check?: true;
}

/** Suffix of the model's name in the default name of a result. */
const ENDINGS: Readonly<Record<ExportTargetName, string>> = {
  gguf: ".gguf",
  ollama: "-ollama",
  "llama.cpp-lora": "-lora.gguf",
  hf: "-merged",
  vllm: "-vllm",
};
const { fields: FIELDS } = EXPORT_OPTIONS;

export const define: CommandModule["define"] = (command, context) => {
  command.argument(
    "<model>",
    "a checkpoint (tinker://...), the folder of a run, of an adapter or of a model, or a Hugging Face id",
  );
  addFlags(command, FIELDS)
    .option(
      "--check",
      "let the model and the result answer ten prompts, and say how far they agree (gguf, ollama; needs node-llama-cpp)",
    )
    .action((model: string, options: CommandOptions) => exportTo(context, model, options));
};

async function exportTo(context: CommandContext, name: string, options: CommandOptions): Promise<void> {
  const { to, check } = options;
  if (to === undefined) {
    const choices = (FIELDS.to.choices ?? []).join(", ");
    throw new UsageError(`export to what? Give --to: ${choices}`);
  }
  if (check && to !== "gguf" && to !== "ollama") {
    throw new UsageError(
      `--check runs the result in llama.cpp: it needs --to gguf or --to ollama, not ${to}`,
    );
  }
  const model = await namedModel(name);
  const path = model.samplerPath ?? model.statePath;
  const isAdapter = path === undefined && (await isFile(join(name, ADAPTER_CONFIG)));
  if (check && isAdapter) {
    throw new UsageError(
      `--check samples from the original: make a checkpoint of ${name} first (tinkerts checkpoint import), and export that`,
    );
  }
  // Before the export, which may take long.
  if (check) await llamaPackage();
  const request = { name, model, path: isAdapter ? resolve(name) : path, options };
  const exported = await exportFromSource(context, request);
  if (!check) {
    report(context, exported);
    return;
  }
  await using server = await openService(context, model, {});
  const original = await server.service.createSamplingClient(samplingSource(server.model));
  const file = to === "ollama" ? join(exported.path, "model.gguf") : exported.path;
  report(context, exported, await checkExport(file, original, context.interruption()));
}

interface ExportRequest {
  readonly name: string;
  readonly model: NamedModel;
  /** A `tinker://` path, or the folder of an adapter; undefined of a base model alone. */
  readonly path: string | undefined;
  readonly options: CommandOptions;
}

interface Source {
  readonly source: CheckpointSource;
  readonly fileByFile: boolean;
  readonly fetch?: typeof fetch | undefined;
}

/** Exports from where the weights are: a folder, a server, or the data folder of the built-in backend. */
async function exportFromSource(context: CommandContext, request: ExportRequest): Promise<ExportedModel> {
  const { path, model } = request;
  if (path === undefined || !isTinkerPath(path)) return await run(context, request);
  if (hasServer(context)) {
    return await withCheckpointSource(context, path, (source, { fileByFile }) =>
      run(context, request, { source, fileByFile }),
    );
  }
  await using server = await openService(context, model, {});
  const source = server.service.createRestClient();
  return await run(context, request, { source, fileByFile: false, fetch: server.shown.fetch });
}

async function run(
  context: CommandContext,
  { name, model, path, options }: ExportRequest,
  from?: Source,
): Promise<ExportedModel> {
  const settings = optionsFromFlags(FIELDS, options) as Pick<ExportOptions, "to" | "baseModel">;
  const wanted = settings.baseModel ?? (await namedBase(path, model, from)) ?? name;
  const signal = context.interruption();
  const bars = new Map<string, ReturnType<typeof progressBar>>();
  try {
    return await exportModel({
      ...settings,
      ...from,
      adapter: path,
      baseModel: wanted === defaultModel.name ? defaultModel.path : wanted,
      output: options.output ?? `${defaultName(name)}${ENDINGS[settings.to]}`,
      signal,
      onProgress: ({ phase, bytes, totalBytes }) => {
        if (!bars.has(phase)) {
          for (const bar of bars.values()) bar.end();
          bars.set(phase, progressBar(context, phase, "bytes"));
        }
        bars.get(phase)!.update(bytes, totalBytes);
      },
    });
  } catch (error) {
    if (signal.aborted) context.notify("\nWhat was written is kept: run the same command to continue.");
    throw error;
  } finally {
    for (const bar of bars.values()) bar.end();
  }
}

/** The base model as a server or an adapter's settings name it. */
async function namedBase(
  path: string | undefined,
  model: NamedModel,
  from: Source | undefined,
): Promise<string | undefined> {
  if (path === undefined) return undefined;
  const base =
    from === undefined
      ? (await readAdapterSettings(path)).baseModel
      : (model.baseModel ?? (await from.source.getWeightsInfo(path)).baseModel);
  if (!base) throw new UsageError(`${path} does not say what its base model is: give --base`);
  return base;
}

/** The run of a checkpoint, or the last part of a folder's or a model's name. */
function defaultName(source: string): string {
  if (isTinkerPath(source)) return parseTinkerPath(source).trainingRunId.replaceAll(/[^\w.-]/g, "-");
  return basename(resolve(source));
}

function report(context: CommandContext, exported: ExportedModel, agreement?: Agreement): void {
  const { path, baseModel, commands } = exported;
  printDone(context, `${path} is written`, { path, baseModel, commands, ...(agreement && { agreement }) });
  if (agreement !== undefined) {
    const { prompts, tokens, sameTokens, meanDifference, maxDifference } = agreement;
    context.notify(
      `Agreement over ${prompts} prompts: ${sameTokens} of ${tokens} tokens are the same (${((100 * sameTokens) / tokens).toFixed(1)}%); ` +
        `their logprobs differ by ${meanDifference.toFixed(4)} on average, ${maxDifference.toFixed(4)} at most.`,
    );
  }
  context.notify(`To use it:\n${commands.map((command) => `  ${command}`).join("\n")}`);
}

async function isFile(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined))?.isFile() === true;
}
