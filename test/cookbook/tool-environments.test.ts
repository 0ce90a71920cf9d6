import { fileURLToPath } from "node:url";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { describe, expect, expectTypeOf, it } from "vitest";
import { z } from "zod";
import type {
  Action,
  Observation,
  RolloutContext,
  ToolEnvironmentOptions,
  ToolEpisode,
} from "../../src/cookbook/environments/index.js";
import {
  environmentGroups,
  mcpTools,
  type StepResult,
  type Tool,
  tool,
  toolEnvironment,
} from "../../src/cookbook/index.js";
import { getRenderer, type Message } from "../../src/renderers/index.js";
import { loadTokenizer } from "../../src/tokenizers/index.js";

const tokenizer = await loadTokenizer(fileURLToPath(new URL("../../models/nano", import.meta.url)));
const renderer = getRenderer("qwen3_instruct", tokenizer);
const signal = new AbortController().signal;
const question: Message = { role: "user", content: "1 + 2?" };

const add = tool({
  name: "add",
  description: "Adds two numbers.",
  parameters: z.object({ a: z.number().describe("the first"), b: z.number().default(1) }),
  execute: ({ a, b }) => {
    expectTypeOf({ a, b }).toEqualTypeOf<{ a: number; b: number }>();
    return String(a + b);
  },
});
const call = (name: string, given: unknown) =>
  `<tool_call>\n${JSON.stringify({ name, arguments: given })}\n</tool_call>`;
const broken = "<tool_call>\n{oops\n</tool_call>";

/** An episode with these answers, one after the other, and what the environment made of each. */
async function play(
  answers: readonly string[],
  options: Partial<ToolEnvironmentOptions> = {},
  context: Partial<RolloutContext> = {},
) {
  const graded: ToolEpisode[] = [];
  const environment = toolEnvironment({
    tools: [add],
    messages: [question],
    reward: (episode) => {
      graded.push(episode);
      return { reward: 0.5, metrics: { graded: 1 } };
    },
    renderer,
    declaresTools: false,
    ...options,
  });
  const first = (await environment.start({
    signal,
    limits: {},
    toolExecution: "parallel",
    ...context,
  })) as Observation;
  const steps: StepResult[] = [];
  for (const answer of answers) steps.push(await environment.step(said(answer)));
  const results = environment.messages!().filter(({ role }) => role === "tool");
  return { environment, first, steps, graded, results: results.map(({ content }) => content) };
}

function said(text: string): Action {
  const tokens = Int32Array.from(tokenizer.encode(`${text}<|im_end|>`));
  return { tokens, logprobs: new Float32Array(tokens.length), stopReason: "stop" };
}

describe("a tool", () => {
  it("declares in JSON schema what its own schema checks", () => {
    expect(add.parameters).toEqual({
      type: "object",
      properties: { a: { type: "number", description: "the first" }, b: { type: "number", default: 1 } },
      required: ["a"],
    });
  });

  it("takes a JSON schema too, which only declares", async () => {
    const parameters = { type: "object", properties: { city: { type: "string" } } };
    const weather = tool({
      name: "weather",
      description: "",
      parameters,
      execute: async ({ city }) => ({ content: [{ type: "text", text: `sun in ${String(city)}` }] }),
    });
    expect(weather.parameters).toBe(parameters);
    const { environment } = await play([call("weather", { city: "Rome" })], { tools: [weather] });
    expect(environment.messages!().at(-1)).toEqual({
      role: "tool",
      name: "weather",
      content: [{ type: "text", text: "sun in Rome" }],
    });
  });

  it.each([
    [{ name: "" }, "name must be a non-empty string"],
    [{ execute: 5 }, "execute must be a function, got 5"],
    [{ parameters: z.string() }, "parameters must be the schema of an object"],
    [{ parameters: { type: "array" } }, "parameters must be the schema of an object"],
    [{ parameters: undefined }, "parameters must be the schema of an object, got undefined"],
    [
      { parameters: { "~standard": {} } },
      "parameters must be a JSON schema, or a schema that can be converted",
    ],
  ])("refuses %o", (options, message) => {
    const given = {
      name: "f",
      description: "",
      parameters: { type: "object" },
      execute: () => "",
      ...options,
    };
    expect(() => tool(given as never)).toThrow(message);
  });
});

