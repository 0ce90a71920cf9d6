import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Turn } from "../../src/cookbook/environments/index.js";
import { assembleData, type TrajectoryGroup } from "../../src/cookbook/index.js";
import { writeRollouts } from "../../src/cookbook/rollouts/rollout-files.node.js";
import { ModelInput } from "../../src/wire/index.js";

describe("records of episodes", () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "tinkerts-rollouts-"));
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  const lines = (file: string) =>
    readFileSync(join(folder, file), "utf8")
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
  const turn = (prompt: readonly number[], tokens: readonly number[], more: Partial<Turn> = {}): Turn => ({
    observation: ModelInput.fromInts(prompt),
    action: {
      tokens: Int32Array.from(tokens),
      logprobs: Float32Array.from(tokens, (token) => -token / 10),
      stopReason: "stop",
    },
    reward: 0,
    isDone: false,
    isMasked: false,
    metrics: {},
    logs: {},
    ...more,
  });
  const groupOf = (...episodes: readonly (readonly Turn[])[]): TrajectoryGroup => ({
    trajectories: episodes.map((turns) => ({
      turns,
      finalObservation: ModelInput.empty(),
      end: "completed",
    })),
    groupRewards: episodes.map(() => 0.5),
    metrics: episodes.map(() => ({})),
    failures: [],
    tags: ["sums"],
  });

  it("have a line for each episode with all that was read, sampled and trained on", async () => {
    const group = groupOf(
      [
        turn([1, 2], [3, 4], { metrics: { odd: Number.NaN } }),
        turn([1, 2, 3, 4, 5], [6], { isMasked: true }),
        turn([9, 9], [7, 8], { reward: 1, isDone: true, logs: { said: "seven" } }),
      ],
      [turn([1, 2], [3], { isDone: true })],
    );
    const data = assembleData([group], [[2, -2]]);
    const batch = { split: "train", iteration: 7, groups: [{ group, data, samplerStep: 6 }] } as const;
    await writeRollouts(folder, batch);
    const [first, second] = lines("iteration_000007/train_rollout_summaries.jsonl");
    expect(first).toEqual({
      schema_version: 1,
      split: "train",
      iteration: 7,
      group_idx: 0,
      traj_idx: 0,
      tags: ["sums"],
      sampling_client_step: 6,
      total_reward: 1.5,
      final_reward: 0.5,
      trajectory_metrics: {},
      final_ob_len: 0,
      stop_reason: "completed",
      steps: [
        {
          ...{ step_idx: 0, ob_len: 2, ac_len: 2, reward: 0, episode_done: false, logs: {} },
          metrics: { odd: null },
          ...{ ob_tokens: [1, 2], tokens: [3, 4], logprobs: [-0.300000012, -0.400000006] },
          ...{ advantages: [2, 2], mask: [1, 1] },
        },
        {
          ...{ step_idx: 1, ob_len: 5, ac_len: 1, reward: 0, episode_done: false, logs: {} },
          metrics: {},
          ...{ ob_tokens: [5], tokens: [6], logprobs: [-0.600000024], advantages: [0], mask: [0] },
        },
        {
          ...{ step_idx: 2, ob_len: 2, ac_len: 2, reward: 1, episode_done: true, logs: { said: "seven" } },
          metrics: {},
          ...{ ob_tokens: [9, 9], tokens: [7, 8], logprobs: [-0.699999988, -0.800000012] },
          ...{ advantages: [2, 2], mask: [1, 1] },
        },
      ],
    });
    expect(second).toMatchObject({ traj_idx: 1, steps: [{ tokens: [3], advantages: [-2], mask: [1] }] });
    expect(Math.fround(first.steps[0].logprobs[0])).toBe(Math.fround(-0.3));
  });

  it("find each turn in what was trained on, also where all of a stretch is masked", async () => {
    const group = groupOf([
      turn([1, 2], [3, 4], { isMasked: true }),
      turn([1, 2], [3, 4]),
      turn([5], [], {}),
      turn([8, 8, 8], [3], { isMasked: true }),
    ]);
    const data = assembleData([group], [[1]]);
    expect(data.length).toBe(1);
    await writeRollouts(folder, { split: "train", iteration: 0, groups: [{ group, data }] });
    const [{ steps }] = lines("iteration_000000/train_rollout_summaries.jsonl");
    expect(steps.map(({ advantages }: { advantages?: number[] }) => advantages)).toEqual([
      undefined,
      [1, 1],
      undefined,
      undefined,
    ]);
  });

  it("of an evaluation have its name, and messages as Python has them", async () => {
    const group = groupOf([turn([1], [2])]);
    const messages = [
      { role: "assistant", content: "", toolCalls: [{ name: "add", arguments: "{}" }] },
      { role: "tool", content: [{ type: "thinking", thinking: "hm" } as const], toolCallId: "a" },
    ];
    const [trajectory] = group.trajectories;
    const told = { ...group, trajectories: [{ ...trajectory!, messages }] };
    await writeRollouts(folder, { split: "eval/held_out", iteration: 3, groups: [{ group: told }] });
    const [line] = lines("iteration_000003/eval_held_out_rollout_summaries.jsonl");
    const expected = [
      {
        role: "assistant",
        content: "",
        tool_calls: [{ type: "function", id: null, function: { name: "add", arguments: "{}" } }],
      },
      { role: "tool", content: [{ type: "thinking", thinking: "hm" }], tool_call_id: "a" },
    ];
    expect(line).toMatchObject({ split: "eval/held_out", sampling_client_step: null, messages: expected });
    const tree = readFileSync(join(folder, "iteration_000003/eval_held_out_logtree.json"), "utf8");
    expect(JSON.parse(tree).title).toBe("Running evaluation held_out 3");
    expect(tree).toContain(JSON.stringify({ type: "conversation", messages: expected }));
  });

  it("show only some groups as a tree, or none", async () => {
    const groups = Array.from({ length: 6 }, () => ({ group: groupOf([turn([1], [2])]) }));
    const titles = (file: string) =>
      [...readFileSync(join(folder, file), "utf8").matchAll(/"Group Rollout"/g)].length;
    await writeRollouts(folder, { split: "train", iteration: 1, groups });
    expect(titles("iteration_000001/train_logtree.json")).toBe(4);
    await writeRollouts(folder, { split: "train", iteration: 2, groups }, { numGroupsShown: 0 });
    expect(existsSync(join(folder, "iteration_000002/train_logtree.json"))).toBe(false);
    expect(lines("iteration_000002/train_rollout_summaries.jsonl").length).toBe(6);
  });

  it("are replaced as a whole, and stay outside no folder", async () => {
    const write = (size: number) => {
      const groups = Array.from({ length: size }, () => ({ group: groupOf([turn([1], [2])]) }));
      return writeRollouts(folder, { split: "train", iteration: 1, groups });
    };
    await write(3);
    await write(1);
    expect(lines("iteration_000001/train_rollout_summaries.jsonl").length).toBe(1);
    expect(readdirSync(join(folder, "iteration_000001")).length).toBe(2);
    const outside = writeRollouts(folder, { split: "eval/../../x", iteration: 1, groups: [] });
    await expect(outside).rejects.toThrow("split must be train, or eval/");
  });
});
