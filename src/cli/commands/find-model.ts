import type { HubModelOptions } from "../../checkpoints/hub-model.node.js";
import type { LocalModel } from "../../local/default-model.js";
import { type ModelSource, resolveModel } from "../../local/model-source.js";
import type { CommandContext } from "../context.js";
import { humanBytes, progressBar } from "../output/index.js";

/** Finds a base model on disk, or downloads it from the hub with a progress bar. */
export async function findOrDownloadModel(
  context: CommandContext,
  source: ModelSource,
  check?: HubModelOptions["check"],
): Promise<LocalModel> {
  const signal = context.interruption();
  const bar = progressBar(context, "downloading", "bytes");
  let isDownloading = false;
  try {
    return await resolveModel(source, {
      signal,
      ...(check && { check }),
      onProgress: ({ name, bytes, totalBytes }) => {
        if (!isDownloading) {
          const size = totalBytes === undefined ? "" : ` (${humanBytes(totalBytes)})`;
          context.notify(`Downloading ${name}${size} from the Hugging Face hub.`);
        }
        isDownloading = true;
        bar.update(bytes, totalBytes);
      },
    });
  } catch (error) {
    if (signal.aborted && isDownloading) {
      context.notify("\nWhat was downloaded is kept: run the same command to continue.");
    }
    throw error;
  } finally {
    if (isDownloading) bar.end();
  }
}
