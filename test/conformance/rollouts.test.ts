import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  type RecordedBatch,
  type RecordedGroup,
  rolloutDefaults,
  rolloutRecords,
} from "../../src/cookbook/rollouts/index.js";
import { logTree } from "../../src/cookbook/rollouts/log-tree.js";
import { writeRollouts } from "../../src/cookbook/rollouts/rollout-files.node.js";
import { ModelInput } from "../../src/wire/index.js";
import { explainSkip, hasPythonModule, Judge } from "./judge.js";
import { CASES, SEED } from "./judged.js";
import { Random } from "./random.js";
import { writeReport } from "./report.js";
import { type AllowedDifference, EPISODE_DIFFERENCES, GROUP_DIFFERENCES } from "./rollout-differences.js";
import {
  type GroupCase,
  groupCase,
  type PlayedGroup,
  type PlayedRollout,
  playGroup,
  playRollout,
  rolloutCase,
} from "./rollout-scripts.js";

explainSkip("rollouts.test.ts");

/** What ours are called, by Python's names. */
const OUR_ERRORS: Readonly<Record<string, string>> = {
  SamplingTurnTimeoutError: "RolloutTimeoutError",
  TypeError: "TinkerError",
};

/** Without what JSON does not tell apart, as 0 and -0. */
const asJson = <T>(value: T): T => JSON.parse(JSON.stringify(value)) as T;

