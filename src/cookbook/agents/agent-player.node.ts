import { TinkerError } from "../../errors.js";
import type { Gateway, GatewaySession } from "../../gateway/gateway.js";
import { mainThread, type SessionRecord } from "../../gateway/session-record.js";
import type { Renderer } from "../../renderers/index.js";
import { throwIfAborted, timeLimit } from "../../transport/index.js";
import type { PlayContext, Player, Policy, Trajectory } from "../environments/environment.js";
import { askReward, type Rewarded, readReward } from "../environments/reward.js";
import { type Agent, type AgentEnd, type AgentEpisode, type AgentOptions, isGroupReward } from "./agent.js";
import { EpisodeFolder } from "./episode-folder.node.js";
import { policySamplers } from "./policy-sampler.js";
import { type AgentOutcome, runAgent } from "./run-agent.node.js";
import { lastAnswer, sessionTrajectory, toolResultsOf } from "./session-trajectory.js";

/** An episode ends after this long without a request, unless `limits.timeoutMs` is set. */
const TIMEOUT_MS = 15 * 60_000;
/** Characters of a failed agent's output that are kept with its episode. */
const MAX_LOGGED_CHARACTERS = 500;

/** Settings and services that the episodes of a run share. */
export interface AgentHost<P> {
  readonly options: Pick<AgentOptions<P>, "agent" | "reward">;
  readonly model: string;
  readonly renderer: Renderer;
  readonly maxContextLength: number | undefined;
  /** Tags of the sessions; they name the run. */
  readonly tags: readonly string[];
  gateway(): Promise<Gateway>;
  /** Called with each episode; throws if the agent seems to be set up wrongly. */
  played(episode: AgentEpisode<P>): void;
}

/** Position of an episode in its run. */
export interface EpisodePlace<P> {
  readonly problem: P;
  readonly group: number;
  readonly index: number;
}

/** One episode: an agent with its own address. */
export class AgentPlayer<P> implements Player {
  readonly #host: AgentHost<P>;
  readonly #place: EpisodePlace<P>;
  #session: GatewaySession | undefined;
  #folder: EpisodeFolder | undefined;
  #episode: Omit<AgentEpisode<P>, "signal"> | undefined;

  constructor(host: AgentHost<P>, place: EpisodePlace<P>) {
    this.#host = host;
    this.#place = place;
  }

