import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const lines = (rows: readonly object[]) => `${rows.map((row) => JSON.stringify(row)).join("\n")}\n`;
/** Seconds since 1970. */
const STARTED = 1_790_000_000;

/** A run of a sweep, written as a training loop writes it: the best evaluation is not the last one. */
export function writeSweptRun(folder: string, { rate, rank, best }: SweptSettings): void {
  mkdirSync(folder, { recursive: true });
  const metrics = Array.from({ length: 20 }, (_, step) => ({
    ...{ step, time: STARTED + 3 * step, progress: (step + 1) / 40 },
    ...{ train_mean_nll: 4 - step / 10, "cost/usd": 0.01 * (step + 1) * rank, "grad_norm:mean": 1 },
    ...{ "time/sampling": 1, "time/train_step": 2, "time/total": 3 },
    ...(step % 5 === 4 && { "test/nll": step === 9 ? best : best + 1 }),
  }));
  writeFileSync(join(folder, "metrics.jsonl"), lines(metrics));
  const config = { model_name: "tinkerts/nano", learning_rate: rate, lora_rank: rank, seed: 0 };
  writeFileSync(join(folder, "config.json"), JSON.stringify(config));
  writeFileSync(join(folder, "checkpoints.jsonl"), lines([{ name: "final", final: true }]));
}

interface SweptSettings {
  readonly rate: number;
  readonly rank: number;
  readonly best: number;
}

/** Four runs and the `sweep.json` above them. */
export function writeSweep(folder: string): void {
  const settings: readonly SweptSettings[] = [
    { rate: 1e-4, rank: 4, best: 2 },
    { rate: 1e-4, rank: 16, best: 1.5 },
    { rate: 1e-3, rank: 4, best: 1.25 },
    { rate: 1e-3, rank: 16, best: 3 },
  ];
  const runs = settings.map(({ rate, rank, best }, index) => {
    const name = `${String(index + 1).padStart(3, "0")}-rate-${rate}-rank-${rank}`;
    writeSweptRun(join(folder, name), { rate, rank, best });
    return { folder: name, settings: { learningRate: rate, rank }, status: "finished" };
  });
  const sweep = { name: "rates", metric: "test/nll", direction: "min", runs };
  writeFileSync(join(folder, "sweep.json"), JSON.stringify(sweep));
}

/** A run with episodes of the same two prompts at each step; every token has its alternatives. */
export function writeEpisodes(folder: string, answers: (step: number, index: number) => string): void {
  for (const step of [0, 5, 10]) {
    const place = join(folder, `iteration_${String(step).padStart(6, "0")}`);
    mkdirSync(place, { recursive: true });
    const episodes = ["Which rivers flow north?", "Name a colour."].flatMap((content, group) =>
      [0, 1, 2].map((index) => ({
        ...{ group_idx: group, traj_idx: index, tags: [], total_reward: index - 1 },
        stop_reason: index === 2 ? "length" : "stop",
        messages: [
          { role: "user", content },
          { role: "assistant", content: answers(step, 3 * group + index) },
        ],
        steps: [
          {
            ...{ ob_len: 3, ac_len: 10 * (index + 1), reward: index - 1, metrics: {}, logs: {} },
            ...{
              tokens: [1, 2],
              logprobs: [-0.1, -2],
              top_logprobs: [
                [[1, -0.1]],
                [
                  [7, -0.2],
                  [2, -2],
                ],
              ],
            },
          },
        ],
      })),
    );
    writeFileSync(join(place, "train_rollout_summaries.jsonl"), lines(episodes));
  }
  const metrics = [0, 5, 10].map((step) => ({ step, "env/all/reward/total": step }));
  writeFileSync(join(folder, "metrics.jsonl"), lines(metrics));
  writeFileSync(join(folder, "config.json"), JSON.stringify({ model_name: "tinkerts/nano" }));
}
