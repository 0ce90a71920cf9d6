import { describe, expect, it } from "vitest";
import { ValidationError } from "../../errors.js";
import { type CheckpointKind, checkTinkerPath, formatTinkerPath, parseTinkerPath } from "./tinker-path.js";

describe("a checkpoint's path", () => {
  it.each<[CheckpointKind, string]>([
    ["weights", "training"],
    ["sampler_weights", "sampler"],
    ["external_weights", "external"],
  ])("of %s is that of a %s checkpoint", (kind, checkpointType) => {
    const path = `tinker://session:train:0/${kind}/step-1`;
    expect(parseTinkerPath(path)).toEqual({
      path,
      trainingRunId: "session:train:0",
      kind,
      name: "step-1",
      checkpointType,
      checkpointId: `${kind}/step-1`,
    });
    expect(formatTinkerPath("session:train:0", kind, "step-1")).toBe(path);
  });

  it.each([
    "run/weights/a",
    "tinker://run/weights",
    "tinker://run/weights/a/b",
    "tinker://run/other/a",
    "tinker:///weights/a",
    "tinker://run/weights/",
    "tinker://run/toString/a",
  ])("is not %s", (path) => {
    expect(() => parseTinkerPath(path)).toThrow(
      "path must look like tinker://<run>/<weights|sampler_weights|external_weights>/<name>",
    );
  });

  it("that a server forms in its own way has the scheme at least", () => {
    checkTinkerPath("tinker://run/weights/a");
    for (const path of ["tinker://", "http://x", 5]) {
      expect(() => checkTinkerPath(path)).toThrow(ValidationError);
      expect(() => checkTinkerPath(path)).toThrow('path must begin with "tinker://"');
    }
  });
});
