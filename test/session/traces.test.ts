import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { context, trace } from "@opentelemetry/api";
import { generateText } from "ai";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { tinkertsModel } from "../../src/ai-sdk/index.js";
import { runToolCall } from "../../src/cookbook/environments/tool.js";
import {
  conversations,
  type ProblemAnswer,
  tool,
  trainReinforcement,
  trainSupervised,
} from "../../src/cookbook/index.js";
import { startGateway } from "../../src/gateway/index.js";
import { ServiceClient } from "../../src/index.js";
import { startLocalBackend } from "../../src/local/index.js";
import { silent } from "../local/raw-client.js";
import { type CollectedSpan, startCollector } from "../support/otlp.js";

const collector = await startCollector();
const home = await mkdtemp(join(tmpdir(), "tinkerts-traces-"));
const backend = await startLocalBackend({ dataDir: join(home, "data"), logger: silent });
const service = new ServiceClient({ baseURL: backend.baseURL, apiKey: backend.apiKey, logLevel: "off" });
afterAll(async () => {
  await service.close();
  await backend.close();
  await collector.close();
  await rm(home, { recursive: true, force: true });
});
afterEach(() => collector.clear());

const MODEL = "tinkerts/nano";

/** Does work in a span of the application, and returns the spans of its trace by their names. */
async function traceOf(work: () => Promise<unknown>) {
  const root = trace.getTracer("app").startSpan("app");
  await context.with(trace.setSpan(context.active(), root), work);
  root.end();
  const { traceId } = root.spanContext();
  const spans = (await collector.spans()).filter((span) => span.traceId === traceId);
  const byId = new Map(spans.map((span) => [span.spanId, span]));
  /** Names from a span up to the application's. */
  const pathOf = (span: CollectedSpan): readonly string[] => {
    const parent = byId.get(span.parentSpanId);
    return parent === undefined ? [span.name] : [span.name, ...pathOf(parent)];
  };
  return { spans, pathOf, named: (name: string) => spans.filter((span) => span.name === name) };
}

