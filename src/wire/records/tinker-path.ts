import { ValidationError } from "../../errors.js";
import { describe } from "../fields/describe.js";
import type { CheckpointType } from "./rest-types.js";

const SCHEME = "tinker://";

/** The middle part of a checkpoint's path. */
export const CHECKPOINT_KINDS = ["weights", "sampler_weights", "external_weights"] as const;
export type CheckpointKind = (typeof CHECKPOINT_KINDS)[number];

/** Name of each kind in REST calls. */
export const CHECKPOINT_TYPES = {
  weights: "training",
  sampler_weights: "sampler",
  external_weights: "external",
} as const satisfies Record<CheckpointKind, CheckpointType>;

/** A checkpoint's path, taken apart. */
export interface TinkerPath {
  readonly path: string;
  readonly trainingRunId: string;
  readonly kind: CheckpointKind;
  readonly name: string;
  readonly checkpointType: CheckpointType;
  /** Kind and name, as in REST paths: `weights/step-10`. */
  readonly checkpointId: string;
}

/** Splits a path `tinker://<run>/<weights|sampler_weights|external_weights>/<name>` into its parts. */
export function parseTinkerPath(path: string, field = "path"): TinkerPath {
  const parts = isTinkerPath(path) ? path.slice(SCHEME.length).split("/") : [];
  const [trainingRunId, folder, name] = parts;
  const kind = CHECKPOINT_KINDS.find((known) => known === folder);
  if (parts.length !== 3 || !trainingRunId || kind === undefined || !name) {
    throw new ValidationError(
      field,
      `${field} must look like ${SCHEME}<run>/<${CHECKPOINT_KINDS.join("|")}>/<name>, got ${describe(path)}`,
    );
  }
  return {
    path,
    trainingRunId,
    kind,
    name,
    checkpointType: CHECKPOINT_TYPES[kind],
    checkpointId: `${kind}/${name}`,
  };
}

/** The path of a checkpoint, from its parts. */
export function formatTinkerPath(trainingRunId: string, kind: CheckpointKind, name: string): string {
  return `${SCHEME}${trainingRunId}/${kind}/${name}`;
}

/** Tells a path from a model's name or a folder; whether it is a whole path only `parseTinkerPath` says. */
export function isTinkerPath(text: unknown): text is string {
  return typeof text === "string" && text.startsWith(SCHEME);
}

/** For paths that a server may form in its own way: only the scheme is checked. */
export function checkTinkerPath(path: unknown, field = "path"): asserts path is string {
  if (isTinkerPath(path) && path.length > SCHEME.length) return;
  throw new ValidationError(field, `${field} must begin with "${SCHEME}", got ${describe(path)}`);
}