describe("an episode with tools", () => {
  it("is declared its tools, runs its calls, and is graded once at the end", async () => {
    const { first, steps, graded, environment } = await play(
      [`Let me see.\n${call("add", { a: 1, b: 2 })}`, "It is 3."],
      { declaresTools: true, messages: [{ role: "system", content: "Be kind." }, question] },
    );
    expect(tokenizer.decode(first.prompt.toInts())).toContain(
      '{"type": "function", "function": {"name": "add"',
    );
    expect(steps).toMatchObject([
      {
        reward: 0,
        isDone: false,
        metrics: {},
        logs: {
          assistant_content: "Let me see.",
          tool_call_0: 'add({"a": 1, "b": 2})',
          tool_result_0: "3",
        },
      },
      {
        reward: 0.5,
        isDone: true,
        end: "completed",
        metrics: { graded: 1 },
        logs: { assistant_content: "It is 3." },
      },
    ]);
    const sampled = [...first.prompt.toInts(), ...said(`Let me see.\n${call("add", { a: 1, b: 2 })}`).tokens];
    expect(steps[0]!.next!.prompt.toInts().slice(0, sampled.length)).toEqual(sampled);
    expect(graded).toHaveLength(1);
    expect(graded[0]).toMatchObject({ text: "It is 3.", end: "completed" });
    expect(graded[0]!.messages).toEqual(environment.messages!());
    expect(environment.messages!().map(({ role }) => role)).toEqual([
      ...["system", "user", "assistant", "tool", "assistant"],
    ]);
  });

  it.each([
    [call("sub", {}), '{"error": "Tool \'sub\' not found"}'],
    [
      call("add", { a: "one" }),
      '{"error": "Parameter validation failed: a: Invalid input: expected number, received string"}',
    ],
    [call("fail", {}), '{"error": "Tool execution failed: no way"}'],
  ])("tells the model what was wrong with %s", async (answer, expected) => {
    const fail = tool({
      name: "fail",
      description: "",
      parameters: { type: "object" },
      execute: () => {
        throw new Error("no way");
      },
    });
    const { steps, results } = await play([answer], { tools: [add, fail] });
    expect(results).toEqual([expected]);
    expect(steps[0]).toMatchObject({ reward: 0, isDone: false });
  });

  it("fails for a tool that returns something else", async () => {
    const wrong = { ...add, run: () => 5 as never };
    await expect(play([call("add", {})], { tools: [wrong] })).rejects.toThrow(
      "the tool add must return a text or { content }, got 5",
    );
  });

  it.each(["parallel", "sequential"] as const)(
    "runs calls %s, their results in the order asked",
    async (toolExecution) => {
      let running = 0;
      let most = 0;
      const slow = tool({
        name: "slow",
        description: "",
        parameters: z.object({ ms: z.number() }),
        execute: async ({ ms }) => {
          most = Math.max(most, ++running);
          await new Promise((resolve) => setTimeout(resolve, ms));
          running--;
          return String(ms);
        },
      });
      const answer = [15, 1, 5].map((ms) => call("slow", { ms })).join("\n");
      const { results } = await play([answer], { tools: [slow] }, { toolExecution });
      expect(results).toEqual(["15", "1", "5"]);
      expect(most).toBe(toolExecution === "parallel" ? 3 : 1);
    },
  );

  it.each([
    [{ maxToolCalls: 3 }, {}],
    [{}, { maxToolCalls: 3 }],
    [{ maxToolCalls: 9 }, { maxToolCalls: 3 }],
  ])("ends when it has called often enough: %o, %o", async (options, limits) => {
    const calls = (...numbers: number[]) => numbers.map((a) => call("add", { a })).join("\n");
    const { steps, results, graded } = await play([calls(1, 2), calls(3, 4, 5)], options, { limits });
    expect(results).toEqual(["2", "3", "4"]);
    expect(steps[1]).toMatchObject({
      reward: 0.5,
      isDone: true,
      end: "max_tool_calls",
      metrics: { max_tool_calls: 1, graded: 1 },
      logs: { tool_calls_dropped: "2, since there may be 3 in all" },
    });
    expect(graded).toHaveLength(1);
  });

  it.each([
    [{}, {}, 5],
    [{}, { maxTurns: 3 }, 3],
    [{ maxTurns: 2 }, {}, 2],
    [{ maxTurns: 9 }, { maxTurns: 2 }, 2],
  ])("ends after so many turns, graded: %o, %o", async (options, limits, expected) => {
    const answers = Array.from({ length: expected }, () => call("add", { a: 1 }));
    const { steps, graded } = await play(answers, options, { limits });
    expect(steps.map(({ isDone }) => isDone)).toEqual(answers.map((_, index) => index === expected - 1));
    expect(steps.at(-1)).toMatchObject({ reward: 0.5, end: "max_turns", metrics: { max_turns: 1 } });
    expect(graded).toHaveLength(1);
  });

  it("ends when a tool ends it", async () => {
    const submit = tool({
      name: "submit",
      description: "",
      parameters: { type: "object" },
      execute: () => ({ content: "done", endsEpisode: true }),
    });
    const { steps, graded } = await play([call("submit", {})], { tools: [submit], maxTurns: 1 });
    expect(steps[0]).toMatchObject({
      reward: 0.5,
      isDone: true,
      end: "tool_stopped",
      metrics: { tool_stopped: 1, max_turns: 1 },
    });
    expect(graded[0]!.messages.at(-1)).toMatchObject({ role: "tool", content: "done" });
  });

  it("ends at calls that are all broken, without a grade", async () => {
    const { steps, graded } = await play([broken]);
    expect(steps[0]).toMatchObject({
      reward: -0.1,
      isDone: true,
      end: "parse_error",
      metrics: { parse_error: 1 },
    });
    expect(steps[0]!.logs!["parse_errors"]).toMatch(/^Invalid JSON/);
    expect(graded).toEqual([]);
    const going = await play([broken, "Sorry."], { endsOnParseFailure: false, parseFailureReward: -2 });
    expect(going.steps).toMatchObject([
      { reward: -2, isDone: false },
      { reward: 0.5, end: "completed" },
    ]);
    const turns = await play([broken], { endsOnParseFailure: false, maxTurns: 1 });
    expect(turns.steps[0]).toMatchObject({ isDone: true, end: "parse_error", metrics: { max_turns: 1 } });
  });

  it("runs what could be read beside what could not", async () => {
    const { steps, results } = await play([`${broken}\n${call("add", { a: 1 })}`]);
    expect(results).toEqual(["2"]);
    expect(steps[0]).toMatchObject({ reward: 0, isDone: false, metrics: { parse_error: 1 } });
  });

  it("lets broken calls be mended as often in a row as the policy says", async () => {
    const parseErrors = { maxConsecutive: 1, penalty: 0.25, finalReward: -3, isMasked: true };
    const { steps, environment } = await play(
      [broken, call("add", { a: 1 }), broken, broken],
      {},
      { parseErrors: { ...parseErrors, retryMessage: "Again: {details}" } },
    );
    expect(steps).toMatchObject([
      { reward: -0.25, isDone: false, isMasked: true, logs: { parse_failure_kind: "content" } },
      { reward: 0, isDone: false },
      { reward: -0.25, isDone: false, isMasked: true },
      { reward: -3, isDone: true, isMasked: true, end: "parse_error" },
    ]);
    expect(environment.messages!()[2]).toEqual({
      role: "user",
      content: expect.stringMatching(/^Again: Invalid JSON/),
    });
    // The model reads its own broken call, which reading and writing it again would have lost.
    expect(tokenizer.decode(steps[0]!.next!.prompt.toInts())).toContain(broken);
  });

  it("shows the grader the whole conversation, or with a policy what came of it, and bounds its time", async () => {
    const { graded } = await play([call("add", { a: 1 }), "2"], {}, { termination: {} });
    expect(graded[0]!.messages.map(({ role }) => role)).toEqual(["assistant", "tool", "assistant"]);
    const whole = await play(["2"], {}, { termination: { gradesWholeConversation: true } });
    expect(whole.graded[0]!.messages.map(({ role }) => role)).toEqual(["user", "assistant"]);
    const never = () => new Promise<number>(() => {});
    await expect(play(["2"], { reward: never }, { termination: { graderTimeoutMs: 5 } })).rejects.toThrow(
      "The reward took more than 5 ms.",
    );
    await expect(play(["2"], { reward: () => Number.NaN })).rejects.toThrow(
      "reward must return a finite number",
    );
  });

  it("does not wait for a tool that never answers once the rollout is over, and tells it so", async () => {
    const over = new AbortController();
    let heard = false;
    const hang = tool({
      name: "hang",
      description: "",
      parameters: { type: "object" },
      execute: (_, context) => {
        context.signal.addEventListener("abort", () => {
          heard = true;
        });
        setImmediate(() => over.abort());
        return new Promise<string>(() => {});
      },
    });
    const playing = play([call("hang", {})], { tools: [hang] }, { signal: over.signal });
    await expect(playing).rejects.toThrow(/abort/i);
    expect(heard).toBe(true);
  });

  it("gives back what its tools took, also when it never began", async () => {
    let closed = 0;
    const environment = toolEnvironment({
      tools: [],
      messages: [question],
      reward: () => 0,
      renderer,
      close: () => void closed++,
    });
    await environment.close!();
    expect(closed).toBe(1);
  });

  it.each([
    [{ tools: [add, add] }, "tools must have different names, got add, add"],
    [{ maxTurns: 0 }, "maxTurns must be a positive integer, got 0"],
    [{ maxToolCalls: -1 }, "maxToolCalls must be a non-negative integer, got -1"],
  ])("refuses %o", async (options, message) => {
    await expect(play([], options)).rejects.toThrow(message);
  });
});

