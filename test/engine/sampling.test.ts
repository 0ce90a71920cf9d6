import { describe, expect, it } from "vitest";
import { type BaseModelInfo, CancelledError, type Engine } from "../../src/local/engine/engine.js";
import { createWasmKernels } from "../../src/local/engine/kernels/wasm-kernels.node.js";
import { someOf } from "../support/long.js";
import {
  adam,
  crossEntropy,
  enginesForTests,
  lora,
  randomTokens,
  sampleCall,
  trainingData,
} from "./engines.js";

const start = enginesForTests();

async function trained(engine: Engine, id: string, baseModel: string, seed: number) {
  await engine.createAdapter(id, baseModel, { ...lora, seed });
  await engine.forwardBackward(crossEntropy(id, trainingData(3, seed)));
  await engine.optimStep(id, adam);
}

describe("sampling", () => {
  it.each(["qwen3", "llama", "qwen2"])(
    "gives the logprobs that a forward pass over prompt and sample gives, to the last bit (%s)",
    async (model) => {
      const engine = await start();
      await trained(engine, "a", model, 3);
      const prompt = randomTokens(21, 1);
      const result = await engine.sample(
        sampleCall(prompt, {
          adapterId: "a",
          baseModel: model,
          maxTokens: 30,
          numSamples: 3,
          promptLogprobs: true,
        }),
      );
      expect(result.sequences).toHaveLength(3);
      for (const sequence of result.sequences) {
        expect(sequence.tokens).toHaveLength(30);
        expect(sequence.stopReason).toBe("length");
        const all = Int32Array.from([...prompt, ...sequence.tokens]);
        const datum = { tokens: all.slice(0, -1), targetTokens: all.slice(1), targetsPerToken: 1 };
        const { logprobs } = await engine.forwardBackward(crossEntropy("a", [datum], true));
        expect(sequence.logprobs).toEqual(logprobs[0]!.slice(prompt.length - 1));
        expect(result.promptLogprobs![0]).toBeNaN();
        expect(result.promptLogprobs!.slice(1)).toEqual(logprobs[0]!.slice(0, prompt.length - 1));
      }
    },
  );

  it("does not depend on what else is being sampled, on the adapter's neighbours, the cache or the threads", async () => {
    const prompts = [5, 16, 17, 33, 40].map((length, index) => randomTokens(length, 10 + index));
    const call = (index: number) =>
      sampleCall(prompts[index]!, {
        adapterId: index % 2 ? "a" : "b",
        seed: index,
        numSamples: 2,
        temperature: 0.8,
      });
    const strip = (result: Awaited<ReturnType<Engine["sample"]>>) => result.sequences;
    const alone = await start();
    await trained(alone, "a", "qwen3", 3);
    await trained(alone, "b", "qwen3", 4);
    const expected = [];
    for (const [index] of prompts.entries()) expected.push(strip(await alone.sample(call(index))));
    const together = await start({ threads: 2 });
    await trained(together, "a", "qwen3", 3);
    await trained(together, "b", "qwen3", 4);
    for (let round = 0; round < 2; round++) {
      const results = await Promise.all([
        ...prompts.map((_, index) => together.sample(call(index))),
        together.sample(sampleCall(prompts[3]!, { numSamples: 5 })),
      ]);
      expect(results.slice(0, prompts.length).map(strip)).toEqual(expected);
    }
  });

  it("reports how much of a prompt came from the cache, and forgets it when the weights change", async () => {
    const engine = await start();
    await trained(engine, "a", "qwen3", 3);
    const prompt = randomTokens(40, 2);
    const hits = async (changes = {}) =>
      (await engine.sample(sampleCall(prompt, { adapterId: "a", ...changes }))).promptCacheHitTokens;
    expect(await hits()).toBe(0);
    expect(await hits()).toBe(32);
    expect(await hits({ adapterId: undefined })).toBe(0);
    expect(await hits({ promptLogprobs: true })).toBe(0);
    expect(await hits({ promptLogprobs: true, promptLogprobsLastN: 10 })).toBe(16);
    await engine.optimStep("a", adam);
    expect(await hits()).toBe(0);
  });

  it("reuses what an earlier sample generated, as the next turn of a conversation does", async () => {
    const engine = await start();
    const prompt = randomTokens(10, 2);
    const first = await engine.sample(sampleCall(prompt, { maxTokens: 30 }));
    const turn = Int32Array.from([...prompt, ...first.sequences[0]!.tokens, 3, 4, 5]);
    const { promptCacheHitTokens } = await engine.sample(sampleCall(turn));
    expect(promptCacheHitTokens).toBe(32);
  });

  it("stops at end-of-sequence tokens by default, and counts that token", async () => {
    const engine = await start();
    const prompt = randomTokens(6, 3);
    const free = (await engine.sample(sampleCall(prompt, { maxTokens: 100, stopTokens: [] }))).sequences[0]!;
    const end = free.tokens.indexOf(1);
    expect(end).toBeGreaterThan(0);
    const implicit = (await engine.sample(sampleCall(prompt, { maxTokens: 100, stopTokens: undefined })))
      .sequences[0]!;
    expect(implicit.stopReason).toBe("stop");
    expect(implicit.tokens).toEqual(free.tokens.slice(0, end + 1));
    expect(implicit.logprobs).toEqual(free.logprobs.slice(0, end + 1));
    const other = free.tokens[2]!;
    const explicit = (await engine.sample(sampleCall(prompt, { maxTokens: 100, stopTokens: [other] })))
      .sequences[0]!;
    expect(explicit.tokens).toEqual(free.tokens.slice(0, free.tokens.indexOf(other) + 1));
  });

  it("takes the likeliest token at temperature 0, and with top_k 1, and with a tiny top_p", async () => {
    const engine = await start();
    const prompt = randomTokens(9, 4);
    const tokens = async (changes: object) =>
      (await engine.sample(sampleCall(prompt, changes))).sequences[0]!;
    const greedy = await tokens({ temperature: 0, topkSampleLogprobs: 3 });
    expect(greedy.tokens).toEqual(Int32Array.from(greedy.tokens, (_, i) => greedy.topk!.tokens[3 * i]!));
    expect(greedy.logprobs).toEqual(
      Float32Array.from(greedy.logprobs, (_, i) => greedy.topk!.logprobs[3 * i]!),
    );
    expect((await tokens({ topK: 1 })).tokens).toEqual(greedy.tokens);
    expect((await tokens({ topP: 1e-6 })).tokens).toEqual(greedy.tokens);
    expect((await tokens({})).tokens).not.toEqual(greedy.tokens);
    expect((await tokens({ seed: 6 })).tokens).not.toEqual((await tokens({ seed: 7 })).tokens);
    expect((await tokens({ seed: undefined })).tokens).not.toEqual(
      (await tokens({ seed: undefined })).tokens,
    );
  });

  it("scores prompts: top-k, chosen tokens and alternatives agree with each other", async () => {
    const engine = await start();
    const prompt = randomTokens(20, 5);
    const ids = new Int32Array(19 * 2).fill(-1);
    for (let i = 0; i < 19; i++) ids[2 * i] = prompt[i + 1]!;
    const result = await engine.sample(
      sampleCall(prompt, {
        maxTokens: 0,
        promptLogprobs: true,
        topkPromptLogprobs: 64,
        targetPromptTokens: { ids, columns: 2 },
        promptAltTokens: 4,
      }),
    );
    expect(result.sequences[0]!.tokens).toHaveLength(0);
    const { promptLogprobs, topkPrompt, targetPrompt, alt } = result;
    expect(topkPrompt!.logprobs[0]).toBe(-99999);
    for (let position = 1; position < prompt.length; position++) {
      const row = topkPrompt!.tokens.slice(position * 64, (position + 1) * 64);
      const logprobs = topkPrompt!.logprobs.slice(position * 64, (position + 1) * 64);
      expect([...row].sort((a, b) => a - b)).toEqual(Array.from({ length: 64 }, (_, i) => i));
      expect(logprobs.reduce((sum, logprob) => sum + Math.exp(logprob), 0)).toBeCloseTo(1, 5);
      expect(promptLogprobs![position]).toBe(logprobs[row.indexOf(prompt[position]!)]);
      expect(targetPrompt![(position - 1) * 2]).toBe(promptLogprobs![position]);
      expect(targetPrompt![(position - 1) * 2 + 1]).toBe(0);
      for (let column = 0; column < 4; column++) {
        const cell = (position - 1) * 4 + column;
        expect(alt!.logprobs[cell]).toBe(logprobs[row.indexOf(alt!.tokens[cell]!)]);
      }
    }
  });

  it("draws in proportion to the probabilities", async () => {
    const engine = await start();
    const prompt = randomTokens(8, 6);
    const draws = 3000;
    const { sequences } = await engine.sample(
      sampleCall(prompt, { numSamples: draws, maxTokens: 1, topkSampleLogprobs: 5 }),
    );
    const counts = new Map<number, number>();
    for (const { tokens } of sequences) counts.set(tokens[0]!, (counts.get(tokens[0]!) ?? 0) + 1);
    const { topk } = sequences[0]!;
    for (let i = 0; i < 5; i++) {
      const probability = Math.exp(topk!.logprobs[i]!);
      const deviation = Math.sqrt((probability * (1 - probability)) / draws);
      const share = (counts.get(topk!.tokens[i]!) ?? 0) / draws;
      expect(Math.abs(share - probability)).toBeLessThan(4 * deviation);
    }
  });

  it("works through more samples than the cache has room for, and refuses one that never fits", async () => {
    const config = { layers: 2, width: 16 };
    const pageBytes = 2 * 4 * config.layers * 16 * config.width;
    const engine = await start({ cacheBytes: 12 * pageBytes });
    const roomy = await start();
    const calls = [0, 1, 2].map((i) =>
      sampleCall(randomTokens(20 + i, i), { numSamples: 4, maxTokens: 40, seed: i }),
    );
    const small = await Promise.all(calls.map((call) => engine.sample(call)));
    const large = await Promise.all(calls.map((call) => roomy.sample(call)));
    expect(small.map((result) => result.sequences)).toEqual(large.map((result) => result.sequences));
    await expect(engine.sample(sampleCall(randomTokens(128, 1), { maxTokens: 100 }))).resolves.toBeDefined();
    const tight = await start({ cacheBytes: 3 * pageBytes });
    await expect(tight.sample(sampleCall(randomTokens(60, 1)))).rejects.toThrow(/key-value cache/);
    // What is announced as the context length does fit.
    const [{ maxContextLength }] = (await tight.models()) as [BaseModelInfo];
    expect(maxContextLength).toBe(32);
    for (const length of [1, 15, 16, 17, 31, 32]) {
      const maxTokens = maxContextLength + 1 - length;
      const call = sampleCall(randomTokens(length, 1), { maxTokens, numSamples: 2 });
      expect((await tight.sample(call)).sequences[1]!.tokens).toHaveLength(maxTokens);
    }
    expect((await roomy.models())[0]!.maxContextLength).toBe(128);
  });

  it("ends what memory does not suffice for with a sentence, and goes on with the rest", async () => {
    const kernels = createWasmKernels({ threads: 1 });
    const alloc = kernels.alloc.bind(kernels);
    let room = Number.POSITIVE_INFINITY;
    kernels.alloc = (length) => {
      room -= 1;
      if (room < 0) throw new RangeError("the engine needs more memory");
      return alloc(length);
    };
    const engine = await start({ kernels });
    const many = (changes = {}) =>
      sampleCall(randomTokens(20, 1), { numSamples: 60, maxTokens: 90, ...changes });
    const expected = await (await start()).sample(many());
    for (const left of [0, 1, 3]) {
      room = left;
      await expect(engine.sample(many())).rejects.toThrow(/no memory left for keys and values/);
    }
    room = Number.POSITIVE_INFINITY;
    expect((await engine.sample(many({ numSamples: 3 }))).sequences).toEqual(expected.sequences.slice(0, 3));
    // Growing fails with samples under way: the pages of the one that ends serve the other.
    room = 0;
    const small = engine.sample(sampleCall(randomTokens(20, 1), { maxTokens: 90 }));
    await expect(engine.sample(many({ seed: 6 }))).rejects.toThrow(/no memory left/);
    expect((await small).sequences).toEqual(expected.sequences.slice(0, 1));
    await expect(engine.createAdapter("x", "qwen3", lora)).rejects.toThrow(
      /no room for an adapter of rank 4/,
    );
    room = 1;
    await engine.createAdapter("x", "qwen3", lora);
    const held = kernels.allocatedBytes;
    room = 2;
    await expect(engine.forwardBackward(crossEntropy("x", trainingData(1, 1)))).rejects.toThrow(/no room/);
    expect(kernels.allocatedBytes).toBe(held);
    room = Number.POSITIVE_INFINITY;
    await engine.forwardBackward(crossEntropy("x", trainingData(1, 1)));
    expect((await engine.sample(many())).sequences).toEqual(expected.sequences);
  });

  it("ends samples at the model's context length", async () => {
    const engine = await start();
    const { sequences } = await engine.sample(sampleCall(randomTokens(120, 1), { maxTokens: 1000 }));
    // 128 positions, and a last token that nothing is computed for.
    expect(sequences[0]!.tokens).toHaveLength(9);
    expect(sequences[0]!.stopReason).toBe("length");
  });

  it("cancels a request and gives its memory back", async () => {
    const engine = await start();
    const call = sampleCall(randomTokens(10, 1), { maxTokens: 100, numSamples: 50 });
    const cancelled = engine.sample(call);
    const kept = engine.sample(sampleCall(randomTokens(10, 2)));
    setTimeout(() => engine.cancelSample(call.requestId), 5);
    await expect(cancelled).rejects.toBeInstanceOf(CancelledError);
    expect((await kept).sequences[0]!.tokens).toHaveLength(20);
    await engine.createAdapter("x", "qwen3", lora);
  });

  it("reports an adapter that has diverged, and continues with the others", async () => {
    const engine = await start();
    await trained(engine, "a", "qwen3", 3);
    const state = await engine.exportAdapter("a", { optimizer: false });
    Object.values(state.tensors)[0]!.data.fill(Number.NaN);
    await engine.importAdapter("broken", "qwen3", state, { optimizer: false });
    const prompt = randomTokens(20, 1);
    const fine = engine.sample(sampleCall(prompt, { adapterId: "a" }));
    await expect(engine.sample(sampleCall(prompt, { adapterId: "broken" }))).rejects.toThrow(/not finite/);
    expect((await fine).sequences[0]!.tokens).toHaveLength(20);
    await engine.removeAdapter("broken");
  });

  it.each([
    [{ adapterId: "nobody" }, /there is no adapter nobody/],
    [{ baseModel: "other" }, /base model other is not loaded/],
    [{ stopStrings: ["x"] }, /need a tokenizer.json/],
  ])("refuses %j with a sentence", async (changes, message) => {
    const engine = await start();
    await expect(engine.sample(sampleCall(randomTokens(5, 1), changes))).rejects.toThrow(message);
  });
});

