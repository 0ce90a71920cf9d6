import { ValidationError } from "../errors.js";
import { describe } from "./describe.js";
import type { CheckpointType } from "./rest-types.js";

export interface TinkerPath {
  readonly trainingRunId: string;
  readonly checkpointType: CheckpointType;
  /** Folder and name, as the REST paths want it: `weights/step-10`. */
  readonly checkpointId: string;
  readonly path: string;
}

const TYPE_OF_FOLDER: Readonly<Record<string, CheckpointType>> = {
  weights: "training",
  sampler_weights: "sampler",
  external_weights: "external",
};

/** Takes `tinker://<run>/<weights|sampler_weights|external_weights>/<name>` apart. */
export function parseTinkerPath(path: string, field = "path"): TinkerPath {
  const parts = typeof path === "string" && path.startsWith("tinker://") ? path.slice(9).split("/") : [];
  const [trainingRunId, folder, name] = parts;
  if (parts.length !== 3 || !trainingRunId || !folder || !name || !Object.hasOwn(TYPE_OF_FOLDER, folder)) {
    const folders = Object.keys(TYPE_OF_FOLDER).join("|");
    throw new ValidationError(
      field,
      `${field} must look like tinker://<run>/<${folders}>/<name>, got ${describe(path)}`,
    );
  }
  return { trainingRunId, checkpointType: TYPE_OF_FOLDER[folder]!, checkpointId: `${folder}/${name}`, path };
}
