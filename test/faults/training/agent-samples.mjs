// What agents were trained on, compared with what was sampled for them.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** Trained tokens of a run's samples whose answer is not among those that its gateway recorded as sampled. */
export function unsampledTokens(run) {
  const recorded = new Set(
    linesOf(join(run, "sessions", "capture", "sample.jsonl")).flatMap(({ prompt_length, samples }) =>
      samples.map(({ tokens, logprobs }) => keyOf(prompt_length, tokens, logprobs)),
    ),
  );
  let trained = 0;
  const differences = [];
  for (const step of readdirSync(run).filter((name) => /^iteration_\d+$/.test(name)))
    for (const { traj_idx, group_idx, steps } of linesOf(join(run, step, "train_rollout_summaries.jsonl")))
      for (const { mask, ob_len, tokens, logprobs } of steps) {
        if (!mask?.includes(1)) continue;
        trained += mask.filter((each) => each === 1).length;
        if (!recorded.has(keyOf(ob_len, tokens, logprobs)))
          differences.push(
            `${step}, group ${group_idx}, episode ${traj_idx}: an answer was trained that nobody sampled`,
          );
      }
  if (trained === 0) differences.push("nothing was trained");
  return differences;
}

const keyOf = (promptLength, tokens, logprobs) => JSON.stringify([promptLength, tokens, logprobs]);

/** A gateway that was killed may have left half a line. */
function linesOf(file) {
  if (!existsSync(file)) return [];
  return readFileSync(file, "utf8")
    .split("\n")
    .flatMap((line) => {
      try {
        return [JSON.parse(line)];
      } catch {
        return [];
      }
    });
}