  /** The episode once it has been played. */
  get episode(): Omit<AgentEpisode<P>, "signal"> {
    if (this.#episode === undefined) throw new TinkerError("The agent's episode has not been played.");
    return this.#episode;
  }

  async play(policy: Policy, context: PlayContext): Promise<Trajectory> {
    const { limits, signal, clock, termination } = context;
    const { reward } = this.#host.options;
    const tooLong = () => new TinkerError("The agent took too long.");
    const time = timeLimit(limits.timeoutMs ?? TIMEOUT_MS, signal, tooLong, clock);
    let failure: { readonly error: unknown } | undefined;
    const onFailure = (error: unknown) => {
      failure ??= { error };
      time.abort(new TinkerError("The model could not be sampled.", { cause: error }));
    };
    try {
      const session = await this.#open(policy, context, onFailure);
      if (isCommand(this.#host.options.agent)) this.#folder = await EpisodeFolder.make();
      // An ended session refuses calls and stops unfinished answers.
      time.signal.addEventListener("abort", () => void session.end(time.isOver ? "time_limit" : "ended"), {
        once: true,
      });
      const { agent } = this.#host.options;
      const outcome = await runAgent(agent, this.#place.problem, session, this.#folder, time.signal);
      const { isOver } = time;
      time.end();
      const record = await session.end();
      throwIfAborted(signal, "The rollout");
      if (failure !== undefined) throw failure.error;
      const end = endOf(record, outcome, isOver);
      const episode = this.#finished(record, outcome, end);
      this.#host.played({ ...episode, signal });
      const limit = { timeoutMs: termination?.graderTimeoutMs, signal };
      const rewarded = isGroupReward(reward)
        ? { reward: 0 }
        : await askReward(
            "reward",
            { problem: this.#place.problem, answer: episode.text },
            limit,
            async (limited) => readReward(await reward({ ...episode, signal: limited })),
          );
      if (!isGroupReward(reward)) session.setReward(rewarded.reward);
      return sessionTrajectory(record, withAgentLogs(rewarded, episode), end);
    } finally {
      time.end();
    }
  }

  /** Records the reward that the group gave to this session. */
  setReward(reward: number): void {
    this.#session?.setReward(reward);
  }

  async close(): Promise<void> {
    await this.#session?.end();
    await this.#folder?.remove();
  }

  async #open(
    policy: Policy,
    { limits, seed, clock }: PlayContext,
    onFailure: (error: unknown) => void,
  ): Promise<GatewaySession> {
    const { model, renderer, maxContextLength } = this.#host;
    const { problem, group, index } = this.#place;
    const { sampleTimeoutMs } = limits;
    const samplerOf = policySamplers({ model, renderer, seed, clock, sampleTimeoutMs, onFailure });
    const current = () => policy.current?.() ?? { policy, samplerStep: undefined };
    const weights = () => {
      const { policy: now, samplerStep: step } = current();
      return { sampler: samplerOf(now), step };
    };
    const gateway = await this.#host.gateway();
    const context = [maxContextLength, limits.maxTrajectoryTokens].filter((each) => each !== undefined);
    this.#session = gateway.session({
      ...{ problem, group, step: current().samplerStep, tags: [...this.#host.tags, `traj=${index}`] },
      ...{ sampler: weights, renderer },
      maxContextLength: context.length === 0 ? undefined : Math.min(...context),
      limits: {
        maxTokens: limits.maxSampledTokens,
        maxTokensPerAnswer: limits.maxTurnTokens,
        maxRequests: limits.maxTurns,
      },
    });
    return this.#session;
  }

  #finished(
    session: SessionRecord,
    { output, stderr, exitCode, error }: AgentOutcome,
    end: AgentEnd,
  ): Omit<AgentEpisode<P>, "signal"> {
    const messages = mainThread(session)?.messages ?? [];
    const folder = this.#folder;
    this.#episode = {
      problem: this.#place.problem,
      text: lastAnswer(messages),
      messages,
      toolResults: toolResultsOf(messages),
      session,
      ...{ output, stderr, exitCode, error, end },
      folder: folder?.path,
      files: async () => (await folder?.files()) ?? [],
      readFile: async (path) => folder?.readFile(path),
    };
    return this.#episode;
  }
}

/** Error output of a failed agent, for people who look at its episode. */
export function agentLogs({
  end,
  exitCode,
  stderr,
  error,
}: Pick<AgentEpisode, "end" | "exitCode" | "stderr" | "error">): Record<string, string | number> {
  const said = error === undefined ? stderr.trim() : String(error);
  return {
    ...(exitCode !== undefined && { "exit code": exitCode ?? "ended by a signal" }),
    ...(end !== "completed" && said !== "" && { "agent said": said.slice(-MAX_LOGGED_CHARACTERS) }),
  };
}

function withAgentLogs(rewarded: Rewarded, episode: Parameters<typeof agentLogs>[0]): Rewarded {
  return { ...rewarded, logs: { ...agentLogs(episode), ...rewarded.logs } };
}

function isCommand<P>(agent: Agent<P>): boolean {
  return typeof agent !== "function";
}

function endOf({ end, threads }: SessionRecord, { isFailed }: AgentOutcome, isOver: boolean): AgentEnd {
  if (isOver) return "rollout_timeout";
  if (end === "request_limit") return "max_turns";
  if (end === "token_limit") return "max_sampled_tokens";
  if (isFailed) return "agent_failed";
  return threads.length === 0 ? "no_calls" : "completed";
}
