import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import OpenAI from "openai";
import { afterEach, describe, expect, it, vi } from "vitest";
import type { AgentEpisode, AgentOptions } from "../../src/cookbook/agents/agent.js";
import { agentGroups } from "../../src/cookbook/agents/agent-groups.node.js";
import { rulerReward } from "../../src/cookbook/agents/index.js";
import {
  type GroupSource,
  type TrajectoryGroup,
  totalRewards,
} from "../../src/cookbook/environments/index.js";
import { trajectoryData } from "../../src/cookbook/reinforcement/assemble.js";
import { failFast, runRolloutGroup } from "../../src/cookbook/rollouts/index.js";
import type { RolloutGroupOptions } from "../../src/cookbook/rollouts/rollout-group.js";
import { APIConnectionError } from "../../src/errors.js";
import { listSessions } from "../../src/gateway/index.js";
import { FakeClock } from "../support/fake-clock.js";
import { folderForTests } from "../support/folder-for-tests.js";
import { callText, renderer, ScriptedPolicy } from "./agent-policy.js";

const home = folderForTests("agents");
const sources: GroupSource[] = [];
afterEach(async () => {
  for (const source of sources.splice(0)) await source.close?.();
});

interface Played {
  readonly group: TrajectoryGroup;
  readonly episodes: readonly AgentEpisode<string>[];
}

/** Plays one group, and keeps what the reward saw. */
async function play(
  agent: AgentOptions<string>["agent"],
  {
    policy = new ScriptedPolicy(),
    reward = () => 1,
    groupSize = 1,
    folder,
    ...options
  }: {
    policy?: ScriptedPolicy;
    reward?: AgentOptions<string>["reward"];
    groupSize?: number;
    folder?: string;
  } & RolloutGroupOptions = {},
): Promise<Played> {
  const episodes: AgentEpisode<string>[] = [];
  const seen =
    typeof reward === "function"
      ? async (episode: AgentEpisode<string>) => {
          episodes.push(episode);
          return reward(episode);
        }
      : reward;
  const source = agentGroups<string>(
    { agent, problems: ["What is 3 + 4?"], reward: seen },
    { model: "tinkerts/nano", renderer, groupSize, seed: 0, maxContextLength: 8192, folder },
  );
  sources.push(source);
  const group = await source.group(0);
  return {
    group: await runRolloutGroup(group!, policy, { seed: 1, strategy: failFast(), ...options }),
    episodes,
  };
}

const tools = [
  {
    type: "function" as const,
    function: { name: "add", description: "Adds.", parameters: { type: "object", properties: {} } },
  },
];
type Messages = OpenAI.ChatCompletionMessageParam[];
const user = (content: string) => ({ role: "user" as const, content });

/** An agent as people write them: it calls tools until it has an answer. */
async function askWithTools(client: OpenAI, question: string): Promise<string> {
  const messages: Messages = [user(question)];
  for (;;) {
    const { choices } = await client.chat.completions.create({ model: "gpt-5", messages, tools });
    const { message } = choices[0]!;
    messages.push(message);
    if (!message.tool_calls?.length) return message.content ?? "";
    for (const { id } of message.tool_calls) messages.push({ role: "tool", tool_call_id: id, content: "7" });
  }
}

const loop: AgentOptions<string>["agent"] = ({ problem, baseURL, apiKey }) =>
  askWithTools(new OpenAI({ baseURL, apiKey, maxRetries: 0 }), problem);

const once: AgentOptions<string>["agent"] = async ({ problem, baseURL, apiKey }) => {
  const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
  await client.chat.completions.create({ model: "any", messages: [user(problem)] });
};

