import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { conversations } from "../../src/cookbook/data/index.js";
import { trainReinforcement } from "../../src/cookbook/reinforcement/index.js";
import { trainSupervised } from "../../src/cookbook/supervised/index.js";
import type { ServiceClient } from "../../src/index.js";

const MODEL = "tinkerts/nano";

/** A short supervised run on the built-in backend. */
export function teach(service: ServiceClient, folder: string, learningRate: number) {
  const rows = ["stick", "river", "stone", "light", "table", "music"].map((word) => ({
    messages: [
      { role: "user", content: `Pig Latin for ${word}?` },
      { role: "assistant", content: `${word.slice(1)}-${word[0]}ay` },
    ],
  }));
  return trainSupervised({
    ...{ service, model: MODEL, folder, learningRate, data: conversations(rows), testSize: 2 },
    ...{ epochs: 4, batchSize: 2, rank: 4, evaluateEvery: 2, save: { everySteps: 4 }, loggers: [] },
  });
}

/** A short run by reward. */
export function reward(service: ServiceClient, folder: string) {
  return trainReinforcement({
    ...{ service, model: MODEL, folder, learningRate: 6e-3, steps: 2, loggers: [] },
    problems: ["57 + 86", "68 + 75"].map((sum) => ({ prompt: `What is ${sum}?` })),
    // Any difference will do.
    reward: ({ tokens }) => (tokens.reduce((sum, token) => sum + token, 0) % 5) / 2 - 1,
    ...{ groupSize: 6, groupsPerBatch: 2, maxTokens: 8, rank: 4 },
  });
}

/** What an attacker would like a page to make of a text. */
export const HOSTILE = `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>{{7*7}}javascript:alert(1)`;

/** A run in which every text looks like HTML, and whose numbers are bad. */
export function writeHostileRun(folder: string): void {
  const step = join(folder, "iteration_000003");
  mkdirSync(step, { recursive: true });
  const metrics = [
    JSON.stringify({ step: 0, loss: 1, [`loss/${HOSTILE}`]: 1, note: HOSTILE }),
    '{"step": 1, "loss": NaN, "huge": 1e308, "tiny": 1e-320}',
    '{"step": 2, "loss": -Infinity, "huge": -1e308, "tiny": -4.9e-324}',
    '{"step": 9007199254740993, "loss": 1e999, "huge": 2}',
    "Traceback (most recent call last):",
    '{"step": 4, "loss": 0.5, "hu',
  ];
  writeFileSync(join(folder, "metrics.jsonl"), metrics.join("\n"));
  writeFileSync(join(folder, "config.json"), JSON.stringify({ model_name: HOSTILE }));
  writeFileSync(
    join(folder, "checkpoints.jsonl"),
    `${JSON.stringify({ name: HOSTILE, state_path: `tinker://${HOSTILE}/weights/a`, batch: 1 })}\nhalf`,
  );
  const message = {
    role: HOSTILE,
    content: [
      { type: "thinking", thinking: HOSTILE },
      { type: "text", text: HOSTILE },
      { type: "image", image: HOSTILE },
    ],
    tool_calls: [{ function: { name: HOSTILE, arguments: HOSTILE } }],
  };
  const episode = {
    ...{
      group_idx: 0,
      traj_idx: 0,
      tags: [HOSTILE],
      total_reward: 1,
      stop_reason: HOSTILE,
      messages: [message],
    },
    trajectory_metrics: { [HOSTILE]: 1 },
    steps: [
      { ob_len: 1, ac_len: 2, reward: 1, metrics: {}, logs: { [HOSTILE]: HOSTILE }, tokens: [1, 999_999] },
    ],
  };
  writeFileSync(join(step, "train_rollout_summaries.jsonl"), `${JSON.stringify(episode)}\n{"half`);
  const escaped = HOSTILE.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const report = {
    title: HOSTILE,
    root: {
      tag: "body",
      children: [
        { tag: "script", children: ["window.hacked=1"] },
        {
          tag: "section",
          children: [{ tag: "h2", children: [escaped] }, { tag: "p", children: [escaped] }, HOSTILE],
        },
        { tag: "div", children: [], data: { type: "conversation", messages: [message] } },
        { tag: "table", children: [{ tag: "tr", children: [{ tag: "td", children: [escaped] }] }] },
      ],
    },
  };
  writeFileSync(join(step, "train_logtree.json"), JSON.stringify(report));
}
