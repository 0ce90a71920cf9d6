import { downloadCheckpoint } from "../../checkpoints/download.node.js";
import { ValidationError } from "../../errors.js";
import type { CommandContext, CommandModule } from "../context.js";
import { type Column, printItem, progressBar } from "../output/index.js";
import { PATH_ARGUMENT } from "./checkpoint-common.js";
import { withCheckpointSource } from "./checkpoint-source.js";

interface DownloadOptions {
  readonly output: string;
  readonly force?: true;
}

interface Downloaded {
  readonly tinkerPath: string;
  readonly folder: string;
  readonly files: readonly string[];
  readonly bytes: number;
}

const COLUMNS: readonly Column<Downloaded>[] = [
  { header: "Folder", name: "folder" },
  { header: "Files", name: "files" },
  { header: "Size", name: "bytes", kind: "bytes" },
];

export const define: CommandModule["define"] = (command, context) => {
  command
    .argument(...PATH_ARGUMENT)
    .option("-o, --output <folder>", "folder in which the checkpoint's folder is created", ".")
    .option("--force", "replace the checkpoint's folder if it exists")
    .action(async (path: string, options: DownloadOptions) => {
      const downloaded = await download(context, path, options);
      printItem(context, { tinkerPath: path, ...downloaded }, COLUMNS);
    });
};

async function download(context: CommandContext, path: string, { output, force }: DownloadOptions) {
  const signal = context.interruption();
  const bar = progressBar(context, "downloading", "bytes");
  try {
    return await withCheckpointSource(context, path, (source, { fileByFile }) =>
      downloadCheckpoint(source, path, {
        outputDir: output,
        force: force === true,
        fileByFile,
        signal,
        onProgress: ({ bytes, totalBytes }) => bar.update(bytes, totalBytes),
      }),
    );
  } catch (error) {
    if (signal.aborted) {
      bar.end();
      context.notify("What was downloaded is kept: run the same command to continue.");
    }
    if (error instanceof ValidationError && error.field === "outputDir") {
      const [folder] = error.message.split(" exists already");
      throw new Error(`${folder} exists already: give --force to replace it, or another --output`);
    }
    throw error;
  } finally {
    bar.end();
  }
}