describe.skipIf(!hasPythonModule("tinker_cookbook", "rollouts.test.ts"))(
  "rollouts, judged by the Python cookbook",
  () => {
    let judge: Judge;
    const counts: Record<string, number> = {};
    const allowed: { name: string; reason: string; times: number }[] = [];
    beforeAll(() => {
      judge = new Judge("rollouts.py");
    });
    afterAll(async () => {
      writeReport("rollouts", { counts, allowed });
      await judge?.[Symbol.asyncDispose]();
    });

    it(`run ${CASES} scripted episodes alike, under limits and with hooks`, async () => {
      const cases = new Random(SEED).times(CASES, rolloutCase);
      const judged = await judge.ask<PlayedRollout[]>("rollouts", { cases });
      const theirs = judged.map(({ error, ...played }) => ({
        ...played,
        ...(error !== undefined && { error: OUR_ERRORS[error] ?? error }),
      }));
      allowed.push(...(await expectAlike(cases, playRollout, theirs, EPISODE_DIFFERENCES)));
      counts["episodes"] = CASES;
    });

    it(`run ${CASES} groups with failing environments alike, whatever the strategy`, async () => {
      const cases = new Random(SEED).times(CASES, groupCase);
      const judged = await judge.ask<PlayedGroup[]>("groups", { cases });
      const play = async (script: GroupCase) => comparable(await playGroup(script));
      allowed.push(...(await expectAlike(cases, play, judged.map(comparable), GROUP_DIFFERENCES)));
      counts["groups"] = CASES;
    });

    it("write episodes down alike, as records and as a tree", async () => {
      const random = new Random(SEED);
      const groups = random.times(CASES >> 3, recordedGroup);
      const batch: RecordedBatch = { split: "train", iteration: 12, groups };
      const judged = await judge.ask<{ summaries: Record<string, unknown>[]; details: Node[] }>("records", {
        split: batch.split,
        iteration: batch.iteration,
        groups: groups.map(describeGroup),
      });
      const summaries = [...rolloutRecords(batch)].map(({ stop_reason, messages, steps, ...record }) => ({
        ...record,
        steps: (steps as Record<string, unknown>[]).map(
          ({ ob_tokens, tokens, logprobs, advantages, mask, ...step }) => step,
        ),
      }));
      expect(summaries).toEqual(judged.summaries);
      const tree = logTree(batch, groups.length, new Date(0)) as { root: Node };
      expect(sectionsOf(tree.root, "Episode Details")).toEqual(judged.details);
      counts["records"] = summaries.length;
    });

    it("are found and read by Python's store of a run", async () => {
      const folder = mkdtempSync(join(tmpdir(), "tinkerts-records-"));
      try {
        const [first, second] = new Random(SEED).times(2, recordedGroup);
        const group = { ...first!.group, metrics: first!.group.metrics.map(() => ({ odd: Number.NaN })) };
        const groups = [{ ...first!, group }, second!];
        await writeRollouts(folder, { split: "train", iteration: 12, groups });
        await writeRollouts(folder, { split: "eval/sums", iteration: 12, groups: [] });
        const read = await judge.ask<Record<string, unknown>>("read", { folder, iteration: 12 });
        expect(read).toMatchObject({
          iterations: [
            { iteration: 12, has_train_rollouts: true, has_train_logtree: true, eval_labels: ["sums"] },
          ],
          logtrees: ["eval_sums", "train"],
          single: { group_idx: 0, traj_idx: 1, trajectory_metrics: { odd: null } },
          tree: { title: "RL Iteration 12", path: null },
        });
        const records = [...rolloutRecords({ split: "train", iteration: 12, groups })];
        expect(read["train"]).toEqual(asJson(records));
      } finally {
        rmSync(folder, { recursive: true });
      }
    });

    it("have the same settings for each model", async () => {
      const models = [
        "thinkingmachines/Inkling",
        "thinkingmachines/Inkling-Small:peft:262144",
        "Qwen/Qwen3-8B",
      ];
      const judged = await judge.ask<Settings[]>("presets", { models });
      for (const [index, model] of models.entries()) {
        const { limits, parse_errors, termination, tool_execution, strategy } = judged[index]!;
        const ours = rolloutDefaults(model);
        expect(ours.limits ?? {}).toEqual(
          present({
            maxTurns: limits["max_turns"],
            maxTrajectoryTokens: limits["max_trajectory_tokens"],
            maxToolCalls: limits["max_tool_calls"],
            maxSampledTokens: limits["max_sampled_tokens"],
            maxTurnTokens: limits["max_turn_tokens"],
            timeoutMs: limits["rollout_timeout_seconds"],
            sampleTimeoutMs: limits["sampling_turn_timeout_seconds"],
          }),
        );
        expect(ours.parseErrors?.maxConsecutive).toBe(parse_errors?.["max_consecutive"]);
        expect(ours.termination).toEqual(
          termination === null
            ? undefined
            : {
                zeroRewardOnLimit: termination["zero_reward_on_limit"],
                skipGradingOnTimeout: termination["skip_grading_on_timeout"],
                graderTimeoutMs: 1000 * (termination["grader_timeout_seconds"] as number),
              },
        );
        expect(ours.toolExecution ?? "parallel").toBe(tool_execution);
        expect(ours.strategy.skipsFailedGroups).toBe(strategy === "MinViableGroup");
      }
    });
  },
);

/** Fails where ours and theirs differ but for what is allowed, and says how often that was. */
async function expectAlike<Script, Played>(
  scripts: readonly Script[],
  play: (script: Script) => Promise<Played>,
  judged: readonly Played[],
  allowed: readonly AllowedDifference<Script, Played>[],
) {
  const found = allowed.map(({ name, reason, explains }) => ({ name, reason, explains, times: 0 }));
  const unexplained = [];
  for (const [index, script] of scripts.entries()) {
    const difference = { script, ours: asJson(await play(script)), theirs: asJson(judged[index]!) };
    if (isDeepStrictEqual(difference.ours, difference.theirs)) continue;
    const explanation = found.find(({ explains }) => explains(difference));
    if (explanation === undefined) unexplained.push(JSON.stringify(difference));
    else explanation.times += 1;
  }
  expect(unexplained.slice(0, 2)).toEqual([]);
  // Few scripts do not meet all of them.
  if (CASES >= 1000) expect(found.filter(({ times }) => times === 0)).toEqual([]);
  return found.map(({ name, reason, times }) => ({ name, reason, times }));
}

