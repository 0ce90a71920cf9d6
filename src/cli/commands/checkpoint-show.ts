import { type Checkpoint, NotFoundError, parseTinkerPath, type WeightsInfo } from "tinkerts";
import { Page } from "../../clients/index.js";
import type { CommandModule } from "../context.js";
import { explainNotFound } from "../failure.js";
import { type Column, metadataColumn, printItem, printList } from "../output/index.js";
import { CHECKPOINT_COLUMNS, checkpointsOfRun, PATH_ARGUMENT } from "./checkpoint-common.js";
import { addLimitFlag, addOffsetFlag, type ListPart, pageSize, takeItems } from "./take-items.js";

export const list: CommandModule = {
  define: (command, context) => {
    command.option("--run-id <id>", "only the checkpoints of this run");
    addOffsetFlag(addLimitFlag(command)).action(
      async ({ runId, limit, offset }: ListPart & { readonly runId?: string }) => {
        const rest = await context.restClient();
        const pages =
          runId === undefined
            ? rest.listUserCheckpoints({ limit: pageSize(limit), offset })
            : checkpointsOfRun(context, rest, runId).then(
                (all) => new Page(all.slice(offset), { totalCount: all.length }),
              );
        const checkpoints = await takeItems(context, pages, { limit, offset });
        const empty = runId === undefined ? "no checkpoints" : `run ${runId} has no checkpoints`;
        printList(context, checkpoints, { columns: Object.values(CHECKPOINT_COLUMNS), empty });
      },
    );
  },
};

type CheckpointDetails = Checkpoint & WeightsInfo & { trainingRunId: string };

const INFO_COLUMNS: readonly Column<CheckpointDetails>[] = [
  ...Object.values(CHECKPOINT_COLUMNS),
  { header: "Run", name: "trainingRunId" },
  { header: "Base model", name: "baseModel" },
  { header: "LoRA rank", name: "loraRank" },
  { header: "Trained parts", name: "trainedParts", value: trainedParts },
  metadataColumn(),
];

export const info: CommandModule = {
  define: (command, context) => {
    command.argument(...PATH_ARGUMENT).action(async (path: string) => {
      const rest = await context.restClient();
      const { trainingRunId, checkpointType, checkpointId } = parseTinkerPath(path);
      const [weights, listed] = await Promise.all([
        explainNotFound(context, rest.getWeightsInfo(path), "checkpoint", path),
        // Lists do not contain checkpoints that other owners published.
        rest.listCheckpoints(trainingRunId).then(
          ({ items }) => items.find(({ tinkerPath }) => tinkerPath === path),
          (error: unknown) => {
            if (!(error instanceof NotFoundError)) throw error;
          },
        ),
      ]);
      const known = { checkpointId, checkpointType, tinkerPath: path, public: true, time: "" };
      printItem(context, { ...(listed ?? known), trainingRunId, ...weights }, INFO_COLUMNS);
    });
  },
};

function trainedParts({ trainAttn, trainMlp, trainUnembed }: CheckpointDetails): string[] {
  const parts = { attention: trainAttn, MLP: trainMlp, unembedding: trainUnembed };
  return Object.entries(parts).flatMap(([name, isTrained]) => (isTrained ? [name] : []));
}
