import { afterAll, beforeEach } from "vitest";
import { ServiceClient } from "../../src/index.js";
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

/** Says a scripted text in the tokens of `tinkerts/nano`, and remembers the requests. */
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

/** Such a server for the tests of a file, which forgets between them what it was asked. */
export async function talkingServerForTests() {
  const server = await talkingServer();
  afterAll(() => server.backend.close());
  beforeEach(() => {
    for (const list of [server.engine.heard, server.engine.requests, server.engine.calls]) list.length = 0;
    server.engine.answers = [];
  });
  return server;
}

/** The same with clients that sample from it. */
export async function sampledServerForTests() {
  const server = await talkingServerForTests();
  const service = new ServiceClient({ ...server.backend });
  const sampler = await service.createSamplingClient({ baseModel: defaultModel.name });
  afterAll(() => service.close());
  return { server, service, sampler };
}

/** A server with such an engine; `env` sends the command to it. */
export async function talkingServer(
  engine = new TalkingEngine(),
): Promise<{ engine: TalkingEngine; backend: LocalBackend; env: Record<string, string> }> {
  const backend = await startLocalBackend({ engine });
  return { engine, backend, env: { TINKER_BASE_URL: backend.baseURL, TINKER_API_KEY: backend.apiKey } };
}
