import { describe, expect, it } from "vitest";
import { parseTinkerPath } from "./tinker-path.js";

describe("parseTinkerPath", () => {
  it.each([
    ["weights", "training"],
    ["sampler_weights", "sampler"],
    ["external_weights", "external"],
  ])("knows %s as %s", (folder, checkpointType) => {
    const path = `tinker://session:train:0/${folder}/step-1`;
    expect(parseTinkerPath(path)).toEqual({
      trainingRunId: "session:train:0",
      checkpointType,
      checkpointId: `${folder}/step-1`,
      path,
    });
  });

  it.each([
    "run/weights/a",
    "tinker://run/weights",
    "tinker://run/weights/a/b",
    "tinker://run/other/a",
    "tinker:///weights/a",
    "tinker://run/weights/",
    "tinker://run/toString/a",
  ])("refuses %s", (path) => {
    expect(() => parseTinkerPath(path)).toThrow(
      "path must look like tinker://<run>/<weights|sampler_weights|external_weights>/<name>",
    );
  });
});