describe("an agent that is a function", () => {
  it("becomes an episode of the tokens that were sampled; its reward sees conversation, tools and output", async () => {
    const policy = new ScriptedPolicy((prompt) =>
      prompt.includes("tool_response") ? "It is 7." : callText("add", { a: 3 }),
    );
    policy.isMoving = true;
    const { group, episodes } = await play(loop, {
      policy,
      reward: () => ({ reward: 0.5, metrics: { seen: 1 }, logs: { note: "x" } }),
    });
    expect(episodes).toMatchObject([
      {
        ...{ problem: "What is 3 + 4?", text: "It is 7.", output: "It is 7.", end: "completed" },
        toolResults: [{ name: "add", arguments: '{"a": 3}', result: "7" }],
        messages: [{ role: "user" }, { role: "assistant" }, { role: "tool" }, { role: "assistant" }],
        session: { end: "ended", counts: { requests: 2, failures: 0 } },
      },
    ]);
    const [trajectory] = group.trajectories;
    expect(totalRewards(group)).toEqual([0.5]);
    expect(trajectory).toMatchObject({ end: "completed", messages: { length: 4 } });
    expect(trajectory!.turns.map(({ action }) => action.samplerStep)).toEqual([1, 2]);
    expect(trajectory!.turns.at(-1)).toMatchObject({
      metrics: { seen: 1, requests: 2, forks: 0, "stop/completed": 1 },
      logs: { note: "x" },
    });
    const [datum, ...others] = trajectoryData(trajectory!, 2);
    expect(others).toEqual([]);
    const trained = [...datum!.targetTokens].filter((_, at) => datum!.mask[at] === 1);
    expect(trained).toEqual(policy.asked.flatMap(({ tokens }) => tokens));
  });

  it("forks where its history differs, and leaves out answers that it asked for again", async () => {
    let count = 0;
    const policy = new ScriptedPolicy(() => `answer ${count++}`);
    const { group } = await play(
      async ({ baseURL, apiKey }) => {
        const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
        const ask = async (messages: Messages) => {
          const { choices } = await client.chat.completions.create({ model: "any", messages });
          return [...messages, choices[0]!.message];
        };
        const first = await ask([user("one")]);
        await ask([...first, user("two")]);
        const again = await ask([...first, user("two")]);
        await ask([...again, user("three")]);
        await ask([user("A title?")]);
      },
      { policy },
    );
    const { turns } = group.trajectories[0]!;
    expect(turns.map(({ isMasked }) => isMasked)).toEqual([false, true, false, false, false]);
    expect(turns.map(({ logs }) => logs["fork"])).toEqual([
      ...[undefined, undefined],
      ...["the same request again", undefined, "message 0 (user) differs"],
    ]);
    const data = trajectoryData(group.trajectories[0]!, 1);
    const trained = data.flatMap(({ targetTokens, mask }) =>
      [...targetTokens].filter((_, at) => mask[at] === 1),
    );
    const kept = policy.asked.filter((_, at) => at !== 1).flatMap(({ tokens }) => tokens);
    expect(trained).toEqual(kept);
  });

  it("is sampled with the run's seed and its own limits, whatever it asks for", async () => {
    const policy = new ScriptedPolicy(() => "a long answer of many words");
    const { group, episodes } = await play(
      async ({ baseURL, apiKey }) => {
        const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
        for (let turn = 0; turn < 5; turn += 1)
          await client.chat.completions.create({
            ...{ model: "any", messages: [user(`turn ${turn}`)] },
            ...{ seed: 5, temperature: 0, max_completion_tokens: 100 },
          });
      },
      { policy, groupSize: 2, limits: { maxTurns: 3, maxTurnTokens: 4, maxSampledTokens: 10 } },
    );
    expect(new Set(policy.asked.map(({ seed }) => seed)).size).toBe(policy.asked.length);
    expect(group.trajectories.map(({ end }) => end)).toEqual(["max_turns", "max_turns"]);
    const lengths = group.trajectories.map(({ turns }) => turns.map(({ action }) => action.tokens.length));
    expect(lengths).toEqual([
      [4, 4, 2],
      [4, 4, 2],
    ]);
    expect(episodes.map(({ error }) => String(error))).toEqual(
      Array(2).fill(expect.stringContaining("is over (request_limit)")),
    );
  });

  it("has an outcome however it ends: it throws, never calls, hangs, calls after its end", async () => {
    const failed = await play(async (call) => {
      await (once as (given: typeof call) => Promise<void>)(call);
      throw new Error("out of luck");
    });
    expect(failed.episodes).toMatchObject([{ end: "agent_failed", error: { message: "out of luck" } }]);
    expect(failed.group.trajectories[0]!.turns).toMatchObject([
      { reward: 1, metrics: { "stop/agent_failed": 1 }, logs: { "agent said": "Error: out of luck" } },
    ]);
    const silent = await play(() => "nothing to do", { reward: () => -1 });
    expect(silent.episodes).toMatchObject([{ end: "no_calls", output: "nothing to do", text: "" }]);
    expect(totalRewards(silent.group)).toEqual([-1]);
    expect(trajectoryData(silent.group.trajectories[0]!, 1)).toEqual([]);
    let late: (() => Promise<unknown>) | undefined;
    const clock = new FakeClock();
    const hanging = play(
      async (call) => {
        await (once as (given: typeof call) => Promise<void>)(call);
        late = () => (once as (given: typeof call) => Promise<void>)(call);
        await new Promise(() => {});
      },
      { limits: { timeoutMs: 60_000 }, clock },
    );
    await vi.waitFor(() => expect(late).toBeDefined());
    await clock.advance(60_000);
    const hung = await hanging;
    expect(hung.group.trajectories).toMatchObject([{ end: "rollout_timeout", turns: { length: 1 } }]);
    await expect(late!()).rejects.toThrow("is over (time_limit)");
  });

  it("that never reaches the model ends the run early, with what it said", async () => {
    const broken = play(() => Promise.reject(new Error("connect ECONNREFUSED")), { groupSize: 16 });
    await expect(broken).rejects.toThrow(
      /did not call the model in any of its first 16 episodes[\s\S]*ECONNREFUSED/,
    );
  });

  it("fails its episode where the model cannot be sampled, and is not blamed for it", async () => {
    const lost = new ScriptedPolicy(() => {
      throw new APIConnectionError("the server is gone");
    });
    await expect(play(once, { policy: lost })).rejects.toThrow("the server is gone");
  });
});

