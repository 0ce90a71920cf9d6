import type { OnToken, SampleCall, SampleResult } from "../../src/local/engine/engine.js";
import { defaultModel } from "../../src/local/index.js";
import { loadTokenizer } from "../../src/tokenizers/index.js";
import { TalkingEngine } from "../cli/talking-engine.js";

const EOS = 511;

/** Says a scripted text token by token, and stops at stop texts as the real engine does. */
export class ScriptedEngine extends TalkingEngine {
  /** Where it waits before each token, so that a test can look at what came until then. */
  beforeToken: (position: number) => Promise<void> = async () => {};
  /** Fails before this token. */
  failsAt = Number.POSITIVE_INFINITY;

  /** As new, for the next test. */
  reset(): void {
    this.answers = [];
    this.heard.length = 0;
    this.failsAt = Number.POSITIVE_INFINITY;
    this.beforeToken = async () => {};
  }

  override async models() {
    const [model] = await super.models();
    return [{ ...model!, maxContextLength: 8192, eosTokenIds: [EOS] }];
  }

  override async sample(call: SampleCall, onToken?: OnToken): Promise<SampleResult> {
    const tokenizer = await loadTokenizer(defaultModel.name);
    const result = await super.sample(call);
    for (const [index, sequence] of result.sequences.entries()) {
      const end = sequence.tokens.findIndex((_, place) =>
        call.stopStrings.some((stop) => tokenizer.decode(sequence.tokens.slice(0, place + 1)).includes(stop)),
      );
      if (end !== -1) {
        sequence.tokens = sequence.tokens.slice(0, end + 1);
        sequence.logprobs = sequence.logprobs.slice(0, end + 1);
        sequence.stopReason = "stop";
      }
      for (const [position, token] of sequence.tokens.entries()) {
        await this.beforeToken(position);
        if (position >= this.failsAt) throw new Error("The scripted engine has had enough.");
        onToken?.({ index, position, token, logprob: sequence.logprobs[position]! });
      }
    }
    return result;
  }
}
