import type { RestClient } from "tinkerts";
import type { CheckpointSource } from "../../checkpoints/push.node.js";
import { NotFoundError } from "../../errors.js";
import { parseTinkerPath } from "../../wire/records/tinker-path.js";
import { CREATED_BY } from "../clients.js";
import type { CommandContext } from "../context.js";
import { explainNotFound } from "../failure.js";

/** Exports are deleted after this time; asking for their URLs again restarts it. */
const EXPORT_TTL_SECONDS = 3600;

/**
 * Downloads a checkpoint with `fetchFrom`. A server that makes no archives, like the hosted one, offers training
 * checkpoints only as exports: then this makes an export and deletes it afterwards.
 */
export async function withCheckpointSource<T>(
  context: CommandContext,
  path: string,
  fetchFrom: (source: CheckpointSource, options: { fileByFile: boolean }) => Promise<T>,
): Promise<T> {
  const rest = await context.restClient();
  try {
    return await fetchFrom(rest, { fileByFile: false });
  } catch (error) {
    if (!(error instanceof NotFoundError)) throw error;
    await explainNotFound(context, rest.getWeightsInfo(path), "checkpoint", path);
    const { checkpointType } = parseTinkerPath(path);
    if (checkpointType === "sampler") {
      throw new Error(
        "this server does not give sampler checkpoints away: save a training checkpoint, or external weights",
        { cause: error },
      );
    }
    if (checkpointType === "external") throw error;
    return await withExport(context, rest, path, (source) => fetchFrom(source, { fileByFile: true }));
  }
}

async function withExport<T>(
  context: CommandContext,
  rest: RestClient,
  path: string,
  fetchFrom: (source: CheckpointSource) => Promise<T>,
): Promise<T> {
  context.notify(
    "The server makes no archives: the checkpoint is loaded into a new training run and exported.",
  );
  const service = await context.serviceClient();
  const training = await service.createTrainingClientFromState(path, {
    userMetadata: { [CREATED_BY]: "tinkerts checkpoint" },
    signal: context.interruption(),
  });
  const { path: exported } = await training.saveWeightsExternal("download", {
    ttlSeconds: EXPORT_TTL_SECONDS,
  });
  try {
    return await fetchFrom({
      getCheckpointArchiveUrl: (_, options) => rest.getCheckpointArchiveUrl(path, options),
      getWeightsInfo: (_, options) => rest.getWeightsInfo(path, options),
      getExternalWeightsUrls: async (_, options) => {
        const urls = await rest.getExternalWeightsUrls(exported, options);
        await rest.setCheckpointTtl(exported, EXPORT_TTL_SECONDS, options);
        return urls;
      },
    });
  } finally {
    // The interruption has already closed the other client.
    await service
      .createRestClient()
      .deleteCheckpoint(exported)
      .catch((error: unknown) => {
        const why = error instanceof Error ? error.message : String(error);
        context.notify(`warning: the export ${exported} stays for an hour: ${why}`);
      });
  }
}
