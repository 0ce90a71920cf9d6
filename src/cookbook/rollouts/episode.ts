import { TinkerError } from "../../errors.js";
import type { Message } from "../../renderers/index.js";
import { inSpan } from "../../session/index.js";
import { type Clock, untilAborted } from "../../transport/index.js";
import { ModelInput } from "../../wire/index.js";
import { isContextOverflow } from "../chat/index.js";
import type {
  Action,
  Environment,
  EpisodeEnd,
  Observation,
  Policy,
  RolloutLimits,
  StepResult,
  Trajectory,
  Turn,
} from "../environments/index.js";
import { settled, withinTime } from "../environments/within-time.js";
import { type RolloutState, tellHooks } from "./hooks.js";
import { derivedSeed } from "./seeds.js";
import { checkReward, type RolloutOptions } from "./settings.js";
import { endedTurns, NO_ACTION, turnOf, withSharedTokens } from "./turns.js";

/** Why an episode ended, and whether the environment has graded it. */
export interface EpisodeOutcome {
  readonly end: string | undefined;
  readonly isGraded: boolean;
}

/** A budget with at most this many tokens left is used up: no useful answer fits. */
const USED_UP_TOKENS = 1;

/** The environment's part of a turn, with its tools and rewards. */
const ENVIRONMENT = { category: "environment" } as const;

const NOTHING: Observation = { prompt: ModelInput.empty(), stop: [] };

/** One episode while it runs. Everything it waits for ends with the signal. */
export class Episode {
  readonly #policy: Policy;
  readonly #environment: Environment;
  readonly #options: RolloutOptions & { readonly clock: Clock };
  readonly #limits: RolloutLimits;
  readonly #signal: AbortSignal;
  readonly #startedAtMs: number;
  readonly #turns: Turn[] = [];
  #observation = NOTHING;
  #numAnswers = 0;
  #sampledTokens = 0;
  #numTruncations = 0;

  constructor(
    policy: Policy,
    environment: Environment,
    options: RolloutOptions & { readonly clock: Clock },
    signal: AbortSignal,
  ) {
    this.#policy = policy;
    this.#environment = environment;
    this.#options = options;
    this.#limits = options.limits ?? {};
    this.#signal = signal;
    this.#startedAtMs = options.clock.now();
  }

