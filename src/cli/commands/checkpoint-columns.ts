import type { Checkpoint } from "tinkerts";
import type { Column } from "../output/index.js";

export const CHECKPOINT_COLUMNS = {
  path: {
    header: "Path",
    name: "tinkerPath",
    value: (checkpoint) => checkpoint.tinkerPath,
    importance: 9,
    takesOwnLine: true,
  },
  type: {
    header: "Type",
    name: "checkpointType",
    value: (checkpoint) => checkpoint.checkpointType,
    importance: 2,
  },
  size: {
    header: "Size",
    name: "sizeBytes",
    value: (checkpoint) => checkpoint.sizeBytes,
    kind: "bytes",
    importance: 5,
  },
  public: {
    header: "Public",
    name: "public",
    value: (checkpoint) => checkpoint.public ?? false,
    kind: "flag",
    importance: 1,
  },
  created: {
    header: "Created",
    name: "time",
    value: (checkpoint) => checkpoint.time,
    kind: "time",
    importance: 4,
  },
  expires: {
    header: "Expires",
    name: "expiresAt",
    value: (checkpoint) => checkpoint.expiresAt,
    kind: "time",
    none: "never",
    importance: 3,
  },
} as const satisfies Record<string, Column<Checkpoint>>;
