import * as f from "../fields/index.js";
import { isRecord } from "../reading.js";

/** Constraint on every sample of a stream. The built-in backend keeps it; Tinker's service has no such field. */
export type SampleConstraint =
  | { readonly type: "json_object" }
  | { readonly type: "json_schema"; readonly schema: unknown }
  /** The grammar of an answer as a tree, as `prepareAnswer` gives it. */
  | { readonly type: "shape"; readonly shape: unknown };

const TYPES: Readonly<Record<SampleConstraint["type"], string | undefined>> = {
  json_object: undefined,
  json_schema: "schema",
  shape: "shape",
};

/** The field of a constraint; whether it can be kept is for the server to say. */
export const sampleConstraint: f.Field<SampleConstraint> = f.value(
  '{ type: "json_object" }, { type: "json_schema", schema } or { type: "shape", shape }',
  (given) => {
    if (!isRecord(given) || typeof given["type"] !== "string" || !Object.hasOwn(TYPES, given["type"]))
      return false;
    const part = TYPES[given["type"] as SampleConstraint["type"]];
    return (
      Object.keys(given).every((key) => key === "type" || key === part) &&
      (part === undefined || part in given)
    );
  },
);