describe("an agent that is a command", () => {
  const program = async (name: string, source: string) => {
    const path = join(home, name);
    await writeFile(path, source);
    return { command: process.execPath, args: [path] };
  };

  it("gets address, key and problem, and its reward its output, files and exit code", async () => {
    const agent = await program(
      "asks.mjs",
      `import { writeFileSync, mkdirSync, readFileSync, symlinkSync } from "node:fs";
       const { OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL, ANTHROPIC_AUTH_TOKEN, EXTRA, TINKER_API_KEY } = process.env;
       const answer = await fetch(OPENAI_BASE_URL + "/chat/completions", {
         method: "POST",
         headers: { authorization: "Bearer " + OPENAI_API_KEY, "content-type": "application/json" },
         body: JSON.stringify({ model: "any", messages: [{ role: "user", content: process.env.TINKERTS_PROBLEM }] }),
       });
       mkdirSync("deep/er", { recursive: true });
       writeFileSync("deep/er/answer.txt", (await answer.json()).choices[0].message.content);
       symlinkSync("/etc/hostname", "outside");
       writeFileSync("stdin.txt", readFileSync(0, "utf8"));
       console.log(JSON.stringify({ EXTRA, TINKER_API_KEY, folder: process.cwd() === process.env.TINKERTS_FOLDER,
         anthropic: ANTHROPIC_BASE_URL.endsWith("/anthropic"), same: ANTHROPIC_AUTH_TOKEN === OPENAI_API_KEY }));
       console.error("a warning");
       process.exitCode = 3;`,
    );
    vi.stubEnv("TINKER_API_KEY", "tml-secret");
    let folder = "";
    const { episodes } = await play(
      { ...agent, env: { EXTRA: "yes" } },
      {
        policy: new ScriptedPolicy(() => "seven"),
        reward: async (episode) => {
          folder = episode.folder!;
          expect(await episode.files()).toEqual(["deep/er/answer.txt", "stdin.txt"]);
          expect(await episode.readFile("deep/er/answer.txt")).toBe("seven");
          expect(await episode.readFile("stdin.txt")).toBe(episode.problem);
          expect(await episode.readFile("outside")).toBeUndefined();
          expect(await episode.readFile("../agents")).toBeUndefined();
          return 1;
        },
      },
    );
    vi.unstubAllEnvs();
    expect(episodes).toMatchObject([
      { exitCode: 3, stderr: "a warning\n", end: "agent_failed", text: "seven" },
    ]);
    expect(JSON.parse(episodes[0]!.output as string)).toEqual({
      ...{ EXTRA: "yes", folder: true, anthropic: true, same: true },
    });
    expect(existsSync(folder)).toBe(false);
  });

  it.skipIf(process.platform === "win32")("is ended at its time with all that it has started", async () => {
    const pids = join(home, "pids");
    const agent = await program(
      "hangs.mjs",
      `import { spawn } from "node:child_process";
       import { renameSync, writeFileSync } from "node:fs";
       const child = spawn(process.execPath, ["-e", "process.on('SIGTERM', () => {}); setInterval(() => {}, 1000)"], { stdio: "inherit" });
       writeFileSync(${JSON.stringify(`${pids}.new`)}, process.pid + " " + child.pid);
       renameSync(${JSON.stringify(`${pids}.new`)}, ${JSON.stringify(pids)});
       setInterval(() => {}, 1000);`,
    );
    const clock = new FakeClock();
    const playing = play(agent, { limits: { timeoutMs: 60_000 }, clock });
    await vi.waitFor(() => expect(existsSync(pids)).toBe(true));
    await clock.advance(60_000);
    const { group, episodes } = await playing;
    expect(group.trajectories).toMatchObject([{ end: "rollout_timeout" }]);
    expect(episodes).toMatchObject([{ exitCode: null }]);
    const running = (await readFile(pids, "utf8")).split(" ").filter((pid) => isRunning(Number(pid)));
    await vi.waitFor(() => expect(running.filter((pid) => isRunning(Number(pid)))).toEqual([]));
  });

  it("that cannot be started says so", async () => {
    await expect(play({ command: "no-such-program" })).rejects.toThrow("The agent could not be started");
  });
});

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

