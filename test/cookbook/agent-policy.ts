import type { Action, Policy } from "../../src/cookbook/environments/index.js";
import { getRenderer, type Renderer } from "../../src/renderers/index.js";
import { callText, nano } from "../gateway/scripted-sampler.js";

export { callText, nano };
export const renderer: Renderer = getRenderer({ model: "tinkerts/nano" }, nano);

/** What a scripted policy was asked. */
export interface Asked {
  readonly prompt: readonly number[];
  readonly maxTokens: number | undefined;
  readonly seed: number | undefined;
  readonly tokens: readonly number[];
}

/** A policy that says a scripted text, or throws it; if its weights move, they age by a step with each answer. */
export class ScriptedPolicy implements Policy {
  readonly asked: Asked[] = [];
  step = 0;
  isMoving = false;
  answer: (text: string, signal: AbortSignal | undefined) => string | Promise<string>;

  constructor(answer: ScriptedPolicy["answer"] = () => "done") {
    this.answer = answer;
  }

  readonly act: Policy["act"] = (observation, call) => this.current().policy.act(observation, call);

  readonly current = () => {
    const samplerStep = this.step;
    if (this.isMoving) this.step += 1;
    const act: Policy["act"] = async ({ prompt }, { maxTokens, seed, signal } = {}): Promise<Action> => {
      const said = await this.answer(nano.decode(prompt.toInts()), signal);
      const whole = Int32Array.from(nano.encode(`${said}<|im_end|>`, { addSpecialTokens: false }));
      const tokens = whole.slice(0, maxTokens);
      this.asked.push({ prompt: Array.from(prompt.toInts()), maxTokens, seed, tokens: Array.from(tokens) });
      return {
        tokens,
        logprobs: Float32Array.from(tokens, (_, at) => -0.25 * (at + 1)),
        stopReason: tokens.length < whole.length ? "length" : "stop",
        samplerStep,
      };
    };
    return { policy: { act }, samplerStep };
  };
}