describe("groups of environments", () => {
  it("make one for each try, and close what was made when one cannot be", async () => {
    const closed: number[] = [];
    let made = 0;
    const source = environmentGroups({
      tasks: [{ text: "a" }],
      environment: async ({ text }) => {
        expectTypeOf(text).toEqualTypeOf<string>();
        const number = made++;
        if (number === 4) throw new Error("no port left");
        const close = () => void closed.push(number);
        return toolEnvironment({ tools: [add], messages: [question], reward: () => 0, renderer, close });
      },
      groupSize: 3,
      tags: ["arithmetic"],
      groupRewards: (trajectories) => trajectories.map(() => ({ reward: 1 })),
    });
    const group = (await source.group(0))!;
    expect(group.tags).toEqual(["arithmetic"]);
    expect(group.groupRewards).toBeDefined();
    expect(await group.makeEnvironments()).toHaveLength(3);
    expect(closed).toEqual([]);
    await expect(group.makeEnvironments()).rejects.toThrow("no port left");
    expect(closed).toEqual([3, 5]);
  });
});

describe("tools of an MCP server", () => {
  async function connected() {
    const server = new McpServer({ name: "sums", version: "1.0.0" });
    server.registerTool(
      "add",
      { description: "Adds.", inputSchema: { a: z.number(), b: z.number() } },
      ({ a, b }) => ({ content: [{ type: "text", text: String(a + b) }] }),
    );
    server.registerTool("draw", { inputSchema: {} }, () => ({
      content: [
        { type: "text", text: "a dot" },
        { type: "image", data: "iVBORw0KGgo=", mimeType: "image/png" },
        { type: "audio", data: "AA==", mimeType: "audio/wav" },
      ],
    }));
    server.registerTool("refuse", { inputSchema: {} }, () => ({
      isError: true,
      content: [{ type: "text", text: "not today" }],
    }));
    server.registerTool("hang", { inputSchema: {} }, (_, { signal }) => {
      heard.push("call");
      signal.addEventListener("abort", () => void heard.push("abort"));
      return new Promise<never>(() => {});
    });
    const heard: string[] = [];
    const client = new Client({ name: "test", version: "1.0.0" });
    const [one, other] = InMemoryTransport.createLinkedPair();
    await Promise.all([server.connect(one), client.connect(other)]);
    const tools = await mcpTools(client);
    const run = (name: string, input: unknown, given = signal) =>
      (tools.find((each) => each.name === name) as Tool).run(input, { signal: given });
    return { client, server, tools, run, heard };
  }

  it("are declared and called as any other", async () => {
    const { tools, run, client, server } = await connected();
    expect(tools.map(({ name, description }) => [name, description])).toEqual([
      ["add", "Adds."],
      ["draw", ""],
      ["refuse", ""],
      ["hang", ""],
    ]);
    expect(tools[0]!.parameters).toMatchObject({
      type: "object",
      properties: { a: { type: "number" }, b: { type: "number" } },
      required: ["a", "b"],
    });
    expect(await run("add", { a: 1, b: 2 })).toEqual({ content: "3" });
    expect(await run("draw", {})).toEqual({
      content: [
        { type: "text", text: "a dot" },
        { type: "image", image: "data:image/png;base64,iVBORw0KGgo=" },
        { type: "text", text: '{"type":"audio","data":"AA==","mimeType":"audio/wav"}' },
      ],
    });
    expect(await run("refuse", {})).toEqual({ content: '{"error": "not today"}' });
    const { results } = await play([call("add", { a: 1, b: 2 }), call("add", { a: "x" })], { tools });
    expect(results).toEqual(["3", expect.stringMatching(/^\{"error": ".*a.*"\}$/s)]);
    await client.close();
    await server.close();
    const gone = await play([call("add", { a: 1, b: 2 })], { tools });
    expect(gone.results).toEqual([expect.stringMatching(/^\{"error": "Tool execution failed: /)]);
  });

  it("learn when the rollout is over", async () => {
    const { run, heard, client } = await connected();
    const over = new AbortController();
    const running = expect(run("hang", {}, over.signal)).rejects.toThrow();
    await expect.poll(() => heard).toEqual(["call"]);
    over.abort();
    await running;
    await expect.poll(() => heard).toEqual(["call", "abort"]);
    await client.close();
  });

  it("come in pages", async () => {
    const page = (name: string, nextCursor?: string) => ({
      tools: [{ name, inputSchema: { type: "object" } }],
      ...(nextCursor && { nextCursor }),
    });
    const tools = await mcpTools({
      listTools: async ({ cursor } = {}) => (cursor === "two" ? page("b") : page("a", "two")),
      callTool: async () => ({}),
    });
    expect(tools.map(({ name }) => name)).toEqual(["a", "b"]);
    expect(await tools[0]!.run({}, { signal })).toEqual({ content: "" });
  });

  it("end where a server lists the same page again, or pages without end", async () => {
    const listing = (nextCursor: (cursor: string | undefined) => string) =>
      mcpTools({
        listTools: async ({ cursor } = {}) => ({ tools: [], nextCursor: nextCursor(cursor) }),
        callTool: async () => ({}),
      });
    await expect(listing(() => "again")).rejects.toThrow('after page 2 it goes back to the cursor "again"');
    let pages = 0;
    await expect(listing(() => String(pages++))).rejects.toThrow("more than 10000 tools or 1000 pages");
  });
});