describe("rulerReward", () => {
  it("lets a judge score the episodes of a group against each other", async () => {
    const prompts: string[] = [];
    const texts = ["good", "bad", "fair"];
    const judge = (prompt: string) => {
      prompts.push(prompt);
      if (prompts.length === 1) return "I cannot decide.";
      const numbers = [...prompt.matchAll(/<episode number="\d">\nassistant: (\w+)/g)].map(
        ([, said]) => said!,
      );
      const scores = numbers.map((said) => ({ good: 1, bad: 0, fair: 0.5 })[said]);
      return `The first is best.\n{"scores": [${scores.join(", ")}]}`;
    };
    const folder = join(home, "ruler");
    const { group } = await play(once, {
      policy: new ScriptedPolicy(() => texts.shift()!),
      reward: rulerReward(judge),
      groupSize: 3,
      folder,
    });
    expect(totalRewards(group).toSorted()).toEqual([0, 0.5, 1]);
    expect(prompts).toHaveLength(2);
    expect(prompts[0]).toContain("<task>\nuser: What is 3 + 4?\n</task>");
    expect(group.metrics).toMatchObject(Array(3).fill({ judge_unreadable: 0 }));
    await sources.pop()!.close!();
    const { sessions } = await listSessions(join(folder, "sessions"));
    expect(sessions.map(({ reward }) => reward).toSorted()).toEqual([0, 0.5, 1]);
  });

  it("of a judge without scores teaches nothing", async () => {
    const { group } = await play(once, { reward: rulerReward(() => '{"scores": [2]}'), groupSize: 2 });
    expect(totalRewards(group)).toEqual([0, 0]);
    expect(group.metrics).toMatchObject([{ judge_unreadable: 1 }, { judge_unreadable: 1 }]);
  });
});
