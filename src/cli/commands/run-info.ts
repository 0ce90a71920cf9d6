import type { TrainingRun } from "tinkerts";
import type { CommandModule } from "../context.js";
import { found } from "../failure.js";
import { type Column, printItem } from "../output/index.js";
import { metadataColumn } from "./metadata.js";
import { RUN_COLUMNS } from "./run-columns.js";

const { id, model, owner, lora, updated, status } = RUN_COLUMNS;

const columns: readonly Column<TrainingRun>[] = [
  id,
  model,
  owner,
  lora,
  updated,
  status,
  {
    header: "Last checkpoint",
    name: "lastCheckpoint",
    value: (run) => run.lastCheckpoint?.tinkerPath,
    none: "none",
  },
  {
    header: "  saved",
    name: "lastCheckpointTime",
    value: (run) => run.lastCheckpoint?.time,
    kind: "time",
  },
  {
    header: "Last for sampling",
    name: "lastSamplerCheckpoint",
    value: (run) => run.lastSamplerCheckpoint?.tinkerPath,
    none: "none",
  },
  {
    header: "  saved",
    name: "lastSamplerCheckpointTime",
    value: (run) => run.lastSamplerCheckpoint?.time,
    kind: "time",
  },
  metadataColumn(),
];

export const define: CommandModule["define"] = (command, context) => {
  command.argument("<id>", "the run's id, as `tinkerts run list` shows it").action(async (runId: string) => {
    const rest = await context.restClient();
    const run = await found(
      context,
      rest.getTrainingRun(runId, { accessScope: "accessible" }),
      `training run ${runId}`,
      "`tinkerts run list` shows those it has",
    );
    printItem(context, run, columns);
  });
};
