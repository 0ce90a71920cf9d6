import { spawn } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { lines } from "./run-files.js";
import { TrainingBackend } from "./training-backend.js";

const place = await TrainingBackend.forTests("budget");
const program = fileURLToPath(new URL("./budget-trainer.mjs", import.meta.url));
const SEEDS = 20;

/** Trains in a process of its own, which is killed when it has ended a step. */
function trainInProcess(
  args: readonly string[],
  killAtStep?: number,
): Promise<"killed" | { by: string | null }> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [program, ...args], { stdio: ["ignore", "pipe", "pipe"] });
    let [output, errors] = ["", ""];
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      output += text;
      if (killAtStep !== undefined && output.includes(`ended ${killAtStep}\n`)) child.kill("SIGKILL");
    });
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      errors += text;
    });
    child.on("close", (code, signal) => {
      if (signal === "SIGKILL") resolve("killed");
      else if (code === 0) resolve(JSON.parse(output.trim().split("\n").at(-1)!));
      else reject(new Error(errors));
    });
  });
}

/** Tokens that the server has trained on, of all runs. */
async function trainedTokens(): Promise<number> {
  const hour = 3_600_000;
  const now = Math.floor(Date.now() / hour) * hour;
  const { data } = await place.service.createRestClient().getBillingUsage({
    startingOn: new Date(now - 24 * hour),
    endingBefore: new Date(now + 2 * hour),
  });
  return data.reduce(
    (sum, { eventInfo }) => (eventInfo.type === "training" ? sum + (eventInfo.tokenCount ?? 0) : sum),
    0,
  );
}

describe("a run under a budget that is killed and resumed", () => {
  it(`never passes it by more than a step, with ${SEEDS} seeds`, async () => {
    const overs: number[] = [];
    for (let seed = 0; seed < SEEDS; seed += 1) {
      const folder = join(place.home, `seed-${seed}`);
      const before = await trainedTokens();
      // A step is about 90 tokens, the whole run about 3,000.
      const budget = 600 + ((seed * 97) % 11) * 120;
      const args = [place.backend.baseURL, folder, String(seed), String(budget)];
      for (const moment of [1 + (seed % 3), 3 + (seed % 4)]) {
        const ended = await trainInProcess(args, moment);
        if (ended !== "killed") break;
      }
      expect(await trainInProcess(args)).toMatchObject({ by: "budget" });
      const spent = (await trainedTokens()) - before;
      const steps = await lines(folder, "metrics.jsonl");
      const largestStep = Math.max(...steps.map((line) => Number(line["num_tokens"])));
      overs.push(spent - budget);
      expect(spent).toBeGreaterThan(0.5 * budget);
      expect(spent, `seed ${seed}, budget ${budget}`).toBeLessThanOrEqual(budget + largestStep);
    }
    console.log(`tokens over the budget: ${overs.join(", ")}`);
  });
});
