import type { LocalModel } from "../../local/default-model.js";
import type { HubModelOptions } from "../../local/hub-model.js";
import { type ModelSource, resolveModel } from "../../local/model-source.js";
import type { CommandContext } from "../context.js";
import { humanBytes, progressBar } from "../output/index.js";

/** Finds a base model on disk, or downloads it from the hub while the person at the terminal sees how far it is. */
export async function findModel(
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
      context.notify("\nWhat has come is kept: the same command goes on from there.");
    }
    throw error;
  } finally {
    if (isDownloading) bar.end();
  }
}
