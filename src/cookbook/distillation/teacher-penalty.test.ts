import { describe, expect, it } from "vitest";
import { ModelInput } from "../../wire/index.js";
import type { RolloutDatum } from "../reinforcement/index.js";
import { hintedLogprobs } from "./hints.js";
import { teacherPenalty } from "./teacher-penalty.js";

describe("teacherPenalty", () => {
  const datum = (group: number): RolloutDatum => ({
    input: ModelInput.fromInts([1, 2, 3]),
    targetTokens: Int32Array.of(2, 3, 4),
    logprobs: Float32Array.of(0, -1, -2),
    advantages: Float32Array.of(0, 0.5, 0.5),
    mask: Float32Array.of(0, 1, 1),
    group,
    trajectory: 0,
  });
  const scorer = (logprob: number) => ({ computeLogprobs: async () => [null, logprob, logprob, logprob] });
  const rolled = (...tags: string[]) => ({
    index: 0,
    group: { trajectories: [], groupRewards: [], metrics: [], failures: [], tags },
    samplerStep: 0,
    seconds: 0,
  });
  const { signal } = new AbortController();

  it("takes the reverse KL off, by the teacher of each group, whichever groups are left", async () => {
    const penalty = teacherPenalty({ teachers: { a: scorer(-1), b: scorer(-4) }, coefficient: 0.5 });
    // A group of teacher a between them was dropped.
    const data = [datum(0), datum(1), datum(1)];
    const metrics = await penalty.apply(data, { groups: [rolled("b"), rolled("x", "a")], signal });
    expect(data.map(({ advantages }) => [...advantages])).toEqual([
      [0, 0.5 - 1.5, 0.5 - 1],
      [0, 0.5, 1],
      [0, 0.5, 1],
    ]);
    expect(metrics).toEqual({ teacher_kl: 0.5, "teacher_kl/b": 2.5, "teacher_kl/a": -0.5 });
    await expect(penalty.apply([datum(0)], { groups: [rolled("c")], signal })).rejects.toThrow(
      "Group 0 must have the tag of one teacher (a, b), and has none.",
    );
  });

  it("lets earlier tokens answer for later ones, and changes nothing when a teacher fails", async () => {
    const discounted = teacherPenalty({ teachers: { a: scorer(-4) }, discount: 0.5 });
    const data = [datum(0)];
    await discounted.apply(data, { groups: [rolled()], signal });
    expect([...data[0]!.advantages]).toEqual([0, 0.5 - 3 - 1, 0.5 - 2]);
    const broken = { computeLogprobs: () => Promise.reject(new Error("gone")) };
    const penalty = teacherPenalty({ teachers: { a: scorer(-4), b: broken } });
    const untouched = [datum(0), datum(1)];
    await expect(penalty.apply(untouched, { groups: [rolled("a"), rolled("b")], signal })).rejects.toThrow(
      "gone",
    );
    expect(untouched).toEqual([datum(0), datum(1)]);
  });

  it("with a hint finds each token behind the teacher's prompt, also where a server leaves out the first", async () => {
    const prompt = ModelInput.fromInts([7, 8, 9, 10]);
    const scores = [null, -0.1, -0.2, -0.3, -3, -4];
    for (const found of [scores, scores.slice(1)]) {
      const teacher = { computeLogprobs: async () => found, sample: () => expect.unreachable() };
      const { logprobs, isCut } = await hintedLogprobs(datum(0), { teacher, prompt });
      expect([...logprobs]).toEqual([undefined, -3, -4]);
      expect(isCut).toBe(false);
    }
  });
});
