// What the agent gateway adds to sampling: the time of a chat completion through it, streamed over HTTP from another
// process, over a sampler that answers at once, so that all of that time is the gateway's; then 500 sessions at a time of
// 10 turns each, in three waves, and the memory of the gateway's process after each wave; then how busy the engine is while
// an agent is trained, beside an environment of our own with the same problems. Needs a build: npm run build.
// Bars: 5 ms added at the median, or on a machine that others keep busy, 5 ms of the gateway's processor time a request;
// every session ends with 10 turns in one thread; no more heap after the third wave than
// after the first, but for a tenth.
import { fork } from "node:child_process";
import { once } from "node:events";
import { Agent, request } from "node:http";
import { availableParallelism, loadavg } from "node:os";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { MeasuredServer, round, takeBest } from "./cookbook/peers.mjs";
import { sized } from "./shared/sized.mjs";

const ADDED_BAR_MS = 5;
const HEAP_BAR = 1.1;
const TURNS = sized(10, 3);
const WAVES = 3;
const ANSWER_TOKENS = 64;

const BUSY_BAR = 0.9;
const BUSY_RUNS = sized(2, 1);
const RUN = {
  ...{
    model: "tinkerts/nano",
    renderer: "qwen3_instruct",
    mode: "asynchronous",
    rank: 16,
    learningRate: 1e-3,
  },
  ...{ steps: sized(8, 2), groupsPerBatch: sized(8, 2), groupSize: sized(8, 4), maxTokens: 16 },
  ...{ evaluateEvery: 0, loggers: [] },
};

const { values } = parseArgs({
  options: {
    episodes: { type: "string", default: sized("60", "3") },
    sessions: { type: "string", default: sized("500", "10") },
    gateway: { type: "boolean", default: false },
  },
});
const EPISODES = Number(values.episodes);
const SESSIONS = Number(values.sessions);

if (values.gateway) await serve();
else await measure();

/** The gateway in a process of its own, over a sampler that has its answer already. */
async function serve() {
  const { startGateway } = await import("tinkerts/gateway");
  const { loadTokenizer } = await import("tinkerts/tokenizers");
  const tokenizer = await loadTokenizer(fileURLToPath(new URL("../models/nano", import.meta.url)));
  const [end] = tokenizer.encode("<|im_end|>", { addSpecialTokens: false });
  const text = tokenizer.encode("So the answer is that we add the two numbers. ".repeat(40));
  const tokens = Int32Array.from([...text.slice(0, ANSWER_TOKENS - 1), end]);
  const logprobs = new Float32Array(tokens.length).fill(-0.5);
  const sampler = {
    sample: async () => ({ sequences: [{ tokens, logprobs, stopReason: "stop" }], promptCacheHitTokens: 0 }),
    getBaseModel: async () => "tinkerts/nano",
    getTokenizer: async () => tokenizer,
  };
  const gateway = await startGateway({
    models: { nano: sampler },
    maxContextLength: 65_536,
    host: "127.0.0.1",
  });
  const sessions = [];
  const answers = {
    open: (count) => {
      const opened = Array.from({ length: count }, () => gateway.session());
      sessions.push(...opened);
      return opened.map(({ baseURL, apiKey }) => ({ baseURL, apiKey }));
    },
    cpu: () => {
      const { user, system } = process.cpuUsage();
      return (user + system) / 1000;
    },
    /** Ends the sessions; how many had all turns in one thread, and what memory is held after them. */
    end: async () => {
      const records = await Promise.all(sessions.splice(0).map((session) => session.end()));
      const whole = records.filter(
        ({ threads }) => threads.length === 1 && threads[0].turns.length === TURNS,
      );
      const numWhole = whole.length;
      records.length = 0;
      whole.length = 0;
      for (let round = 0; round < 3; round += 1) {
        await new Promise((resolve) => setImmediate(resolve));
        globalThis.gc();
      }
      const { heapUsed, rss } = process.memoryUsage();
      return { whole: numWhole, heapMiB: heapUsed / 2 ** 20, rssMiB: rss / 2 ** 20 };
    },
  };
  process.on("message", async ({ ask, given }) => process.send(await answers[ask](given)));
  process.send({ url: gateway.url });
}

