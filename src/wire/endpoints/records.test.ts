import { describe, expect, it } from "vitest";
import type { SessionSearchRequest } from "../records/rest-types.js";
import { recordEndpoints } from "./records.js";

const checkSearch = (given: unknown) => recordEndpoints.searchSessions.request.check(given, "");
const checkWindow = (given: unknown) => recordEndpoints.getBillingUsage.request.check(given, "");

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
    expect(checkSearch(request)).toEqual(request);
    expect(checkSearch({ owner: { type: "own" }, limit: undefined })).toEqual({
      owner: { type: "own" },
      limit: 50,
    });
  });

  it.each<[object, string]>([
    [{ limit: 201 }, "limit must be an integer from 1 to 200, got 201"],
    [{ limit: 0 }, "got 0"],
    [{ displayName: "" }, "displayName must be a non-empty string"],
    [{ project_ids: ["a"] }, "unknown field project_ids; did you mean projectIds?"],
    [{ statuses: [] }, "statuses must be a list of at least 1 entry, got 0"],
    [
      { statuses: [{ type: "done" }] },
      'statuses[0].type must be "active", "cancelled", "failed" or "client_finished"',
    ],
    [{ statuses: [{ type: "client_finished", reasons: ["x"] }] }, "statuses[0].reasons[0] must be"],
    [{ owner: { type: "user" } }, "owner.ownerUrns must be a list, got undefined"],
    [{ owner: { type: "all" } }, 'owner.type must be "own", "accessible" or "user", got "all"'],
    [
      { cursor: { lastCreatedAt: "2026-01-01T00:00:00Z" } },
      "cursor.lastSessionId must be a non-empty string, got undefined",
    ],
    [{ userMetadata: { a: 1 } }, "userMetadata must be an object of strings"],
  ])("with %j are refused", (request, message) => {
    expect(() => checkSearch(request)).toThrow(message);
  });
});

describe("billing windows", () => {
  it("are brought to UTC texts", () => {
    const window = {
      startingOn: new Date("2026-07-13T00:00:00Z"),
      endingBefore: "2026-07-14T02:00:00+02:00",
    };
    expect(checkWindow(window)).toEqual({
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
    expect(() => checkWindow({ startingOn, endingBefore })).toThrow(message);
  });
});
