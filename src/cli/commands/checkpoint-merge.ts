import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { downloadCheckpoint } from "../../checkpoints/download.node.js";
import { mergeAdapter } from "../../checkpoints/merge.node.js";
import { readAdapterSettings } from "../../checkpoints/peft.node.js";
import { ValidationError } from "../../errors.js";
import { isTinkerPath } from "../../wire/records/tinker-path.js";
import { type CommandContext, type CommandModule, UsageError } from "../context.js";
import { printDone, progressBar } from "../output/index.js";
import { checkpointPath } from "./checkpoint-common.js";
import { withCheckpointSource } from "./checkpoint-source.js";
import { findOrDownloadModel } from "./find-model.js";

interface MergeOptions {
  readonly base?: string;
  readonly output: string;
}

export const define: CommandModule["define"] = (command, context) => {
  command
    .argument("<adapter>", "a checkpoint's path (tinker://...), or the folder of a downloaded one", (text) =>
      isTinkerPath(text) ? checkpointPath(text) : text,
    )
    .requiredOption("-o, --output <folder>", "the folder that is made for the merged model")
    .option("--base <model>", "base model: a folder or a Hugging Face id (default: as named by the adapter)")
    .action(async (adapter: string, options: MergeOptions) => {
      if (!isTinkerPath(adapter)) return merge(context, adapter, options);
      const temporary = await mkdtemp(join(tmpdir(), "tinkerts-merge-"));
      try {
        const folder = await fetchAdapter(context, adapter, temporary);
        await merge(context, folder, options, adapter);
      } finally {
        await rm(temporary, { recursive: true, force: true });
      }
    });
};

async function fetchAdapter(context: CommandContext, path: string, outputDir: string): Promise<string> {
  const bar = progressBar(context, "downloading", "bytes");
  try {
    const { folder } = await withCheckpointSource(context, path, (source, { fileByFile }) =>
      downloadCheckpoint(source, path, {
        outputDir,
        fileByFile,
        signal: context.interruption(),
        onProgress: ({ bytes, totalBytes }) => bar.update(bytes, totalBytes),
      }),
    );
    return folder;
  } finally {
    bar.end();
  }
}

async function merge(
  context: CommandContext,
  adapter: string,
  { base, output }: MergeOptions,
  tinkerPath?: string,
): Promise<void> {
  const baseModel = base ?? (await readAdapterSettings(adapter)).baseModel;
  if (!baseModel) throw new UsageError(`${adapter} does not say what its base model is: give --base`);
  const { name, path } = await findOrDownloadModel(context, baseModel);
  try {
    await mergeAdapter(path, adapter, output, {
      baseModel: name,
      adapter: tinkerPath,
      signal: context.interruption(),
    });
  } catch (error) {
    if (!(error instanceof ValidationError) || error.field !== "output") throw error;
    throw new Error(`${resolve(output)} exists already: give another --output`);
  }
  const folder = resolve(output);
  printDone(context, `${folder} holds ${name} with the adapter in it`, { folder, baseModel: name });
}
