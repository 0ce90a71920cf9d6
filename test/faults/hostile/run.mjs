// Hostile input to the built-in backend: thousands of requests, each made from a seed and its number, by a tenant with a
// key of their own. Needs a build. `node test/faults/hostile/run.mjs --seed 1 --requests 20000`, `--only 17` for one of them.
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { generate } from "./generate.mjs";
import { send } from "./send.mjs";
import { startWatcher } from "./watcher.mjs";
import { BODY_IDLE_MS, World } from "./world.mjs";

const AT_ONCE = 12;
const SLOW_MS = 1000;
const READINGS = 30;
/** What a server that keeps records of sessions and checkpoints may grow by; a leak of one body is a hundred times that. */
const HEAP_GROWTH_BAR_BYTES = 24 * 2 ** 20;
const WARM_UP = 0.25;

/**
 * @param {{ seed?: number, requests?: number, from?: number, log?: (line: string) => void }} options
 * @returns {Promise<object>} what was sent, what came back, and `differences`: empty when all is well
 */
export async function runHostile({ seed = 1, requests = 20_000, from = 0, log = () => {} } = {}) {
  const began = performance.now();
  const world = await World.start();
  const probe = await startWatcher("./probe.mjs", world.port);
  const tally = { byKind: {}, byStatus: {}, byEndpoint: {} };
  const differences = [];
  const slow = [];
  const readings = [];
  let slowestMs = 0;

  const report = (made, what, answer) => {
    const { request, kind, index } = made;
    const body = request.body === undefined ? "" : ` ${preview(request.body)}`;
    const line = `seed ${seed} request ${index} (${kind}): ${what}: ${request.method} ${request.path.slice(0, 200)}${body} -> ${answer.status} ${preview(answer.body)}`;
    differences.push(line);
    log(line);
  };
  const attempt = async (made) => {
    const answer = await send({ port: world.port }, made.request);
    if (made.request.manner === "stall") answer.durationMs = Math.max(0, answer.durationMs - BODY_IDLE_MS);
    return answer;
  };
  const judge = (made, answer) => {
    count(tally.byKind, made.kind);
    count(tally.byStatus, answer.status);
    count(tally.byEndpoint, made.endpoint.name);
    if (answer.status >= 500) report(made, "a server error", answer);
    const mayVanish = made.kind === "absurd headers" || made.request.manner !== undefined;
    if (answer.status === 0 && !mayVanish)
      report(made, `no answer after ${Math.round(answer.durationMs)} ms`, answer);
    if (made.mustRefuse && answer.status >= 200 && answer.status < 400) report(made, "not refused", answer);
    for (const [name, secret] of world.secrets) {
      if (answer.body.includes(secret) || answer.head.includes(secret.toString("latin1")))
        report(made, `an answer with ${name}`, answer);
    }
    if (waitsForWork(made, answer)) return;
    slowestMs = Math.max(slowestMs, answer.durationMs);
    if (answer.durationMs > SLOW_MS) slow.push(made);
  };

  let next = from;
  const attack = async (until) => {
    while (next < until && world.crashed === undefined) {
      const made = generate(world, seed, next++);
      judge(made, await attempt(made));
    }
  };
  for (let reading = 1; reading <= READINGS && world.crashed === undefined; reading += 1) {
    const until = from + Math.ceil((requests * reading) / READINGS);
    await Promise.all(Array.from({ length: AT_ONCE }, () => attack(until)));
    if (world.crashed !== undefined) break;
    // Between two waves, so that no body on its way counts.
    const { failures, ...memory } = await world.memory();
    readings.push({ progress: reading / READINGS, ...memory });
    for (const failure of failures) log(failure);
    log(
      `${next - from} of ${requests}, heap ${megabytes(memory.heapBytes)} MB, ${differences.length} differences`,
    );
  }

  if (world.crashed === undefined) {
    // On a busy machine anything may take a second: what is slow three times, alone, on a machine of its own, is slow.
    for (const made of slow) {
      const times = [];
      for (let tries = 0; tries < 3; tries += 1) {
        const { durationMs } = await attempt(made);
        times.push(durationMs > SLOW_MS ? durationMs / crowded() : durationMs);
        if (times.at(-1) <= SLOW_MS) break;
      }
      if (times.at(-1) > SLOW_MS)
        report(made, `an answer after ${times.map(Math.round).join(", ")} ms`, { status: 0, body: "" });
    }
    differences.push(...(await world.damage()));
  } else differences.push(`${world.crashed} at about request ${next}`);
  const health = await probe.stop();
  const settled = readings.filter(({ progress }) => progress >= WARM_UP);
  const heapGrowthBytes = trend(settled, "heapBytes") * (1 - WARM_UP);
  if (heapGrowthBytes > HEAP_GROWTH_BAR_BYTES)
    differences.push(`memory grew by ${megabytes(heapGrowthBytes)} MB over the run`);
  await world.close();
  return {
    seed,
    from,
    requests: next - from,
    endpoints: Object.keys(tally.byEndpoint).length,
    byKind: tally.byKind,
    byStatus: tally.byStatus,
    differences,
    slowestMs: Math.round(slowestMs),
    overOneSecondOnce: slow.length,
    healthzP99Ms: health.p99Ms,
    healthzMaxMs: health.maxMs,
    heapGrowthMb: megabytes(heapGrowthBytes),
    heapEndMb: megabytes(readings.at(-1)?.heapBytes ?? 0),
    rssEndMb: megabytes(readings.at(-1)?.rss ?? 0),
    rssPeakMb: megabytes(Math.max(0, ...readings.map(({ rss }) => rss))),
    seconds: Math.round((performance.now() - began) / 1000),
  };
}

