import { expect, it } from "vitest";
import { systemClock } from "../../transport/clock.js";
import type { RunRecord } from "../store/run-store.js";
import type { StoredSession } from "../store/session-store.js";
import { Activity, type RunActivity, runEndOf } from "./activity.js";

const run: RunRecord = {
  id: "0123456789:train:1",
  owner: "local",
  sessionId: "0123456789",
  projectId: null,
  baseModel: "tiny",
  lora: { rank: 4, seed: 1, trainAttn: true, trainMlp: true, trainUnembed: true },
  userMetadata: null,
  createdAt: 0,
  lastRequestAt: 0,
  corrupted: false,
};
const session: StoredSession = {
  id: "0123456789",
  owner: "local",
  projectId: null,
  displayName: null,
  tags: [],
  userMetadata: null,
  sdkVersion: "",
  createdAt: 0,
  status: { type: "active" },
  samplers: [],
};
const sources = { trainingRequests: () => 0, sequences: () => 0 };

function atTime() {
  const time = { nowMs: 100_000 };
  const activity = new Activity({ ...systemClock, now: () => time.nowMs });
  return { time, activity };
}

it("counts tokens over the last ten seconds, spread over the time they took", () => {
  const { time, activity } = atTime();
  const rates = () => {
    const { sampledTokensPerSecond, trainedTokensPerSecond } = activity.status(sources);
    return [sampledTokensPerSecond, trainedTokensPerSecond];
  };
  activity.sampled(100, 100_000);
  activity.trained("none", { lossSum: 1, weight: 1, tokens: 50, isForward: true, startedAt: 100_000 });
  expect(rates()).toEqual([10, 5]);
  time.nowMs += 9_000;
  expect(rates()).toEqual([10, 5]);
  time.nowMs += 1_000;
  expect(rates()).toEqual([0, 0]);
  // 40 seconds of work, of which a quarter lies in the window.
  time.nowMs = 200_500;
  activity.sampled(4_100, 160_200);
  expect(rates()).toEqual([100, 0]);
});

it("tells of steps with the loss of the passes before them, and forgets runs that ended", () => {
  const { activity } = atTime();
  const told: RunActivity[] = [];
  const unsubscribe = activity.subscribe((event) => told.push(event));
  activity.created(run, session);
  const pass = { tokens: 3, startedAt: 100_000, isForward: false };
  activity.trained(run.id, { ...pass, lossSum: 3, weight: 2 });
  activity.trained(run.id, { ...pass, lossSum: 5, weight: 2 });
  activity.trained(run.id, { ...pass, lossSum: 100, weight: 1, isForward: true });
  activity.stepped(run.id);
  activity.stepped(run.id);
  expect(told.map(({ type, run: { steps, loss } }) => [type, steps, loss])).toEqual([
    ["created", 0, undefined],
    ["step", 1, 2],
    ["step", 2, undefined],
  ]);
  expect(activity.status(sources).runs).toHaveLength(1);
  unsubscribe();
  activity.ended(run.id, runEndOf({ type: "expired", at: 0 }, false));
  expect(told).toHaveLength(3);
  expect(activity.status(sources).runs).toEqual([]);
});

it.each([
  ["01234567:1", run, session],
  ["shown 2", run, { ...session, displayName: "shown" }],
  ["shown", { ...run, id: "0123456789:train:0" }, { ...session, displayName: "shown" }],
  ["noted 2", run, { ...session, displayName: "shown", userMetadata: { name: "noted" } }],
  ["own", { ...run, userMetadata: { name: "own" } }, { ...session, displayName: "shown" }],
])("calls a run %s", (name, record, itsSession) => {
  const { activity } = atTime();
  activity.created(record, itsSession);
  expect(activity.status(sources).runs[0]!.name).toBe(name);
});
