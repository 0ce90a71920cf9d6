import { describe, expect, it } from "vitest";
import { checkBillingUsageRequest, checkSessionSearchRequest } from "./rest-checks.js";
import type { SessionSearchRequest } from "./rest-types.js";
import { parseTinkerPath } from "./tinker-path.js";

describe("session searches", () => {
  it("pass with every filter", () => {
    const request: SessionSearchRequest = {
      sessionId: "s",
      projectIds: ["p"],
      userMetadata: { some_key: "v" },
      displayName: "my run",
      owner: { type: "user", ownerUrns: ["urn:1"] },
      statuses: [{ type: "active" }, { type: "client_finished", reasons: ["errored"] }],
      limit: 200,
      cursor: { lastCreatedAt: "2026-01-01T00:00:00Z", lastSessionId: "s" },
    };
    expect(checkSessionSearchRequest(request)).toEqual(request);
    expect(checkSessionSearchRequest({ owner: { type: "own" }, limit: undefined })).toEqual({
      owner: { type: "own" },
    });
  });

  it.each<[object, string]>([
    [{ limit: 201 }, "limit must be an integer from 1 to 200, got 201"],
    [{ limit: 0 }, "got 0"],
    [{ displayName: "" }, "displayName must be a non-empty string"],
    [{ project_ids: ["a"] }, "unknown field project_ids; did you mean projectIds?"],
    [{ statuses: [] }, "statuses must be a non-empty list of statuses"],
    [
      { statuses: [{ type: "done" }] },
      "statuses[0].type must be one of active, cancelled, failed, client_finished",
    ],
    [{ statuses: [{ type: "client_finished", reasons: ["x"] }] }, "statuses[0].reasons must be"],
    [{ owner: { type: "user" } }, "owner.ownerUrns must be a list of 1 to 10 URNs, got undefined"],
    [{ owner: { type: "all" } }, 'owner.type must be "own", "accessible" or "user", got "all"'],
    [{ cursor: { lastCreatedAt: "x" } }, "cursor.lastSessionId must be a non-empty string, got undefined"],
    [{ userMetadata: { a: 1 } }, "userMetadata must be an object of strings"],
  ])("with %j are refused", (request, message) => {
    expect(() => checkSessionSearchRequest(request)).toThrow(message);
  });
});

describe("billing windows", () => {
  it("are brought to UTC texts", () => {
    const window = {
      startingOn: new Date("2026-07-13T00:00:00Z"),
      endingBefore: "2026-07-14T02:00:00+02:00",
    };
    expect(checkBillingUsageRequest(window)).toEqual({
      startingOn: "2026-07-13T00:00:00Z",
      endingBefore: "2026-07-14T00:00:00Z",
    });
  });

  it.each<[string, string, string]>([
    ["2026-07-13T00:30:00Z", "2026-07-14T00:00:00Z", "startingOn must be a time on a full UTC hour"],
    ["2026-07-13T00:00:00Z", "soon", "endingBefore must be a time on a full UTC hour, got soon"],
    ["2026-07-13T00:00:00Z", "2026-07-13T00:00:00Z", "must be after startingOn"],
    ["2026-07-01T00:00:00Z", "2026-07-15T01:00:00Z", "at most 14 days later"],
  ])("from %s to %s are refused", (startingOn, endingBefore, message) => {
    expect(() => checkBillingUsageRequest({ startingOn, endingBefore })).toThrow(message);
  });
});

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