  /** Runs turn after turn, until the environment or a limit ends the episode. */
  async play(): Promise<EpisodeOutcome> {
    const { parseErrors, termination, toolExecution = "parallel", hooks } = this.#options;
    const context = { signal: this.#signal, limits: this.#limits, parseErrors, termination, toolExecution };
    const first = await this.#wait(() => this.#environment.start(context));
    if ("overflow" in first) {
      const { reward, metrics, logs } = first;
      checkReward("start", reward);
      this.#addTurn(NO_ACTION, { reward, isDone: true, metrics, logs });
      return { end: "max_tokens" satisfies EpisodeEnd, isGraded: false };
    }
    this.#observation = first;
    for (;;) {
      const stopped = await this.#stop(this.#usedUpBeforeTurn());
      if (stopped !== undefined) return { end: stopped, isGraded: false };

      const messages = hooks?.beforeTurn && (await this.#wait(() => hooks.beforeTurn?.(this.#state())));
      if (messages !== undefined && messages.length > 0) await this.#addMessages(messages);

      const usedUp = await this.#stop(this.#usedUpTokens());
      if (usedUp !== undefined) return { end: usedUp, isGraded: false };

      const outcome = await this.#turn();
      if (outcome !== undefined) return outcome;
    }
  }

  /** Marks the last turn and calls the hooks. */
  async finish({ end, isGraded }: EpisodeOutcome, signal: AbortSignal | undefined): Promise<Trajectory> {
    const truncations = this.#numTruncations;
    const metrics = truncations > 0 ? { num_truncations_max_turn_tokens: truncations } : {};
    const turns = endedTurns(this.#turns.splice(0), end, metrics);
    this.#turns.push(...turns);
    await tellHooks(this.#options.hooks, { isGraded, state: this.#state(), signal });
    const messages = this.#environment.messages?.();
    return {
      turns: withSharedTokens(turns),
      finalObservation: this.#observation.prompt,
      ...(end !== undefined && { end }),
      ...(messages !== undefined && { messages: [...messages] }),
    };
  }

  /** Samples one answer and passes it to the environment; undefined if the episode continues. */
  async #turn(): Promise<EpisodeOutcome | undefined> {
    const action = await this.#sample().catch((error: unknown) => {
      // A conversation may grow beyond the context. If its first prompt is too long, that is a mistake.
      if (this.#turns.length > 0 && isContextOverflow(error)) return undefined;
      throw error;
    });
    if (action === undefined) return { end: "context_overflow" satisfies EpisodeEnd, isGraded: false };
    const step = await this.#wait(() =>
      inSpan("environment", ENVIRONMENT, async () => this.#environment.step(action)),
    );
    checkReward("step", step.reward);
    this.#addTurn(action, step);
    if (!step.isDone) {
      if (action.stopReason === "length") this.#numTruncations += 1;
      if (step.next === undefined) {
        throw new TinkerError("The environment's step must give what the model reads next, or be done.");
      }
    }
    this.#observation = step.next ?? NOTHING;
    if (!step.isDone) return undefined;
    const end = await this.#stop(step.end);
    if (end !== undefined || step.end === undefined) return { end, isGraded: true };
    this.#turns.push({ ...this.#turns.pop()!, isDone: false });
    return undefined;
  }

  async #sample(): Promise<Action> {
    const { seed, clock } = this.#options;
    if (this.#observation === NOTHING) {
      throw new TinkerError(
        "hooks.onStop continues the episode, but the environment gave no next observation.",
      );
    }
    const call = {
      maxTokens: this.#tokensLeft(),
      seed: seed === undefined ? undefined : derivedSeed(seed, this.#numAnswers),
    };
    const action = await withinTime(
      "A sample",
      this.#limits.sampleTimeoutMs,
      { signal: this.#signal, clock },
      (signal) => this.#policy.act(this.#observation, { ...call, signal }),
    );
    const { tokens, logprobs } = action;
    if (logprobs.length === tokens.length) return action;
    throw new TinkerError(
      `A policy must give a logprob for each token, got ${logprobs.length} for ${tokens.length}.`,
    );
  }

  #addTurn(action: Action, step: StepResult): void {
    this.#turns.push(turnOf(this.#observation.prompt, action, step));
    this.#sampledTokens += action.tokens.length;
    this.#numAnswers += 1;
  }

  async #addMessages(messages: readonly Message[]): Promise<void> {
    const observation = await this.#wait(() => this.#environment.addMessages?.(messages));
    if (observation === undefined) {
      throw new TinkerError("hooks.beforeTurn gave messages, but this environment does not take any.");
    }
    this.#observation = observation;
  }

  #usedUpBeforeTurn(): EpisodeEnd | undefined {
    const { timeoutMs, maxTurns } = this.#limits;
    if (timeoutMs !== undefined && this.#elapsedMs() >= timeoutMs) return "rollout_timeout";
    if (maxTurns !== undefined && this.#numAnswers >= maxTurns) return "max_turns";
    return undefined;
  }

  #usedUpTokens(): EpisodeEnd | undefined {
    const { trajectory, sampled } = this.#budgets();
    if (trajectory !== undefined && trajectory <= USED_UP_TOKENS) return "max_tokens";
    if (sampled !== undefined && sampled <= USED_UP_TOKENS) return "max_sampled_tokens";
    return undefined;
  }

  /** Tokens for the next answer. A budget that is used up was overridden by a hook and is ignored. */
  #tokensLeft(): number | undefined {
    const { trajectory, sampled } = this.#budgets();
    const left = [trajectory, sampled].filter((rest) => rest !== undefined && rest > USED_UP_TOKENS);
    const terms = [this.#limits.maxTurnTokens, ...left].filter((term) => term !== undefined);
    return terms.length === 0 ? undefined : Math.min(...terms);
  }

  #budgets(): { readonly trajectory: number | undefined; readonly sampled: number | undefined } {
    const { maxTrajectoryTokens, maxSampledTokens } = this.#limits;
    return {
      trajectory:
        maxTrajectoryTokens === undefined ? undefined : maxTrajectoryTokens - this.#observation.prompt.length,
      sampled: maxSampledTokens === undefined ? undefined : maxSampledTokens - this.#sampledTokens,
    };
  }

  /** The reason after the hooks were asked; undefined if there is none, or no longer. */
  async #stop(reason: string | undefined): Promise<string | undefined> {
    const { hooks } = this.#options;
    if (reason === undefined || hooks?.onStop === undefined) return reason;
    const answer = await this.#wait(() => hooks.onStop?.(reason, this.#state()));
    return answer === false ? undefined : (answer ?? reason);
  }

  #state(): RolloutState {
    const { prompt } = this.#observation;
    return {
      turns: this.#turns,
      get promptTokens() {
        return prompt.length;
      },
      sampledTokens: this.#sampledTokens,
      numTruncations: this.#numTruncations,
      elapsedMs: this.#elapsedMs(),
    };
  }

  #elapsedMs(): number {
    return this.#options.clock.now() - this.#startedAtMs;
  }

  #wait<T>(work: () => T | Promise<T>): Promise<T> {
    return untilAborted(settled(work), this.#signal);
  }
}
