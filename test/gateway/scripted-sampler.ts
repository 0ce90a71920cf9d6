import { fileURLToPath } from "node:url";
import type { GatewaySampler } from "../../src/gateway/index.js";
import { loadTokenizer } from "../../src/tokenizers/index.js";
import type { SampleResponse } from "../../src/wire/index.js";

export const nano = await loadTokenizer(fileURLToPath(new URL("../../models/nano", import.meta.url)));

/** A call as Qwen3 writes it. */
export const callText = (name: string, given: object) =>
  `<tool_call>\n${JSON.stringify({ name, arguments: given })}\n</tool_call>`;

/** Says one answer after the other, whatever it is asked, and remembers what it read. */
export class ScriptedSampler {
  readonly prompts: string[] = [];
  readonly settings: object[] = [];
  answers: (string | Error)[];
  /** Waited for before each answer. */
  before: (signal: AbortSignal | undefined) => Promise<void> = async () => {};

  constructor(...answers: (string | Error)[]) {
    this.answers = answers;
  }

  get sampler(): GatewaySampler {
    const sample = async (
      { prompt, numSamples = 1, samplingParams }: Parameters<GatewaySampler["sample"]>[0],
      { signal }: { signal?: AbortSignal | undefined } = {},
    ): Promise<SampleResponse> => {
      this.prompts.push(nano.decode((prompt as { toInts(): number[] }).toInts()));
      this.settings.push(samplingParams ?? {});
      await this.before(signal);
      const sequences = Array.from({ length: numSamples }, () => {
        const answer = this.answers.shift() ?? "done";
        if (answer instanceof Error) throw answer;
        const said = nano.encode(`${answer}<|im_end|>`, { addSpecialTokens: false });
        const tokens = Int32Array.from(said).slice(0, samplingParams?.maxTokens);
        return {
          tokens,
          logprobs: Float32Array.from(tokens, (_, at) => -0.5 - at),
          stopReason: tokens.length < said.length ? ("length" as const) : ("stop" as const),
        };
      });
      return { sequences, promptCacheHitTokens: 0 } as unknown as SampleResponse;
    };
    return {
      sample,
      getBaseModel: async () => "tinkerts/nano",
      getTokenizer: async () => nano,
    } as unknown as GatewaySampler;
  }
}
