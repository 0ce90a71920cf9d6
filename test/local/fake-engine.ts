import {
  type AdamSettings,
  type AdapterState,
  type BaseModelInfo,
  CancelledError,
  type Engine,
  type EngineDevice,
  EngineInputError,
  EngineLostError,
  type ForwardBackwardCall,
  type ForwardBackwardResult,
  type LoraSettings,
  type OnLost,
  type OnToken,
  type SampleCall,
  type SampleResult,
} from "../../src/local/engine/engine.js";

interface FakeAdapter {
  baseModel: string;
  lora: LoraSettings;
  weight: Float32Array;
  gradient: number;
  optimizer: { step: number; first: Float32Array; second: Float32Array };
}

const TENSOR = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight";
const OTHER_HALF = { [TENSOR.replace("lora_B", "lora_A")]: { shape: [1, 1], data: Float32Array.of(1) } };

export const fakeModel: BaseModelInfo = {
  name: "fake/tiny",
  maxContextLength: 64,
  vocabSize: 100,
  eosTokenIds: [],
  tokenizerPath: "/nowhere",
  arch: "fake",
  parameters: 1,
};

/** One number of weight for each adapter: enough to see order, state and identity; the same every time. */
export class FakeEngine implements Engine {
  readonly adapters = new Map<string, FakeAdapter>();
  /** What was called, in order. */
  readonly calls: string[] = [];
  isClosed = false;
  #gate: Promise<void> = Promise.resolve();
  #open: () => void = () => {};
  #break: (error: Error) => void = () => {};
  readonly #cancelled = new Map<string, (error: Error) => void>();

