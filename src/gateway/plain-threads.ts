import { ModelInput, type SampledSequence } from "../wire/index.js";
import type { AnswerOrigin } from "./conversation-tree.js";
import type { SampledAnswer } from "./session-answer.js";
import type { SampledTurn, SessionThread } from "./session-record.js";

/** Answers to plain prompts. A prompt that begins with an earlier prompt and its answer continues that thread. */
export class PlainThreads {
  readonly #threads: { readonly turns: SampledTurn[]; known: readonly number[]; last: number }[] = [];
  #count = 0;

  get bytes(): number {
    return this.#threads.reduce((sum, { known }) => sum + 8 * known.length, 0);
  }

  /** Adds a sampled sequence; its tokens are those of `baseModel`. */
  add(
    prompt: readonly number[],
    sequence: SampledSequence,
    { model, step, at }: AnswerOrigin,
    baseModel: string,
  ): SampledAnswer {
    const { tokens, logprobs, stopReason } = sequence;
    let thread = this.#threads.find(
      ({ known }) => known.length <= prompt.length && known.every((token, place) => token === prompt[place]),
    );
    if (thread === undefined) {
      thread = { turns: [], known: [], last: -1 };
      this.#threads.push(thread);
    }
    const { length: numKnown } = thread.known;
    const parent = thread.last;
    const number = this.#count;
    this.#count += 1;
    thread.last = number;
    thread.known = [...prompt, ...tokens];
    const turn: SampledTurn = {
      prompt: ModelInput.fromInts(prompt),
      tokens,
      logprobs: logprobs ?? new Float32Array(tokens.length),
      stopReason,
      model,
      ...(step !== undefined && { step }),
      messageCount: 0,
      isRepeated: false,
      at,
    };
    thread.turns.push(turn);
    return {
      kind: "plain",
      ...{ number, thread: this.#threads.indexOf(thread), request: number, given: [], model, step, at },
      ...(parent >= 0 && { parent }),
      ...{ continues: numKnown > 0, promptRest: ModelInput.fromInts(prompt.slice(numKnown)) },
      ...{ prompt: () => turn.prompt, tokens, logprobs: turn.logprobs, stopReason, baseModel },
    };
  }

  threads(isFirst: boolean): SessionThread[] {
    return this.#threads.map(({ turns }, index) => ({
      turns,
      messages: [],
      tools: [],
      ...(isFirst && index === 0 ? {} : { fork: { message: 0, why: "a plain prompt of its own" } }),
    }));
  }
}
