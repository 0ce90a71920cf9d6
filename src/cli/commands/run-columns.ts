import type { TrainingRun } from "tinkerts";
import type { Column } from "../output/index.js";

export type RunColumn =
  | "id"
  | "model"
  | "owner"
  | "lora"
  | "updated"
  | "status"
  | "checkpoint"
  | "checkpoint_time";

/** What can be seen of a run in a list, by the names that --columns takes. */
export const RUN_COLUMNS: Readonly<Record<RunColumn, Column<TrainingRun>>> = {
  id: { header: "Run", name: "trainingRunId", value: (run) => run.trainingRunId, importance: 9 },
  model: {
    header: "Base model",
    name: "baseModel",
    value: (run) => run.baseModel,
    importance: 5,
    leastWidth: 12,
  },
  owner: { header: "Owner", name: "modelOwner", value: (run) => run.modelOwner, leastWidth: 8 },
  lora: { header: "LoRA", name: "lora", value: lora, importance: 2 },
  updated: {
    header: "Last request",
    name: "lastRequestTime",
    value: (run) => run.lastRequestTime,
    kind: "time",
    importance: 4,
  },
  status: { header: "Status", name: "status", value: runStatus, importance: 3 },
  checkpoint: {
    header: "Last checkpoint",
    name: "lastCheckpoint",
    value: (run) => run.lastCheckpoint?.checkpointId,
    importance: 1,
    leastWidth: 12,
  },
  checkpoint_time: {
    header: "Checkpoint saved",
    name: "lastCheckpointTime",
    value: (run) => run.lastCheckpoint?.time,
    kind: "time",
    importance: 1,
  },
};

export const DEFAULT_COLUMNS: readonly RunColumn[] = ["id", "model", "lora", "updated", "status"];

function lora({ isLora, loraRank }: TrainingRun): string {
  if (!isLora) return "no";
  return loraRank ? `rank ${loraRank}` : "yes";
}

function runStatus({ corrupted }: TrainingRun): string {
  return corrupted ? "failed" : "ok";
}