  /** Makes every following call wait until `open`. */
  hold(): void {
    this.#gate = new Promise((resolve, reject) => {
      this.#open = resolve;
      this.#break = reject;
    });
    this.#gate.catch(() => undefined);
  }

  open(): void {
    this.#open();
  }

  async models(): Promise<BaseModelInfo[]> {
    return [fakeModel];
  }

  async device(): Promise<EngineDevice> {
    return { kind: "cpu", name: "a fake" };
  }

  readonly #onLost: OnLost[] = [];

  onLost(listener: OnLost): void {
    this.#onLost.push(listener);
  }

  /** As an engine that is lost and at once replaced: all adapters are gone, and calls that wait at the gate fail. */
  lose(why: string): void {
    this.adapters.clear();
    const error = new EngineLostError(why, "Begin again.");
    for (const listener of this.#onLost) listener(error);
    this.#break(error);
    this.#gate = Promise.resolve();
  }

  async createAdapter(adapterId: string, baseModel: string, lora: LoraSettings): Promise<void> {
    await this.#enter(`create ${adapterId}`);
    this.adapters.set(adapterId, {
      baseModel,
      lora,
      weight: Float32Array.of(lora.seed % 10),
      gradient: 0,
      optimizer: { step: 0, first: new Float32Array(1), second: new Float32Array(1) },
    });
  }

  async forwardBackward(call: ForwardBackwardCall): Promise<ForwardBackwardResult> {
    await this.#enter(`${call.forwardOnly ? "forward" : "forward_backward"} ${call.data[0]!.tokens[0]}`);
    const adapter = this.#adapter(call.adapterId);
    if (call.data[0]!.tokens[0] === 99)
      throw new EngineInputError("token 99 is not to the fake engine's taste");
    let loss = 0;
    let tokens = 0;
    const logprobs = call.data.map((datum) =>
      Float32Array.from(datum.targetTokens, (target, index) => {
        const logprob = -1 - (target % 7) / 10 + adapter.weight[0]! / 100;
        const weight = datum.weights?.[index] ?? datum.advantages?.[index] ?? 0;
        loss -= weight * logprob;
        tokens += 1;
        if (!call.forwardOnly) adapter.gradient += weight;
        return logprob;
      }),
    );
    return { logprobs, metrics: { "loss:sum": loss, "tokens:sum": tokens } };
  }

  async optimStep(adapterId: string, adam: AdamSettings): Promise<{ metrics: Record<string, number> }> {
    await this.#enter(`optim_step ${adam.learningRate}`);
    const adapter = this.#adapter(adapterId);
    const { optimizer } = adapter;
    optimizer.step += 1;
    optimizer.first[0] = adam.beta1 * optimizer.first[0]! + (1 - adam.beta1) * adapter.gradient;
    adapter.weight[0]! += adam.learningRate * optimizer.first[0]!;
    adapter.gradient = 0;
    return { metrics: { "step:max": optimizer.step } };
  }

  async exportAdapter(adapterId: string, options: { optimizer: boolean }): Promise<AdapterState> {
    await this.#enter(`export ${adapterId}`);
    const { lora, weight, optimizer } = this.#adapter(adapterId);
    const tensors = { ...OTHER_HALF, [TENSOR]: { shape: [1, 1], data: weight.slice() } };
    const state: AdapterState = { lora, tensors };
    if (options.optimizer) {
      state.optimizer = {
        step: optimizer.step,
        first: { [TENSOR]: optimizer.first.slice() },
        second: { [TENSOR]: optimizer.second.slice() },
      };
    }
    return state;
  }

  async importAdapter(
    adapterId: string,
    baseModel: string,
    state: AdapterState,
    options: { optimizer: boolean },
  ): Promise<void> {
    await this.#enter(`import ${adapterId}`);
    const { optimizer } = state;
    this.adapters.set(adapterId, {
      baseModel,
      lora: state.lora,
      weight: state.tensors[TENSOR]!.data.slice(),
      gradient: 0,
      optimizer:
        options.optimizer && optimizer !== undefined
          ? {
              step: optimizer.step,
              first: optimizer.first[TENSOR]!.slice(),
              second: optimizer.second[TENSOR]!.slice(),
            }
          : { step: 0, first: new Float32Array(1), second: new Float32Array(1) },
    });
  }

  async cloneAdapter(fromId: string, toId: string): Promise<void> {
    await this.#enter(`clone ${toId}`);
    const from = this.#adapter(fromId);
    this.adapters.set(toId, { ...from, weight: from.weight.slice() });
  }

  async removeAdapter(adapterId: string): Promise<void> {
    this.calls.push(`remove ${adapterId}`);
    this.adapters.delete(adapterId);
  }

  async sample(call: SampleCall, onToken?: OnToken): Promise<SampleResult> {
    const weight = call.adapterId === undefined ? 0 : this.#adapter(call.adapterId).weight[0]!;
    await new Promise<void>((resolve, reject) => {
      this.#cancelled.set(call.requestId, reject);
      this.#enter(`sample ${call.prompt[0]}`).then(resolve, reject);
    }).finally(() => this.#cancelled.delete(call.requestId));
    const length = Math.min(call.maxTokens, 4);
    const seed = call.seed ?? 0;
    const result: SampleResult = {
      sequences: Array.from({ length: call.numSamples }, (_, sample) => ({
        tokens: Int32Array.from(
          { length },
          (_, index) => (call.prompt.at(-1)! + sample + seed + index + 1) % 100,
        ),
        logprobs: new Float32Array(length).fill(-1 - weight / 100),
        stopReason: length < call.maxTokens ? "stop" : "length",
        ...(call.topkSampleLogprobs > 0 ? { topk: topTokens(length, call.topkSampleLogprobs) } : {}),
      })),
      promptCacheHitTokens: 1,
    };
    if (call.promptLogprobs) {
      const first = Math.max(1, call.prompt.length - (call.promptLogprobsLastN ?? call.prompt.length));
      result.promptLogprobs = Float32Array.from(call.prompt, (token, index) =>
        index < first ? Number.NaN : -token / 100,
      );
    }
    if (call.topkPromptLogprobs > 0) {
      const top = topTokens(call.prompt.length, call.topkPromptLogprobs);
      top.tokens.fill(0, 0, top.columns);
      top.logprobs.fill(-99999, 0, top.columns);
      result.topkPrompt = top;
    }
    if (call.targetPromptTokens !== undefined) {
      result.targetPrompt = Float32Array.from(call.targetPromptTokens.ids, (id) => (id < 0 ? 0 : -id / 10));
    }
    if (call.promptAltTokens > 0) result.alt = topTokens(call.prompt.length - 1, call.promptAltTokens);
    if (onToken !== undefined) tellAll(result, onToken);
    return result;
  }

  cancelSample(requestId: string): void {
    this.calls.push(`cancel ${requestId}`);
    this.#cancelled.get(requestId)?.(new CancelledError("The request was cancelled."));
  }

  async close(): Promise<void> {
    this.isClosed = true;
  }

  async #enter(call: string): Promise<void> {
    this.calls.push(call);
    await this.#gate;
  }

  #adapter(adapterId: string): FakeAdapter {
    const adapter = this.adapters.get(adapterId);
    if (adapter === undefined) throw new EngineInputError(`there is no adapter ${adapterId}`);
    return adapter;
  }
}

/** Tells of a whole result at once. */
export function tellAll({ sequences }: SampleResult, onToken: OnToken): void {
  for (const [index, { tokens, logprobs, topk, stopReason }] of sequences.entries()) {
    for (const [position, token] of tokens.entries()) {
      const columns = topk?.columns ?? 0;
      const cells = [position * columns, (position + 1) * columns] as const;
      onToken({
        index,
        position,
        token,
        logprob: logprobs[position]!,
        ...(topk && {
          topk: { columns, tokens: topk.tokens.slice(...cells), logprobs: topk.logprobs.slice(...cells) },
        }),
        ...(position === tokens.length - 1 && { stopReason }),
      });
    }
  }
}

function topTokens(rows: number, columns: number) {
  return {
    columns,
    tokens: Int32Array.from({ length: rows * columns }, (_, index) => (index % columns) + 1),
    logprobs: Float32Array.from({ length: rows * columns }, (_, index) => -1 - (index % columns)),
  };
}
