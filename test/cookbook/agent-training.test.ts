import { readFile } from "node:fs/promises";
import { join } from "node:path";
import OpenAI from "openai";
import { expect, it } from "vitest";
import {
  type AgentEpisode,
  environmentEvaluator,
  planReinforcement,
  trainReinforcement,
} from "../../src/cookbook/index.js";
import type { ReinforcementSettings } from "../../src/cookbook/reinforcement/index.js";
import { listSessions } from "../../src/gateway/index.js";
import { longTest } from "../support/long.js";
import { lines } from "./run-files.js";
import { TrainingBackend } from "./training-backend.js";

const place = await TrainingBackend.forTests("agent-training");

interface Sum {
  readonly a: number;
  readonly b: number;
}
const problems: readonly Sum[] = [
  { a: 57, b: 86 },
  { a: 68, b: 75 },
];

/** Asks twice, in one conversation. */
async function agent({
  problem: { a, b },
  baseURL,
  apiKey,
}: {
  problem: Sum;
  baseURL: string;
  apiKey: string;
}) {
  const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: `What is ${a} + ${b}?` }];
  for (const more of [undefined, "And now?"]) {
    if (more !== undefined) messages.push({ role: "user", content: more });
    const { choices } = await client.chat.completions.create({ model: "gpt-5", messages });
    messages.push(choices[0]!.message);
  }
  return messages.length;
}
/** By the episode's place in its group, so that no group is constant, whichever ends first. */
const alternating = ({ session }: AgentEpisode<Sum>) => {
  const place = session.tags.find((tag) => tag.startsWith("traj="))!.slice("traj=".length);
  return Number(place) % 2;
};

const common = {
  service: place.service,
  model: "tinkerts/nano",
  ...{ agent, problems, reward: alternating },
  ...{
    groupSize: 4,
    groupsPerBatch: 2,
    steps: 2,
    maxTokens: 6,
    rank: 4,
    dropConstantGroups: false,
    loggers: [],
  },
};

for (const mode of ["asynchronous", "synchronous", "streamed"] as const)
  (mode === "asynchronous" ? it : longTest)(
    `an agent is trained in the ${mode} mode, on the tokens that it was answered with`,
    async () => {
      const folder = join(place.home, mode);
      const sampled: number[] = [];
      const settings: Partial<ReinforcementSettings> =
        mode === "asynchronous" ? { mode, followWeights: true, maxStepsOffPolicy: 2 } : { mode };
      const run = await trainReinforcement<Sum>({
        ...common,
        ...settings,
        folder,
        onRollouts: ({ groups }) => {
          for (const { group } of groups)
            for (const { turns, end } of group.trajectories) {
              expect(turns).toHaveLength(2);
              expect(end).toBe("completed");
              sampled.push(...turns.map(({ action }) => action.samplerStep!));
            }
        },
      });
      expect(run.isFinished).toBe(true);
      expect(sampled).toHaveLength(2 * 2 * 4 * 2);
      const metrics = await lines(folder, "metrics.jsonl");
      // What was sampled with the weights that are trained has their logprobs.
      if (mode !== "asynchronous")
        for (const row of metrics.filter((each) => "optim/kl_sample_train_v1" in each))
          expect(Math.abs(Number(row["optim/kl_sample_train_v1"]))).toBeLessThan(1e-4);
      const samples = await lines(join(folder, "iteration_000000"), "train_rollout_summaries.jsonl");
      expect(samples).toHaveLength(8);
      expect(samples[0]).toMatchObject({
        stop_reason: "completed",
        steps: [{}, {}],
        messages: { length: 4 },
      });
      const { sessions } = await listSessions(join(folder, "sessions"));
      expect(sessions.length).toBeGreaterThanOrEqual(16);
      expect(sessions.every(({ end, reward }) => end === "ended" && reward !== undefined)).toBe(true);
      const capture = await readFile(join(folder, "sessions", "capture", "sample.jsonl"), "utf8");
      const [row] = capture.trim().split("\n");
      expect(JSON.parse(row!)).toMatchObject({
        scope: {
          run_id: mode,
          split: "train",
          iteration: 0,
          group_idx: expect.any(Number),
          traj_idx: expect.any(Number),
        },
        ...{ policy_version: "0", num_samples: 1, base_model: "tinkerts/nano" },
      });
    },
  );

it("is planned, evaluated and refused like any other training", async () => {
  const { config } = await planReinforcement<Sum>(common);
  expect(config).toMatchObject({ episodes: 16 });
  const run = await trainReinforcement<Sum>({
    ...common,
    steps: 1,
    evaluators: [
      environmentEvaluator<Sum>({ agent, problems, reward: alternating, maxTokens: 6, name: "agent" }),
    ],
  });
  expect(run.metrics).toMatchObject({
    "agent/env/all/total_episodes": 2,
    "agent/env/all/turns_per_episode": 2,
  });
  const wrong = (options: object) => trainReinforcement<Sum>({ ...common, ...options });
  await expect(wrong({ agent: "node agent.mjs" })).rejects.toThrow("agent must be a function of");
  await expect(wrong({ agent: { comand: "node" } })).rejects.toThrow("agent.comand");
  await expect(wrong({ limits: { maxToolCalls: 1 } })).rejects.toThrow("limits.maxToolCalls has no effect");
  await expect(wrong({ format: () => true })).rejects.toThrow("format cannot be combined with an agent");
  await expect(wrong({ reward: 1 })).rejects.toThrow("reward must be");
  await expect(wrong({ agent: undefined, reward: { rewardGroup: () => [] } })).rejects.toThrow(
    "reward compares the episodes of an agent",
  );
});
