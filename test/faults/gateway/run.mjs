// Agents at `tinkerts gateway --record` over `tinkerts serve`, while agents, gateway and server are killed: what an agent has
// read is recorded, and each token to train has the logprob that a forward pass gives it.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { GatewayProcess, ServerProcess } from "../crashes/server-process.mjs";
import { between, oneOf, randomFor } from "../shared/random.mjs";
import { recordingDifferences } from "./check.mjs";

const main = fileURLToPath(new URL("../../../dist/bundle/cli.js", import.meta.url));
const agentFile = fileURLToPath(new URL("agent.mjs", import.meta.url));
const MODEL = "tinkerts/nano";
const AGENTS = 6;
const TURNS = 5;
const MAX_KILLS = 4;
const MAX_DELAY_MS = 40;
/** A run that takes longer hangs. */
const MAX_RUN_MS = 10 * 60_000;

/** `{ runs, kills, answers, forks, tokens, differences, seconds }`. */
export async function runGateway({ from, seeds, log }) {
  const home = mkdtempSync(join(tmpdir(), "tinkerts-gateway-"));
  const startedMs = performance.now();
  const total = { kills: { agent: 0, gateway: 0, server: 0 }, answers: 0, forks: 0, tokens: 0 };
  const differences = [];
  const server = new Restarting((port) => new ServerProcess({ dataDir: join(home, "data"), port }));
  try {
    await server.start();
    for (let seed = from; seed < from + seeds; seed += 1) {
      const folder = join(home, `seed-${seed}`);
      mkdirSync(folder);
      const run = await runSeed({ seed, folder, server, log });
      for (const [victim, count] of Object.entries(run.kills)) total.kills[victim] += count;
      for (const name of ["answers", "forks", "tokens"]) total[name] += run[name];
      differences.push(...run.differences.map((text) => `seed ${seed}: ${text}`));
    }
  } finally {
    await server.kill();
    rmSync(home, { recursive: true, force: true });
  }
  const seconds = Math.round((performance.now() - startedMs) / 1000);
  return { runs: seeds, ...total, differences, seconds };
}

async function runSeed({ seed, folder, server, log }) {
  const random = randomFor("gateway", seed);
  const [recording, received] = [join(folder, "recording"), join(folder, "received.jsonl")];
  const gateway = new Restarting(
    (port) => new GatewayProcess({ server: server.baseURL, model: MODEL, folder: recording, port }),
  );
  await gateway.start();
  const agents = Array.from(
    { length: AGENTS },
    (_, number) => new AgentProcess([gateway.baseURL, `agent-${number}`, received, String(TURNS)]),
  );
  const kills = { agent: 0, gateway: 0, server: 0 };
  const endMs = performance.now() + MAX_RUN_MS;
  try {
    const count = 2 + Math.floor(random() * (MAX_KILLS - 1));
    const moments = Array.from({ length: count }, () => Math.floor(random() * AGENTS * TURNS));
    for (const moment of moments.sort((one, other) => one - other)) {
      while (agents.some(({ isRunning }) => isRunning) && linesIn(received).length < moment) await sleep(2);
      await sleep(between(random, 0, MAX_DELAY_MS));
      const victim = oneOf(random, ["agent", "gateway", "gateway", "server"]);
      log(`  seed ${seed}: ${victim} killed after ${linesIn(received).length} answers`);
      kills[victim] += 1;
      if (victim === "agent") await oneOf(random, agents).restart();
      else await (victim === "gateway" ? gateway : server).restart();
    }
    while (agents.some(({ isRunning }) => isRunning)) {
      if (performance.now() > endMs) throw new Error(`seed ${seed}: the agents do not end`);
      await sleep(20);
    }
    const failed = agents.filter(({ code }) => code !== 0).map(({ said }) => `an agent failed: ${said}`);
    await gateway.kill();
    return { kills, ...(await inspect({ recording, received, server, failed })) };
  } finally {
    for (const agent of agents) await agent.kill();
    await gateway.kill();
  }
}

