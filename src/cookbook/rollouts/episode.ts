import { TinkerError } from "../../errors.js";
import type { Message } from "../../renderers/index.js";
import { type Clock, untilAborted } from "../../transport/index.js";
import { ModelInput } from "../../wire/index.js";
import { isContextOverflow } from "../chat/index.js";
import type {
  Action,
  Environment,
  EpisodeEnd,
  Observation,
  RolloutLimits,
  StepResult,
  Trajectory,
  Turn,
} from "../environments/index.js";
import { settled, withinTime } from "../environments/within-time.js";
import type { RolloutState } from "./hooks.js";
import type { Policy } from "./policy.js";
import { derivedSeed } from "./seeds.js";
import { checkReward, type RolloutOptions } from "./settings.js";

/** Why an episode is over, and whether the environment has graded it. */
export interface Outcome {
  readonly end: string | undefined;
  readonly isGraded: boolean;
}

/** What is left of a budget when no useful answer fits into it any more. */
const USED_UP_TOKENS = 1;

const NOTHING: Observation = { prompt: ModelInput.empty(), stop: [] };
const NO_ACTION: Action = { tokens: new Int32Array(), logprobs: new Float32Array(), stopReason: "stop" };

/** One episode while it runs. Whatever it waits for ends with the signal. */
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

  /** Turn after turn, until the environment or a limit ends it. */
  async play(): Promise<Outcome> {
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

  /** Marks the last turn, and tells the hooks. */
  async finish({ end, isGraded }: Outcome, signal: AbortSignal | undefined): Promise<Trajectory> {
    // Ended before any turn: its reason and its reward of 0 count all the same.
    if (this.#turns.length === 0) {
      this.#turns.push(turnOf(ModelInput.empty(), NO_ACTION, { reward: 0, isDone: true }));
    }
    const last = this.#turns.pop()!;
    const metrics = {
      ...last.metrics,
      ...(end !== undefined && { [`stop/${end}`]: 1 }),
      ...(this.#numTruncations > 0 && { num_truncations_max_turn_tokens: this.#numTruncations }),
    };
    this.#turns.push({ ...last, isDone: true, metrics });
    const { hooks } = this.#options;
    if (isGraded)
      await untilAborted(
        settled(() => hooks?.onGraded?.(this.#state())),
        signal,
      );
    await untilAborted(
      settled(() => hooks?.onEnd?.(this.#state())),
      signal,
    );
    const messages = this.#environment.messages?.();
    return {
      turns: withSharedTokens(this.#turns),
      finalObservation: this.#observation.prompt,
      ...(end !== undefined && { end }),
      ...(messages !== undefined && { messages: [...messages] }),
    };
  }

  /** One answer and what the environment makes of it; undefined when the episode goes on. */
  async #turn(): Promise<Outcome | undefined> {
    const action = await this.#sample().catch((error: unknown) => {
      // A conversation grows until the model cannot read it any more. One that begins so is a mistake.
      if (this.#turns.length > 0 && isContextOverflow(error)) return undefined;
      throw error;
    });
    if (action === undefined) return { end: "context_overflow" satisfies EpisodeEnd, isGraded: false };
    const step = await this.#wait(() => this.#environment.step(action));
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
      throw new TinkerError("hooks.onStop wants to go on, but the environment gave nothing to read next.");
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

  /** For the next answer. A budget that is used up can only have been passed over by a hook, and does not count. */
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

  /** The reason once the hooks have been asked; undefined when there is none, or none any more. */
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

/**
 * A prompt that the next one begins with becomes a view of it. Otherwise an episode of many turns would hold most of its
 * tokens once for each of them.
 */
function withSharedTokens(turns: readonly Turn[]): readonly Turn[] {
  let whole: Int32Array | undefined;
  return turns
    .toReversed()
    .map((turn): Turn => {
      const { observation } = turn;
      if (whole !== undefined && beginsWith(whole, observation)) {
        return { ...turn, observation: ModelInput.fromInts(whole.subarray(0, observation.length)) };
      }
      const [chunk, ...others] = observation.chunks;
      whole = chunk?.type === "encoded_text" && others.length === 0 ? chunk.tokens : undefined;
      return turn;
    })
    .toReversed();
}

function beginsWith(tokens: Int32Array, { chunks }: ModelInput): boolean {
  let place = 0;
  for (const chunk of chunks) {
    if (chunk.type !== "encoded_text") return false;
    for (const token of chunk.tokens) {
      if (tokens[place] !== token) return false;
      place += 1;
    }
  }
  return true;
}

function turnOf(
  observation: ModelInput,
  action: Action,
  { reward, isDone, isMasked = false, metrics = {}, logs = {} }: StepResult,
): Turn {
  const masked = isMasked ? { parse_error_masked: 1 } : {};
  return { observation, action, reward, isDone, isMasked, metrics: { ...metrics, ...masked }, logs };
}
