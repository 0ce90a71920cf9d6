// Hostile input beside a neighbour: one customer sends what is made to exhaust the server, while another samples and
// another client asks for /healthz all the time. Needs a build. `npm run bench -- hostile` holds the times to bars,
// `npm run faults -- --attacks 500` asserts everything else.
import { randomFor } from "../shared/random.mjs";
import { attacks } from "./attacks.mjs";
import { send } from "./send.mjs";
import { startWatcher } from "./watcher.mjs";
import { World } from "./world.mjs";

const AT_ONCE = 4;
/** Enough for the heap and the prompt cache to be as large as daily use makes them. */
const MAX_ORDINARY = 200;

/**
 * @param {{ seed?: number, count?: number, only?: string, log?: (line: string) => void }} options
 * `count`: hostile requests of each attack; `only`: the name of one of them.
 * @returns {Promise<object[]>} a result for each attack; `differences` is empty when nothing was harmed
 */
export async function runBeside({ seed = 1, count = 500, only, log = () => {} } = {}) {
  const chosen = attacks.filter(({ name }) => only === undefined || name === only);
  if (chosen.length === 0) throw new Error(`no attack ${only}; there are ${attacks.map(({ name }) => name)}`);
  const results = [];
  for (const attack of chosen) {
    const result = await runAttack(attack, seed, count);
    log(JSON.stringify(result));
    results.push(result);
  }
  return results;
}

async function runAttack(attack, seed, wanted) {
  const began = performance.now();
  const count = Math.max(wanted, attack.least ?? 0);
  const watched = attack.begin?.();
  const world = await World.start(attack.limits, attack.models);
  const { victim, port } = world;
  const tally = { byKind: {}, byStatus: {} };
  const differences = [];
  let unanswered = 0;
  const judge = (made, answer) => {
    tally.byKind[made.kind] = (tally.byKind[made.kind] ?? 0) + 1;
    tally.byStatus[answer.status] = (tally.byStatus[answer.status] ?? 0) + 1;
    const problem = problemOf(made, answer);
    if (answer.status !== 0) watched?.see(made.kind, answer, world);
    // Do not wait 500 times for a server that does not answer.
    if (answer.status === 0 && ++unanswered === 2 * AT_ONCE) world.child.kill("SIGKILL");
    if (problem !== undefined && differences.length < 20)
      differences.push(`${attack.name} ${made.index} (${made.kind}, seed ${seed}): ${problem}`);
  };
  const sendAll = async (make, total, use) => {
    let next = 0;
    const one = async () => {
      while (next < total && world.crashed === undefined) {
        const index = next++;
        const made = { index, ...make(randomFor(attack.name, seed, index), world, index) };
        use(made, await send({ port }, made.request));
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, one));
  };
  // What the server needs for ordinary requests of the same kind is what its memory is compared with.
  const neighbours = () =>
    Promise.all([
      startWatcher("./probe.mjs", port),
      startWatcher("./neighbour.mjs", port, victim.key, victim.samplerWeights),
    ]);
  const stop = (watchers) => Promise.all(watchers.map((watcher) => watcher.stop()));
  const quiet = await neighbours();
  await sendAll(attack.ordinary, Math.min(count, MAX_ORDINARY), (made, answer) => {
    const problem = problemOf({ ...made, mustWork: true }, answer);
    if (problem !== undefined) differences.push(`${attack.name}, an ordinary request: ${problem}`);
  });
  const [quietHealthz, quietSample] = await stop(quiet);
  const before = await world.memory();

  const watchers = await neighbours();
  await sendAll(attack.hostile, count, judge);
  const [healthz, sample] = await stop(watchers);
  differences.push(...sample.differences);
  let after = before;
  if (world.crashed === undefined) {
    after = await world.memory();
    differences.push(...(await world.damage()), ...after.failures);
    differences.push(...((await watched?.end(world)) ?? []));
  } else differences.push(world.crashed);
  await world.close();
  const megabytes = (bytes) => Math.round(bytes / 2 ** 20);
  return {
    attack: attack.name,
    requests: Object.values(tally.byStatus).reduce((sum, times) => sum + times, 0),
    ...tally,
    differences,
    ordinaryHealthzMaxMs: quietHealthz.maxMs,
    ordinarySampleMaxMs: quietSample.maxMs,
    healthzP99Ms: healthz.p99Ms,
    healthzMaxMs: healthz.maxMs,
    stretchMaxMs: after.stretchMs,
    samples: sample.times,
    sampleP50Ms: sample.p50Ms,
    sampleMaxMs: sample.maxMs,
    peakMbBefore: megabytes(before.peakRss),
    peakMb: megabytes(after.peakRss),
    peakRatio: Number((after.peakRss / before.peakRss).toFixed(2)),
    seconds: Math.round((performance.now() - began) / 1000),
  };
}

/** Why an answer is wrong: neither a refusal in a sentence, nor a right result. */
function problemOf(made, answer) {
  const shown = `${answer.status} ${answer.body.toString("utf8").slice(0, 300)}`;
  if (answer.status === 0) return `no answer after ${Math.round(answer.durationMs)} ms`;
  let body;
  try {
    body = JSON.parse(answer.body.toString("utf8"));
  } catch {
    return `an answer without JSON: ${shown}`;
  }
  if (answer.status === 200) {
    const wrong = made.mustRefuse ? "not refused" : made.check?.(body);
    return wrong && `${wrong}: ${shown}`;
  }
  if (made.mustWork) return `refused: ${shown}`;
  const sentence = body.error?.message ?? body.error ?? body.detail?.[0]?.msg ?? body.detail;
  const isSentence = typeof sentence === "string" && sentence.includes(" ");
  return answer.status >= 400 && answer.status < 500 && isSentence
    ? undefined
    : `not a refusal in a sentence: ${shown}`;
}

/** A line for each attack, for docs/proof.md. */
export function besideReport(results) {
  const answers = ({ byStatus }) =>
    Object.entries(byStatus)
      .map(([status, times]) => `${status}: ${times}`)
      .join(", ");
  return [
    "Each attack goes to a server of its own, beside a neighbour who draws the same 8 tokens all the time. Checked: the server lives, each answer is right or a refusal (4xx) in a sentence, the neighbour always gets the same tokens, its run, files and checkpoints are unchanged.",
    "",
    "| attack | requests | answers | neighbour's samples | differences |",
    "|---|---|---|---|---|",
    ...results.map(
      (result) =>
        `| ${result.attack} | ${result.requests} | ${answers(result)} | ${result.samples} | ${result.differences.length} |`,
    ),
    ...results.flatMap(({ differences }) => differences.map((line) => `- ${line.replaceAll("|", "\\|")}`)),
  ].join("\n");
}