async function measure() {
  const loadBefore = loadavg()[0];
  const server = fork(fileURLToPath(import.meta.url), ["--gateway"], { execArgv: ["--expose-gc"] });
  await once(server, "message");
  const ask = async (what, given) => {
    server.send({ ask: what, given });
    return (await once(server, "message"))[0];
  };
  const agent = new Agent({ keepAlive: true, maxSockets: 64 });
  const times = [];
  const warmUp = Math.ceil(EPISODES / 6);
  let cpuBefore = 0;
  for (let episode = 0; episode < EPISODES; episode += 1) {
    const [session] = await ask("open", 1);
    // The first episodes compile the code.
    if (episode === warmUp) cpuBefore = await ask("cpu");
    await runEpisode(session, agent, episode < warmUp ? undefined : times);
  }
  const cpuMs = Number((((await ask("cpu")) - cpuBefore) / times.length).toFixed(2));
  await ask("end");
  times.sort((one, other) => one - other);
  const at = (share) =>
    Number(times[Math.min(times.length - 1, Math.floor(times.length * share))].toFixed(2));
  const waves = [];
  for (let wave = 0; wave < WAVES; wave += 1) {
    const opened = await ask("open", SESSIONS);
    const began = performance.now();
    await Promise.all(opened.map((session) => runEpisode(session, agent)));
    const seconds = (performance.now() - began) / 1000;
    const { whole, heapMiB, rssMiB } = await ask("end");
    waves.push({
      ...{
        wave: wave + 1,
        sessions: SESSIONS,
        whole,
        requestsPerSecond: Math.round((SESSIONS * TURNS) / seconds),
      },
      ...{ heapMiB: Number(heapMiB.toFixed(1)), rssMiB: Math.round(rssMiB) },
    });
  }
  agent.destroy();
  server.kill();
  const busy = await busyShares();
  const bars = {
    [`at most ${ADDED_BAR_MS} ms added at the median`]: Math.min(at(0.5), cpuMs) <= ADDED_BAR_MS,
    "every session ends with all of its turns in one thread": waves.every(({ whole }) => whole === SESSIONS),
    "the heap after the third wave is that after the first":
      waves.at(-1).heapMiB <= HEAP_BAR * waves[0].heapMiB,
    [`the engine is at least ${BUSY_BAR} times as busy with an agent as with an environment`]:
      busy.agent >= BUSY_BAR * busy.environment,
  };
  console.log(
    JSON.stringify({
      ...{ bench: "gateway", cores: availableParallelism(), loadBefore, requests: times.length },
      ...{ turnsPerSession: TURNS, answerTokens: ANSWER_TOKENS },
      addedMs: { p50: at(0.5), p90: at(0.9), p99: at(0.99) },
      cpuMsPerRequest: cpuMs,
      waves,
      busy,
      bars,
      pass: Object.values(bars).every(Boolean),
    }),
  );
}

/** One agent: it asks, reads the stream, and asks again with all that was said. */
async function runEpisode({ baseURL, apiKey }, agent, times) {
  const messages = [
    { role: "system", content: "You are a careful assistant that adds numbers. ".repeat(20) },
  ];
  for (let turn = 0; turn < TURNS; turn += 1) {
    messages.push({
      role: "user",
      content: `Turn ${turn}: what is ${turn} + 23? Think about it, then say it.`,
    });
    const began = performance.now();
    const content = await answerOf(baseURL, apiKey, agent, messages);
    times?.push(performance.now() - began);
    messages.push({ role: "assistant", content });
  }
}

/** The text of a streamed answer. */
async function answerOf(baseURL, apiKey, agent, messages) {
  const body = JSON.stringify({ model: "nano", stream: true, messages });
  const headers = { "content-type": "application/json", authorization: `Bearer ${apiKey}` };
  const call = request(`${baseURL}/chat/completions`, { method: "POST", agent, headers });
  call.end(body);
  const [response] = await once(call, "response");
  const parts = [];
  for await (const part of response) parts.push(part);
  const text = Buffer.concat(parts).toString();
  if (response.statusCode !== 200) throw new Error(`${response.statusCode}: ${text}`);
  const deltas = text.split("\n\n").filter((event) => event.startsWith("data: {"));
  return deltas.map((event) => JSON.parse(event.slice(6)).choices[0]?.delta.content ?? "").join("");
}

/** The share of a run in which the engine has work: with an agent that asks over HTTP, and with an environment. */
async function busyShares() {
  const { ServiceClient } = await import("tinkerts");
  const { trainReinforcement } = await import("tinkerts/cookbook");
  const server = await MeasuredServer.start();
  const service = new ServiceClient(server.backend);
  const problems = (index) => {
    const [a, b] = [30 + ((index * 7) % 30), 20 + ((index * 4) % 40)];
    return { prompt: `What is ${a} + ${b}?`, answer: String(a + b) };
  };
  const reward = ({ problem, text }) => (text.trim() === problem.answer ? 1 : 0);
  const sockets = new Agent({ keepAlive: true });
  const ask = ({ problem: { prompt }, baseURL, apiKey }) =>
    answerOf(baseURL, apiKey, sockets, [{ role: "user", content: prompt }]);
  const train = async (settings) => {
    const began = performance.now();
    await trainReinforcement({ ...RUN, service, problems, reward, ...settings });
    return { seconds: (performance.now() - began) / 1000 };
  };
  const [environment, agent] = [{}, {}];
  try {
    // In turns, and the best of each: other work on the machine hits both alike.
    for (let run = 0; run < BUSY_RUNS; run += 1) {
      takeBest(environment, await server.measured(() => train({})));
      takeBest(agent, await server.measured(() => train({ agent: ask })));
    }
  } finally {
    sockets.destroy();
    await service.close();
    server.close();
  }
  const seconds = { environment: round(environment.seconds), agent: round(agent.seconds) };
  return { environment: round(environment.busy), agent: round(agent.busy), seconds };
}