describe("spans of samples", () => {
  it("have OpenTelemetry's attributes, and go on in the server", async () => {
    const sampler = await service.createSamplingClient({ baseModel: MODEL });
    const tokenizer = await sampler.getTokenizer();
    const prompt = tokenizer.encode("What is 2 + 3?");
    const samplingParams = { maxTokens: 5, temperature: 0.5, seed: 1, topK: 10, stop: ["\n"] };
    let tokens = 0;
    const { named, pathOf } = await traceOf(async () => {
      const { sequences } = await sampler.sample({ prompt, numSamples: 2, samplingParams });
      tokens = sequences.reduce((sum, sequence) => sum + sequence.tokens.length, 0);
    });
    const [span] = named(`text_completion ${MODEL}`);
    expect(span).toMatchObject({ kind: 3, status: { code: 0 } });
    expect(span!.attributes).toMatchObject({
      "gen_ai.operation.name": "text_completion",
      "gen_ai.provider.name": "tinker",
      "gen_ai.request.model": MODEL,
      "gen_ai.request.temperature": 0.5,
      "gen_ai.request.max_tokens": 5,
      "gen_ai.request.top_k": 10,
      "gen_ai.request.seed": 1,
      "gen_ai.request.choice.count": 2,
      "gen_ai.request.stop_sequences": ["\n"],
      "gen_ai.usage.input_tokens": prompt.length,
      "gen_ai.usage.output_tokens": tokens,
      "gen_ai.usage.cache_read.input_tokens": expect.any(Number),
      "gen_ai.response.finish_reasons": [expect.stringMatching(/stop|length/), expect.any(String)],
    });
    expect(Number(span!.endTimeUnixNano)).toBeGreaterThanOrEqual(Number(span!.startTimeUnixNano));
    const [served] = named("POST /api/v1/asample");
    expect(served).toMatchObject({ kind: 2, attributes: { "http.response.status_code": 200 } });
    expect(pathOf(served!)).toEqual(["POST /api/v1/asample", `text_completion ${MODEL}`, "app"]);
  });

  it("hold what was said only when that is asked for", async () => {
    const sampler = await service.createSamplingClient({ baseModel: MODEL });
    const prompt = (await sampler.getTokenizer()).encode("What is 2 + 3?");
    const sample = () => sampler.sample({ prompt, samplingParams: { maxTokens: 3, temperature: 0 } });
    const silentTrace = await traceOf(sample);
    expect(JSON.stringify(silentTrace.spans)).not.toContain("2 + 3");
    process.env["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "true";
    try {
      const { named } = await traceOf(sample);
      const { attributes } = named(`text_completion ${MODEL}`)[0]!;
      expect(JSON.parse(String(attributes["gen_ai.input.messages"]))).toEqual([
        { role: "user", parts: [{ type: "text", content: "What is 2 + 3?" }] },
      ]);
      expect(JSON.parse(String(attributes["gen_ai.output.messages"]))).toEqual([
        {
          role: "assistant",
          parts: [{ type: "text", content: expect.any(String) }],
          finish_reason: expect.any(String),
        },
      ]);
    } finally {
      delete process.env["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"];
    }
  });

  it("say what went wrong", async () => {
    const sampler = await service.createSamplingClient({ baseModel: MODEL });
    const { named } = await traceOf(async () => {
      await sampler.sample({ prompt: [1, 2], samplingParams: { maxTokens: 1_000_000 } }).catch(() => {});
    });
    const [span] = named(`text_completion ${MODEL}`);
    expect(span).toMatchObject({
      status: { code: 2 },
      attributes: { "error.type": expect.stringMatching(/Error/) },
    });
  });

  it("belong to one trace through the AI SDK and through the gateway", async () => {
    const sampler = await service.createSamplingClient({ baseModel: MODEL });
    const asked = await traceOf(async () => {
      await generateText({ model: tinkertsModel(sampler), prompt: "What is 2 + 3?", maxOutputTokens: 4 });
    });
    const sampled = asked.spans.find(({ name }) => name.startsWith("POST /api/v1/") && /sample/.test(name))!;
    expect(asked.pathOf(sampled)).toEqual([sampled.name, `text_completion ${MODEL}`, "app"]);
    await using gateway = await startGateway({ service, models: { nano: MODEL }, logger: silent });
    const { traceId, spanId } = { traceId: "0af7651916cd43dd8448eb211c80319c", spanId: "b7ad6b7169203331" };
    await fetch(`${gateway.url}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json", traceparent: `00-${traceId}-${spanId}-01` },
      body: JSON.stringify({
        model: "nano",
        max_tokens: 4,
        messages: [{ role: "user", content: "What is 2 + 3?" }],
      }),
    }).then((response) => response.json());
    const spans = (await collector.spans()).filter((span) => span.traceId === traceId);
    const byId = new Map(spans.map((span) => [span.spanId, span]));
    const server = spans.find(({ name }) => name.startsWith("POST /api/v1/") && /sample/.test(name))!;
    const sample = byId.get(server.parentSpanId)!;
    expect(sample.name).toBe(`text_completion ${MODEL}`);
    const request = byId.get(sample.parentSpanId)!;
    expect(request).toMatchObject({ name: "POST /v1/chat/completions", kind: 2, parentSpanId: spanId });
  });
});

interface TraceEvent {
  readonly name: string;
  readonly cat: string;
  readonly ph: string;
  readonly ts: number;
  readonly dur: number;
  readonly pid: number;
  readonly tid: number;
  readonly args: { readonly name?: string };
}

/** A file in Chrome's trace format, with its rules checked: Perfetto drops what breaks them. */
async function timelineOf(path: string) {
  const events = JSON.parse(await readFile(path, "utf8")) as TraceEvent[];
  const complete = events.filter(({ ph }) => ph === "X");
  for (const event of events) {
    expect(["X", "M"]).toContain(event.ph);
    expect(event).toMatchObject({
      name: expect.any(String),
      pid: expect.any(Number),
      tid: expect.any(Number),
    });
    if (event.ph === "M") expect(event.args.name).toEqual(expect.any(String));
  }
  const lanes = new Map<number, { end: number }>();
  const named = new Set(events.filter(({ name }) => name === "thread_name").map(({ tid }) => tid));
  for (const event of complete.toSorted((one, other) => one.ts - other.ts)) {
    expect(event.ts).toBeGreaterThanOrEqual(0);
    expect(event.dur).toBeGreaterThanOrEqual(0);
    // Spans of a thread that overlap without one being in the other cannot be drawn.
    expect(event.ts + 1e-6).toBeGreaterThanOrEqual(lanes.get(event.tid)?.end ?? 0);
    lanes.set(event.tid, { end: event.ts + event.dur });
    expect(named.has(event.tid)).toBe(true);
  }
  return complete;
}

describe("spans of tools", () => {
  it("have the tool's name, and say when it failed", async () => {
    const add = tool({
      ...{ name: "add", description: "adds", parameters: { type: "object", properties: {} } },
      execute: (input) => {
        if (Object.keys(input).length === 0) throw new Error("nothing to add");
        return "5";
      },
    });
    const call = (given: string) => ({ id: "1", name: "add", arguments: given });
    const { named, pathOf } = await traceOf(async () => {
      for (const given of ['{"a":2}', "{}"])
        await runToolCall(new Map([["add", add]]), call(given), new AbortController().signal);
    });
    const [good, bad] = named("execute_tool add");
    expect(good).toMatchObject({
      status: { code: 0 },
      attributes: { "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "add" },
    });
    expect(bad).toMatchObject({ status: { code: 2 } });
    expect(pathOf(good!)).toEqual(["execute_tool add", "app"]);
  });
});

describe("spans of runs", () => {
  it("show steps, rollouts, passes and checkpoints, in a timeline and in the Python cookbook's file too", async () => {
    const folder = join(home, "run");
    const seen = await traceOf(async () => {
      await trainReinforcement({
        ...{ service, model: MODEL, folder, trace: join(home, "trace", "run.json"), loggers: [], rank: 2 },
        problems: ["57 + 86", "68 + 75", "79 + 46", "85 + 58"].map((sum) => ({ prompt: `What is ${sum}?` })),
        reward: ({ text }: ProblemAnswer) => (/[02468]$/.test(text) ? 1 : 0),
        ...{ groupSize: 4, groupsPerBatch: 2, steps: 2, maxTokens: 6 },
      });
    });
    const { named, pathOf, spans } = seen;
    expect(named("step").map(({ attributes }) => attributes["tinkerts.step"])).toEqual([0, 1]);
    expect(named("rollout").length).toBeGreaterThanOrEqual(16);
    expect(named("rollout")[0]!.attributes).toMatchObject({
      "gen_ai.operation.name": "invoke_agent",
      "tinkerts.turns": 1,
    });
    expect(pathOf(named(`text_completion ${MODEL}`)[0]!)).toContain("rollout");
    expect(pathOf(named("environment")[0]!)).toContain("rollout");
    expect(pathOf(named(`forward_backward ${MODEL}`)[0]!)).toContain("step");
    expect(named("save_state").map(({ attributes }) => attributes["tinkerts.checkpoint"])).toContain("final");
    expect(spans.every(({ status }) => status.code === 0)).toBe(true);
    const timeline = await timelineOf(join(home, "trace", "run.json"));
    const categories = new Set(timeline.map(({ cat }) => cat));
    expect([...categories].sort()).toEqual(["environment", "rollout", "sample", "save", "step", "train"]);
    expect(timeline.filter(({ name }) => name === "rollout")).toHaveLength(named("rollout").length);
    const lines = (await readFile(join(folder, "timing_spans.jsonl"), "utf8"))
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(lines.map(({ step }) => step)).toEqual([0, 1]);
    for (const { spans: timings } of lines)
      for (const { duration, wall_start, wall_end, ...rest } of timings) {
        expect(rest).toEqual({ name: expect.any(String) });
        expect(wall_end - wall_start).toBeCloseTo(duration, 6);
        expect(wall_start).toBeGreaterThanOrEqual(0);
      }
    const metrics = (await readFile(join(folder, "metrics.jsonl"), "utf8"))
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    for (const name of ["time/in_sample", "time/in_train", "time/in_environment"])
      expect(metrics[0][name]).toBeGreaterThan(0);
  });

  it("keep the timelines of two runs apart", async () => {
    const rows = conversations(
      Array.from({ length: 8 }, (_, index) => ({
        messages: [
          { role: "user", content: `Say ${index}` },
          { role: "assistant", content: `${index}` },
        ],
      })),
    );
    const run = (name: string, epochs: number) =>
      trainSupervised({
        ...{ service: service.clone(), model: MODEL, data: rows, testSize: 2, batchSize: 3, epochs, rank: 2 },
        ...{ evaluateEvery: 1, trace: join(home, `${name}.json`), loggers: [] },
      });
    await Promise.all([run("one", 1), run("two", 3)]);
    for (const [name, steps] of [
      ["one", 2],
      ["two", 6],
    ] as const) {
      const timeline = await timelineOf(join(home, `${name}.json`));
      expect(timeline.filter(({ cat }) => cat === "step")).toHaveLength(steps);
      expect(timeline.filter(({ name }) => name === "evaluate")).toHaveLength(steps + 1);
    }
  });
});
