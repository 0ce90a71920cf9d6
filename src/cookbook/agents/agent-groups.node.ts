import { mkdir } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { TinkerError } from "../../errors.js";
import type { Gateway } from "../../gateway/gateway.js";
import { startGateway } from "../../gateway/start-gateway.js";
import type { Renderer } from "../../renderers/index.js";
import { linkSignals } from "../../transport/index.js";
import type { EnvironmentGroup, GroupSource } from "../environments/environment.js";
import { groupsOf } from "../environments/environment-groups.js";
import { askReward, readReward } from "../environments/reward.js";
import { type AgentEpisode, type AgentGroupReward, type AgentOptions, isGroupReward } from "./agent.js";
import { type AgentHost, AgentPlayer, agentLogs } from "./agent-player.node.js";

/** No limit of its own: the pool of episodes limits the sessions. */
const MAX_SESSIONS = 100_000;
/** After so many episodes without a single call, the agent must be calling another address. */
const MAX_SILENT_EPISODES = 16;
const MAX_SHOWN_CHARACTERS = 500;

/** Settings of the run that the episodes belong to. */
export interface AgentContext {
  readonly model: string;
  readonly renderer: Renderer;
  readonly groupSize: number;
  readonly seed: number;
  readonly maxContextLength?: number | undefined;
  /** Folder of the run, where its sessions are recorded. */
  readonly folder?: string | undefined;
}

/** Groups of episodes of an agent; each episode has its own session of one gateway. */
export function agentGroups<P>(options: AgentOptions<P>, context: AgentContext): GroupSource {
  const { problems, reward, tags } = options;
  const { model, renderer, maxContextLength } = context;
  const folder = context.folder && resolve(context.folder);
  let gateway: Promise<Gateway> | undefined;
  const calls = new CallCheck();
  const host: AgentHost<P> = {
    options,
    ...{ model, renderer, maxContextLength },
    tags: folder === undefined ? [] : [`run=${basename(folder)}`, "split=train"],
    gateway: () => (gateway ??= openGateway(folder)),
    played: (episode) => calls.add(episode),
  };
  const groups = groupsOf(
    "problems",
    {
      ...context,
      tasks: problems,
      tags,
      ...(isGroupReward(reward) && { groupRewards: groupRewards(reward as AgentGroupReward<P>) }),
    },
    (problem: P, _field, group) => (index) => new AgentPlayer(host, { problem, group, index }),
  );
  return {
    ...groups,
    close: async () => {
      await groups.close?.();
      await (await gateway?.catch(() => undefined))?.close();
    },
  };
}

async function openGateway(folder: string | undefined): Promise<Gateway> {
  if (folder !== undefined) await mkdir(folder, { recursive: true });
  return startGateway({ maxSessions: MAX_SESSIONS, record: folder && join(folder, "sessions") });
}

function groupRewards<P>(reward: AgentGroupReward<P>): NonNullable<EnvironmentGroup["groupRewards"]> {
  return async (_trajectories, { environments, signal }) => {
    const players = environments as readonly AgentPlayer<P>[];
    const episodes = players.map(({ episode }) => ({ ...episode, signal }));
    const graded = { problem: episodes[0]?.problem, answers: episodes.map(({ text }) => text) };
    const { signal: linked, release } = linkSignals(signal);
    try {
      return await askReward("reward", graded, { signal: linked }, async (limited) => {
        const rewards = await reward.rewardGroup(episodes, { signal: limited });
        if (rewards.length !== players.length)
          throw new TinkerError(
            `rewardGroup must return a reward for each of ${players.length} episodes, got ${rewards.length}.`,
          );
        return rewards.map((each, place) => {
          const read = readReward(each, `rewardGroup[${place}]`);
          players[place]!.setReward(read.reward);
          return read;
        });
      });
    } finally {
      release();
    }
  };
}

/** Detects early in a run that an agent calls the wrong address. */
class CallCheck {
  #silent = 0;
  #isCalled = false;

  add(episode: Pick<AgentEpisode, "session" | "end" | "exitCode" | "stderr" | "error">): void {
    const { session } = episode;
    this.#isCalled ||= session.threads.length > 0;
    if (this.#isCalled) return;
    this.#silent += 1;
    if (this.#silent < MAX_SILENT_EPISODES) return;
    const { failures } = session.counts;
    const found = failures > 0 ? `The last one sent ${failures} requests, which were all refused. ` : "";
    const said = Object.entries(agentLogs(episode)).map(([name, value]) => `\n  ${name}: ${value}`);
    throw new TinkerError(
      `The agent did not call the model in any of its first ${this.#silent} episodes. ${found}It must use the address and ` +
        "key that it is given: baseURL and apiKey as a function, OPENAI_BASE_URL and OPENAI_API_KEY or ANTHROPIC_BASE_URL " +
        `and ANTHROPIC_AUTH_TOKEN as a command.${said.join("").slice(0, 2 * MAX_SHOWN_CHARACTERS)}`,
    );
  }
}