/** Reads what the gateway has left, as its users do. */
async function inspect({ recording, received, server, failed }) {
  const { listSessions, readSessions } = await import("tinkerts/gateway");
  const { ServiceClient } = await import("tinkerts");
  const sessions = [];
  for await (const record of readSessions(recording)) sessions.push(record);
  const { badLines } = await listSessions(recording);
  const datums = linesOf(await exported(recording)).map(({ datum }) => datum);
  const service = new ServiceClient({ baseURL: server.baseURL, apiKey: "tml-local", logLevel: "off" });
  try {
    const training = await service.createLoraTrainingClient({ baseModel: MODEL, rank: 2 });
    const { lossFnOutputs } = await training.forward(
      datums.map(({ modelInput, lossFnInputs: { targetTokens, weights } }) => ({
        modelInput,
        lossFnInputs: { targetTokens, weights },
      })),
      "cross_entropy",
    );
    const computed = lossFnOutputs.map(({ logprobs }) => [...logprobs.toArray()]);
    const answers = linesIn(received);
    return {
      answers: answers.length,
      forks: sessions.reduce((sum, { threads }) => sum + threads.length - 1, 0),
      tokens: sessions
        .flatMap(({ threads }) => threads.flatMap(({ turns }) => turns))
        .reduce((sum, { tokens }) => sum + tokens.length, 0),
      differences: [
        ...failed,
        ...(badLines === 0 ? [] : [`${badLines} lines of the recording cannot be read`]),
        ...recordingDifferences({ received: answers, sessions, datums, computed }),
      ],
    };
  } finally {
    await service.close();
  }
}

async function exported(recording) {
  const args = [main, "gateway", "export", recording, "--as", "datums", "--threads", "all"];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (part) => {
    text += part;
  });
  await once(child, "close");
  return text;
}

const linesOf = (text) =>
  text
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line));

const linesIn = (file) => (existsSync(file) ? linesOf(readFileSync(file, "utf8")) : []);

/** A process that comes back at the address it had. */
class Restarting {
  #make;
  #process;

  constructor(make) {
    this.#make = make;
  }

  get baseURL() {
    return this.#process.baseURL;
  }

  async start(port) {
    this.#process = await this.#make(port).started;
  }

  async restart() {
    const { port } = new URL(this.baseURL);
    await this.kill();
    await this.start(Number(port));
  }

  async kill() {
    await this.#process?.kill();
  }
}

class AgentProcess {
  said = "";
  #args;
  #child;
  #exited;

  constructor(args) {
    this.#args = args;
    this.#start();
  }

  get isRunning() {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  get code() {
    return this.#child.exitCode;
  }

  #start() {
    this.#child = spawn(process.execPath, [agentFile, ...this.#args], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    this.#exited = once(this.#child, "close");
    this.#child.stderr.setEncoding("utf8").on("data", (text) => {
      this.said = (this.said + text).slice(-2000);
    });
  }

  async kill() {
    this.#child.kill("SIGKILL");
    await this.#exited;
  }

  async restart() {
    await this.kill();
    this.#start();
  }
}

export function gatewayReport({ runs, kills, answers, forks, tokens, differences, seconds }) {
  return `
${AGENTS} agents talk at \`tinkerts gateway --record\` over \`tinkerts serve\`; agents (${kills.agent} times), the gateway (${kills.gateway} times) and the server (${kills.server} times) are
killed with SIGKILL at random points of ${runs} runs and started again: **${differences.length} differences**, ${seconds} s. All ${answers} answers that agents read to
their end are in the recording. Of ${tokens} recorded tokens, in ${forks} forks besides the main threads, each that is exported to be trained was sampled there: a
forward pass gives it the recorded logprob (within 0.001).
${differences.map((text) => `- ${text}`).join("\n")}`;
}
