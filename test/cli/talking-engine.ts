import type {
  BaseModelInfo,
  OnToken,
  SampleCall,
  SampledToken,
  SampleResult,
} from "../../src/local/engine/engine.js";
import { defaultModel, type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { loadTokenizer } from "../../src/tokenizers/index.js";
import { FakeEngine, fakeModel, tellAll } from "../local/fake-engine.js";

/** Says what it was told to say, in the tokens of `tinkerts/nano`, and remembers what it was asked. */
export class TalkingEngine extends FakeEngine {
  readonly requests: SampleCall[] = [];
  /** The texts of all prompts, special tokens included. */
  readonly heard: string[] = [];
  /** What it says next; when there is nothing left, "yes". */
  answers: string[] = [];
  /** So many tokens come before `hold` holds it up. */
  saysBefore = 0;
  readonly #name: string;

  constructor(name = defaultModel.name) {
    super();
    this.#name = name;
  }

  override async models(): Promise<BaseModelInfo[]> {
    return [
      {
        ...fakeModel,
        name: this.#name,
        vocabSize: 512,
        maxContextLength: 512,
        tokenizerPath: defaultModel.path,
      },
    ];
  }

  override async sample(call: SampleCall, onToken?: OnToken): Promise<SampleResult> {
    const tokenizer = await loadTokenizer(defaultModel.name);
    this.requests.push(call);
    this.heard.push(tokenizer.decode(call.prompt));
    const sequences = Array.from({ length: call.numSamples }, () => {
      const said = tokenizer.encode(`${this.answers.shift() ?? "yes"}<|im_end|>`);
      const tokens = Int32Array.from(said.slice(0, call.maxTokens));
      return {
        tokens,
        logprobs: Float32Array.from(tokens, (_, index) => -0.5 * (index + 1)),
        stopReason: tokens.length < said.length ? ("length" as const) : ("stop" as const),
      };
    });
    const drawn: SampledToken[] = [];
    tellAll({ sequences, promptCacheHitTokens: 0 }, (token) => drawn.push(token));
    for (const token of drawn.splice(0, this.saysBefore)) onToken?.(token);
    const { promptCacheHitTokens } = await super.sample(call);
    for (const token of drawn) onToken?.(token);
    return { sequences, promptCacheHitTokens };
  }
}

/** A server with such an engine; `env` sends the command to it. */
export async function talkingServer(
  engine = new TalkingEngine(),
): Promise<{ engine: TalkingEngine; backend: LocalBackend; env: Record<string, string> }> {
  const backend = await startLocalBackend({ engine });
  return { engine, backend, env: { TINKER_BASE_URL: backend.baseURL, TINKER_API_KEY: backend.apiKey } };
}
