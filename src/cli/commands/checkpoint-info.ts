import { type Checkpoint, NotFoundError, parseTinkerPath, type WeightsInfo } from "tinkerts";
import type { CommandModule } from "../context.js";
import { found } from "../failure.js";
import { type Column, printItem } from "../output/index.js";
import { CHECKPOINT_COLUMNS } from "./checkpoint-columns.js";
import { PATH_ADVICE, PATH_ARGUMENT } from "./checkpoint-path.js";
import { metadataColumn } from "./metadata.js";

type CheckpointDetails = Checkpoint & WeightsInfo & { trainingRunId: string };

const columns: readonly Column<CheckpointDetails>[] = [
  ...Object.values(CHECKPOINT_COLUMNS),
  { header: "Run", name: "trainingRunId", value: ({ trainingRunId }) => trainingRunId },
  { header: "Base model", name: "baseModel", value: ({ baseModel }) => baseModel },
  { header: "LoRA rank", name: "loraRank", value: ({ loraRank }) => loraRank },
  { header: "Trained parts", name: "trainedParts", value: trainedParts },
  metadataColumn(),
];

export const define: CommandModule["define"] = (command, context) => {
  command.argument(...PATH_ARGUMENT).action(async (path: string) => {
    const rest = await context.restClient();
    const { trainingRunId, checkpointType, checkpointId } = parseTinkerPath(path);
    const [weights, listed] = await Promise.all([
      found(context, rest.getWeightsInfo(path), `checkpoint ${path}`, PATH_ADVICE),
      // A published checkpoint of somebody else is in no list.
      rest.listCheckpoints(trainingRunId).then(
        ({ items }) => items.find(({ tinkerPath }) => tinkerPath === path),
        (error: unknown) => {
          if (!(error instanceof NotFoundError)) throw error;
        },
      ),
    ]);
    const known = { checkpointId, checkpointType, tinkerPath: path, public: true, time: "" };
    printItem(context, { ...(listed ?? known), trainingRunId, ...weights }, columns);
  });
};

function trainedParts({ trainAttn, trainMlp, trainUnembed }: CheckpointDetails): string[] {
  const parts = { attention: trainAttn, MLP: trainMlp, unembedding: trainUnembed };
  return Object.entries(parts).flatMap(([name, isTrained]) => (isTrained ? [name] : []));
}