describe("a short sample beside a backlog", () => {
  const backlog = { session: "busy", adapterId: "a", maxTokens: 100 };
  const short = { session: "other", adapterId: "a", maxTokens: 8 };
  const pageBytes = 2 * 4 * 2 * 16 * 16;
  /** The engine pauses for a turn of the event loop after each step. */
  const steps = async (count: number) => {
    for (let step = 0; step < count; step++) await new Promise((resolve) => setImmediate(resolve));
  };

  type Backlog = { changes?: object; count: number; samples: number; prompt: number; cacheBytes?: number };
  const backlogs: [string, Backlog][] = [
    ["of another session", { count: 40, samples: 8, prompt: 10 }],
    [
      "of another adapter",
      { count: 40, samples: 8, prompt: 10, changes: { session: "busy", adapterId: "b" } },
    ],
    [
      "of the base model",
      { count: 40, samples: 8, prompt: 10, changes: { session: "busy", adapterId: undefined } },
    ],
    ["of its own session and adapter", { count: 40, samples: 8, prompt: 10, changes: { session: "busy" } }],
    ["of long prompts", { count: 400, samples: 1, prompt: 27 }],
    ["that fills the cache", { count: 40, samples: 8, prompt: 10, cacheBytes: 160 * pageBytes }],
  ];

  it.each(someOf(backlogs, 2))(
    "%s ends first, with the same tokens as alone",
    async (_, { changes, count, samples, prompt, cacheBytes }) => {
      const engine = await start(cacheBytes === undefined ? {} : { cacheBytes });
      for (const id of ["a", "b"]) await trained(engine, id, "qwen3", 3);
      const asked = { ...short, ...changes };
      const alone = await engine.sample(sampleCall(randomTokens(6, 1), asked));
      const calls = Array.from({ length: count }, (_unused, index) =>
        sampleCall(randomTokens(prompt, 100 + index), { ...backlog, numSamples: samples, seed: index }),
      );
      let ended = 0;
      const first = engine.sample(calls[0]!);
      const others = calls.slice(1).map((call) => engine.sample(call));
      for (const one of [first, ...others]) void one.then(() => (ended += 1));
      // All places are taken by then.
      await new Promise((resolve) => setTimeout(resolve, 20));
      const behind = await engine.sample(sampleCall(randomTokens(6, 1), asked));
      expect(ended).toBeLessThan(count / 8);
      expect(behind.sequences).toEqual(alone.sequences);
      const results = await Promise.all([first, ...others]);
      expect(results.every(({ sequences }) => sequences.every(({ tokens }) => tokens.length === 100))).toBe(
        true,
      );
      const undisturbed = await engine.sample({ ...calls[7]!, requestId: "again" });
      expect(results[7]!.sequences).toEqual(undisturbed.sequences);
    },
  );

  it("of many sessions gets its share: none waits for another's whole backlog", async () => {
    const engine = await start();
    const order: string[] = [];
    const all = Array.from({ length: 20 }, (_, session) =>
      Array.from({ length: 30 }, (_unused, index) => {
        const sample = engine.sample(
          sampleCall(randomTokens(10, session), {
            session: `s${session}`,
            maxTokens: 40,
            seed: index,
            numSamples: 2,
          }),
        );
        return sample.then(() => order.push(`s${session}`));
      }),
    ).flat();
    await Promise.all(all);
    for (let session = 0; session < 20; session++) {
      expect(order.indexOf(`s${session}`)).toBeLessThan(100);
      expect(order.lastIndexOf(`s${session}`)).toBeGreaterThan(450);
    }
  });

  it("of one request that has the whole cache takes turns with it, and both get the same bits as alone", async () => {
    const large = sampleCall(randomTokens(20, 1), {
      session: "large",
      maxTokens: 109,
      promptLogprobs: true,
      topkSampleLogprobs: 3,
    });
    const small = () => sampleCall(randomTokens(5, 2), { session: "small", maxTokens: 30 });
    const roomy = await start();
    const expected = { large: await roomy.sample(large), small: await roomy.sample(small()) };
    const engine = await start({ cacheBytes: 9 * pageBytes });
    let isOver = false;
    const whole = engine.sample(large).finally(() => {
      isOver = true;
    });
    await steps(10);
    let endedBefore = 0;
    while (!isOver) {
      const { sequences } = await engine.sample(small());
      expect(sequences).toEqual(expected.small.sequences);
      if (!isOver) endedBefore += 1;
    }
    expect(endedBefore).toBeGreaterThanOrEqual(3);
    expect(await whole).toEqual(expected.large);
  });

  it("takes pages from many samples at once, which go on where they were", async () => {
    const call = (session: string, seed: number) =>
      sampleCall(randomTokens(18 + seed, seed), { session, seed, numSamples: 3, maxTokens: 70 });
    const calls = [1, 2, 3, 4, 5, 6].flatMap((seed) => ["x", "y", "z"].map((session) => call(session, seed)));
    const large = sampleCall(randomTokens(20, 1), { session: "large", maxTokens: 109 });
    const roomy = await start();
    const expected = [];
    for (const each of [large, ...calls]) expected.push((await roomy.sample(each)).sequences);
    const engine = await start({ cacheBytes: 16 * pageBytes });
    const order: string[] = [];
    const sample = async (each: typeof large) => {
      const { sequences } = await engine.sample(each);
      order.push(each.session!);
      return sequences;
    };
    const smaller = calls.map(sample);
    await steps(10);
    expect(await Promise.all([sample(large), ...smaller])).toEqual(expected);
    // It needs nine of sixteen pages, which the others would fill for as long as they come.
    expect(order.indexOf("large")).toBeLessThan(order.length / 2);
  });

  it("lets a request in that needs the whole cache, however many small ones come", async () => {
    const engine = await start({ cacheBytes: 9 * pageBytes });
    let isOver = false;
    const small = async (session: string) => {
      for (let index = 0; !isOver && index < 2000; index++)
        await engine.sample(sampleCall(randomTokens(5, index), { session, maxTokens: 4 }));
      return isOver;
    };
    const streams = ["x", "y", "z"].map(small);
    const large = await engine.sample(sampleCall(randomTokens(20, 1), { session: "large", maxTokens: 109 }));
    isOver = true;
    expect(large.sequences[0]!.tokens).toHaveLength(109);
    expect(await Promise.all(streams)).toEqual([true, true, true]);
  });
});
