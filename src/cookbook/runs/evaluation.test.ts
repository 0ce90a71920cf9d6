import { setImmediate } from "node:timers/promises";
import { expect, it } from "vitest";
import type { ServiceClient, TrainingClient } from "../../clients/index.js";
import { startEvaluation } from "./evaluation.js";

it("an evaluation of a run that has failed fails once, and leaves no rejection that would end the process", async () => {
  const lost = new Error("the server is gone");
  const training = new Proxy({} as TrainingClient, {
    get: () => () => {
      throw lost;
    },
  });
  const unhandled: unknown[] = [];
  const note = (reason: unknown) => unhandled.push(reason);
  process.on("unhandledRejection", note);
  try {
    for (const best of [undefined, { metric: "test/nll", mode: "min", consider: async () => {} }]) {
      const plan = {
        ...{ every: 1, steps: 2, folder: undefined, ttlSeconds: undefined, service: {} as ServiceClient },
        heldOut: async (client: TrainingClient) => {
          await client.forward([], "cross_entropy");
          return {};
        },
        evaluators: [{ name: "sums", evaluate: async () => ({}) }],
        best: best as never,
      };
      const { signal } = new AbortController();
      const evaluating = (async () =>
        startEvaluation(training, { batch: 0, state: undefined }, plan, signal))();
      await expect(evaluating).rejects.toBe(lost);
    }
    await setImmediate();
    expect(unhandled).toEqual([]);
  } finally {
    process.off("unhandledRejection", note);
  }
});
