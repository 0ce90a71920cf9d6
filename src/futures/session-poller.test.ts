import { expect, it } from "vitest";
import { APIUserAbortError } from "../errors.js";
import type { FutureContext } from "./context.js";
import { SessionFuturesPoller } from "./session-poller.js";

it("does not wait for a request whose signal aborted between its acceptance and the wait", async () => {
  let polls = 0;
  const exchange = () => {
    polls += 1;
    return new Promise<never>(() => {});
  };
  const context = { http: { exchange }, closed: new AbortController().signal };
  const poller = new SessionFuturesPoller(context as unknown as FutureContext, "sampler", () => 0);
  await expect(poller.waitFor("request", AbortSignal.abort())).rejects.toBeInstanceOf(APIUserAbortError);
  expect(polls).toBe(0);
});
