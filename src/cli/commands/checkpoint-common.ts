import { InvalidArgumentError } from "commander";
import type { Checkpoint, RestClient } from "tinkerts";
import { parseTinkerPath } from "../../wire/records/tinker-path.js";
import type { CommandContext } from "../context.js";
import { explainNotFound } from "../failure.js";
import type { Column } from "../output/index.js";

/** The argument of every command about one checkpoint. */
export const PATH_ARGUMENT = [
  "<path>",
  "the checkpoint: tinker://<run>/<kind>/<name>",
  checkpointPath,
] as const;

/** Reads a checkpoint path from the command line. */
export function checkpointPath(text: string): string {
  try {
    return parseTinkerPath(text).path;
  } catch {
    throw new InvalidArgumentError(
      "A checkpoint's path looks like tinker://<run>/weights/<name>, or with sampler_weights or external_weights.",
    );
  }
}

/** All checkpoints of one run. */
export async function checkpointsOfRun(
  context: CommandContext,
  rest: RestClient,
  runId: string,
): Promise<readonly Checkpoint[]> {
  const { items } = await explainNotFound(context, rest.listCheckpoints(runId), "training run", runId);
  return items;
}

/** Columns of a checkpoint. */
export const CHECKPOINT_COLUMNS = {
  path: { header: "Path", name: "tinkerPath", importance: 9, takesOwnLine: true },
  type: { header: "Type", name: "checkpointType", importance: 2 },
  size: { header: "Size", name: "sizeBytes", kind: "bytes", importance: 5 },
  public: {
    header: "Public",
    name: "public",
    value: (checkpoint) => checkpoint.public ?? false,
    kind: "flag",
    importance: 1,
  },
  created: { header: "Created", name: "time", kind: "time", importance: 4 },
  expires: { header: "Expires", name: "expiresAt", kind: "time", none: "never", importance: 3 },
} as const satisfies Record<string, Column<Checkpoint>>;