/** With the names of each object in the order of the alphabet. */
const inOrder = (value: unknown): string =>
  JSON.stringify(value, (_, each: unknown) =>
    typeof each === "object" && each !== null && !Array.isArray(each)
      ? Object.fromEntries(Object.entries(each).toSorted(([one], [other]) => (one < other ? -1 : 1)))
      : each,
  );

/** Python's episodes come in the order in which they ended, ours in that of the group. */
function comparable({ ok, failures, error, ...rest }: PlayedGroup): PlayedGroup {
  const { "rollout_errors/RolloutTimeoutError": ours = 0, ...others } = failures ?? {};
  const timeouts = ours + (others["rollout_errors/TimeoutError"] ?? 0);
  return {
    ...rest,
    ...(error !== undefined && { error: error.replace(/^RolloutTimeout/, "Timeout") }),
    ...(ok && { ok: ok.toSorted((one, other) => (inOrder(one) < inOrder(other) ? -1 : 1)) }),
    ...(failures && {
      failures: { ...others, ...(timeouts > 0 && { "rollout_errors/TimeoutError": timeouts }) },
    }),
  };
}

interface Node {
  readonly tag: string;
  readonly children: readonly (Node | string)[];
}

type Fields = Readonly<Record<string, unknown>>;

interface Settings {
  readonly limits: Fields;
  readonly parse_errors: Fields | null;
  readonly termination: Fields | null;
  readonly tool_execution: string;
  readonly strategy: string;
}

const present = (fields: Fields): Fields =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));

/** All sections with this title, in order. */
function sectionsOf(node: Node, title: string): Node[] {
  const [header] = node.children;
  if (node.tag === "section" && typeof header === "object" && header.children[0] === title) return [node];
  return node.children.flatMap((child) => (typeof child === "string" ? [] : sectionsOf(child, title)));
}

const LOGS = ["seven", "<b>&'\"", "two\nlines", "long ".repeat(30), "☃".repeat(119), 3];
// With odd sixteenths, which lie in the middle of two thousandths.
const NUMBERS = [0, 1, -1, 0.1, 1 / 3, 1 / 16, 3 / 16, -5 / 16, 1234.0625, 2e6, -1e-5];

function recordedGroup(random: Random): RecordedGroup {
  const size = random.integer(2, 4);
  return {
    group: {
      trajectories: random.times(size, (each) => ({
        turns: each.times(each.integer(1, 3), (turn) => {
          const length = turn.integer(0, 4);
          return {
            observation: ModelInput.fromInts(Array.from({ length: turn.integer(0, 9) }, (_, place) => place)),
            action: {
              tokens: Int32Array.from({ length }, (_, place) => place),
              logprobs: new Float32Array(length).fill(-0.5),
              stopReason: "stop",
            },
            reward: turn.pick(NUMBERS),
            isDone: turn.chance(0.5),
            isMasked: false,
            metrics: turn.chance(0.5) ? { correct: turn.pick(NUMBERS), "stop/completed": 1 } : {},
            logs: turn.chance(0.6) ? { said: turn.pick(LOGS), "<more>": turn.pick(LOGS) } : {},
          };
        }),
        finalObservation: ModelInput.fromInts(Array.from({ length: each.integer(0, 5) }, () => 1)),
        end: "completed",
      })),
      groupRewards: random.times(size, (each) => each.pick(NUMBERS)),
      metrics: random.times(size, (each) => ({ rank: each.integer(0, 3) })),
      failures: [],
      tags: ["sums", "small"],
    },
    samplerStep: random.chance(0.5) ? random.integer(0, 9) : undefined,
  };
}

function describeGroup({ group, samplerStep = undefined }: RecordedGroup) {
  return {
    ...group,
    samplerStep: samplerStep ?? null,
    trajectories: group.trajectories.map(({ turns, finalObservation, end }) => ({
      end,
      finalLength: finalObservation.length,
      turns: turns.map(({ observation, action, ...turn }) => ({
        ...turn,
        length: observation.length,
        tokens: [...action.tokens],
        logprobs: [...action.logprobs],
      })),
    })),
  };
}