/** How much longer than alone this process takes for something, right now, because of others. */
function crowded() {
  const began = performance.now();
  const cpu = process.cpuUsage();
  let used = 0;
  while (used < 50_000) {
    const { user, system } = process.cpuUsage(cpu);
    used = user + system;
  }
  return Math.max(1, (performance.now() - began) / (used / 1000));
}

/** Long polls wait for results, and the OpenAI and Anthropic doors for samples: that is what they are for. */
function waitsForWork({ endpoint }, { status }) {
  return (
    /^(\/retrieve_future|oai\/.*completions$|anthropic\/messages$)/.test(endpoint.name) && status === 200
  );
}

function count(tally, key) {
  tally[key] = (tally[key] ?? 0) + 1;
}

function preview(bytes) {
  const shown = [...Buffer.from(bytes).subarray(0, 300)];
  return shown.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
}

function megabytes(bytes) {
  return Number((bytes / 2 ** 20).toFixed(1));
}

/** The median of the slopes between all pairs of readings, so that no single one decides; bytes over the whole run. */
function trend(readings, key) {
  const slopes = [];
  for (const [index, one] of readings.entries())
    for (const other of readings.slice(index + 1))
      slopes.push((other[key] - one[key]) / (other.progress - one.progress));
  slopes.sort((a, b) => a - b);
  return slopes[slopes.length >> 1] ?? 0;
}

export function hostileReport(result) {
  const rows = Object.entries(result.byKind).sort((a, b) => b[1] - a[1]);
  const statuses = Object.entries(result.byStatus).map(
    ([status, times]) => `${status === "0" ? "closed" : status}: ${times}`,
  );
  return [
    `${result.requests.toLocaleString("en")} requests (seed ${result.seed}) to ${result.endpoints} endpoints, in ${result.seconds} s: **${result.differences.length} differences**.`,
    "",
    "| kind | requests |",
    "|---|---|",
    ...rows.map(([kind, times]) => `| ${kind} | ${times} |`),
    "",
    `Answers: ${statuses.join(", ")}. Slowest answer ${result.slowestMs} ms (${result.overOneSecondOnce} took over 1 s on this machine at that moment; each was sent again alone); \`/healthz\` meanwhile p99 ${result.healthzP99Ms} ms, slowest ${result.healthzMaxMs} ms.`,
    `Memory: heap ${result.heapEndMb} MB at the end, trend ${result.heapGrowthMb} MB over the run; resident ${result.rssEndMb} MB, peak ${result.rssPeakMb} MB.`,
    "Checked: no crash, no 5xx, no answer over 1 s, no memory growth; nothing of another key in any answer, its files, checkpoints, weights and results unchanged; nothing outside the data folder read or written.",
    ...(result.differences.length === 0
      ? []
      : ["", ...result.differences.map((line) => `- ${line.replaceAll("|", "\\|")}`)]),
  ].join("\n");
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({
    options: {
      seed: { type: "string", default: "1" },
      requests: { type: "string", default: "20000" },
      only: { type: "string" },
    },
  });
  const range =
    values.only === undefined
      ? { requests: Number(values.requests) }
      : { from: Number(values.only), requests: 1 };
  const result = await runHostile({
    seed: Number(values.seed),
    ...range,
    log: (line) => console.error(line),
  });
  console.log(JSON.stringify(result));
  process.exitCode = result.differences.length === 0 ? 0 : 1;
}
