/** Environments and policies that do what a test says, and remember what was done with them. */

import type {
  Action,
  Observation,
  PromptOverflow,
  RolloutContext,
} from "../../src/cookbook/environments/index.js";
import type { Environment, EnvironmentGroup, StepResult } from "../../src/cookbook/index.js";
import type { Policy, PolicyCall } from "../../src/cookbook/rollouts/index.js";
import type { Message } from "../../src/renderers/index.js";
import { ModelInput } from "../../src/wire/index.js";

export const observation = (length: number): Observation => ({
  prompt: ModelInput.fromInts(Array.from({ length }, (_, place) => place)),
  stop: [7],
});

export const action = (length: number, stopReason: Action["stopReason"] = "stop"): Action => ({
  tokens: Int32Array.from({ length }, (_, place) => 100 + place),
  logprobs: new Float32Array(length).fill(-0.5),
  stopReason,
});

export const never = (): Promise<never> => new Promise(() => {});

export type Script<T> = T | (() => T | Promise<T>);

async function play<T>(script: Script<T>): Promise<T> {
  return typeof script === "function" ? await (script as () => T | Promise<T>)() : script;
}

export class ScriptedEnvironment implements Environment {
  readonly #start: Script<Observation | PromptOverflow>;
  readonly #steps: readonly Script<StepResult>[];
  readonly #onClose: () => void | Promise<void>;
  readonly actions: Action[] = [];
  readonly added: Message[] = [];
  context: RolloutContext | undefined;
  numClosed = 0;

  constructor(
    start: Script<Observation | PromptOverflow>,
    steps: readonly Script<StepResult>[],
    onClose: () => void | Promise<void> = () => {},
  ) {
    this.#start = start;
    this.#steps = steps;
    this.#onClose = onClose;
  }

  start(context: RolloutContext): Promise<Observation | PromptOverflow> {
    this.context = context;
    return play(this.#start);
  }

  step(taken: Action): Promise<StepResult> {
    this.actions.push(taken);
    const script = this.#steps[this.actions.length - 1] ?? this.#steps.at(-1)!;
    return play(script);
  }

  async close(): Promise<void> {
    this.numClosed += 1;
    await this.#onClose();
  }
}

/** Takes messages: each makes the prompt two tokens longer. */
export class TalkingEnvironment extends ScriptedEnvironment {
  async addMessages(messages: readonly Message[]): Promise<Observation> {
    this.added.push(...messages);
    return observation(10 + 2 * this.added.length);
  }

  messages(): readonly Message[] {
    return this.added;
  }
}

/** Goes on with a prompt of so many tokens. */
export const next = (length: number, more: Partial<StepResult> = {}): StepResult => ({
  reward: 0,
  isDone: false,
  next: observation(length),
  ...more,
});

export const done = (reward: number, more: Partial<StepResult> = {}): StepResult => ({
  reward,
  isDone: true,
  ...more,
});

export const endless = () => new ScriptedEnvironment(observation(10), [next(14)]);
export const oneTurn = (reward = 1) =>
  new ScriptedEnvironment(observation(10), [done(reward, { end: "completed" })]);
export const failing = (message = "the sandbox broke") =>
  new ScriptedEnvironment(observation(10), [
    () => {
      throw new RangeError(message);
    },
  ]);
export const hanging = () => new ScriptedEnvironment(observation(10), [next(14), never]);

export class ScriptedPolicy implements Policy {
  readonly calls: PolicyCall[] = [];
  readonly #act: (call: PolicyCall, turn: number) => Action | Promise<Action>;

  constructor(act: (call: PolicyCall, turn: number) => Action | Promise<Action> = () => action(3)) {
    this.#act = act;
  }

  async act(_observation: Observation, call: PolicyCall = {}): Promise<Action> {
    this.calls.push(call);
    return await this.#act(call, this.calls.length - 1);
  }
}

/** A group whose nth making gives what `make` says for each member. */
export function scriptedGroup(
  groupSize: number,
  make: (making: number, member: number) => ScriptedEnvironment,
  more: Partial<EnvironmentGroup> = {},
) {
  const made: ScriptedEnvironment[][] = [];
  const counts = { closed: 0 };
  const group: EnvironmentGroup = {
    makeEnvironments: () => {
      const environments = Array.from({ length: groupSize }, (_, member) => make(made.length, member));
      made.push(environments);
      return environments;
    },
    close: () => {
      counts.closed += 1;
    },
    ...more,
  };
  return { group, made, counts };
}
