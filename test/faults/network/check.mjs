// Compares a disturbed run with the undisturbed one: what the client saw, and what the backend did.
import { createHash } from "node:crypto";

const SETTLED_MS = 2_000;
/** Clock readings of two processes may differ by this much. */
const SLACK_NS = 5e6;
const MOST_SHOWN = 8;

/** What a run leaves behind, with nothing in it that may differ between runs. */
export function outcomeOf({ operations, backendHistory, modelId, adapterHash }) {
  const told = new Map();
  for (const operation of operations) {
    if (operation.type === "ok" && VALUES[operation.f] !== undefined)
      told.set(`${operation.f} ${operation.key}`, VALUES[operation.f](operation.result));
  }
  const trained = backendHistory.filter((event) => event.adapterId === `model-${modelId}`);
  return { told, adapterHash, trained, samples: samplesOf(backendHistory) };
}

/** The part of each answer that must not differ. */
const VALUES = {
  forwardBackward: (result) =>
    digest([result.metrics, result.lossFnOutputs.map(({ logprobs }) => logprobs.toArray())]),
  sample: (result) =>
    digest(result.sequences.map(({ tokens, logprobs, stopReason }) => [tokens, logprobs, stopReason])),
  getInfo: (name) => name,
};

const digest = (value) =>
  createHash("sha256")
    .update(JSON.stringify(value, (_, item) => (ArrayBuffer.isView(item) ? Array.from(item) : item)))
    .digest("hex");

/**
 * How often each sample ran, by its number in its session. One that was taken out of the engine because its client was
 * silent begins again when the client is back: that is no second run.
 */
function samplesOf(history) {
  const runs = new Map();
  for (const { f, adapterId, isCancelled } of history) {
    if (f !== "sample" || isCancelled) continue;
    const key = adapterId.replace(/^[^:]*:/, "");
    runs.set(key, (runs.get(key) ?? 0) + 1);
  }
  return runs;
}

/** Sentences about everything that is not as in the undisturbed run. */
export function differences(run, outcome, expected) {
  const found = run.error === undefined ? [] : [`the run failed: ${run.error.stack ?? run.error}`];
  for (const { f, key, type, error } of run.operations) {
    if (type !== "ok") found.push(`${f} ${key} ended as "${type}"${error ? `: ${error}` : ""}`);
  }
  if (run.operations.length !== expected.operations.length) {
    found.push(`${run.operations.length} operations instead of ${expected.operations.length}`);
  }
  for (const [key, value] of expected.outcome.told) {
    if (outcome.told.get(key) !== value) found.push(`${key} was answered otherwise`);
  }
  const names = ({ f, fingerprint }) => `${f} ${fingerprint}`;
  const [did, should] = [outcome.trained.map(names), expected.outcome.trained.map(names)];
  const at = should.findIndex((name, index) => did[index] !== name);
  if (at >= 0) found.push(`the backend's operation ${at} was ${did[at]} instead of ${should[at]}`);
  if (did.length !== should.length)
    found.push(`the backend did ${did.length} operations instead of ${should.length}`);
  for (const [key, count] of outcome.samples) if (count !== 1) found.push(`sample ${key} ran ${count} times`);
  if (outcome.samples.size !== expected.outcome.samples.size) {
    found.push(`${outcome.samples.size} samples ran instead of ${expected.outcome.samples.size}`);
  }
  found.push(...outOfTime(run, outcome));
  if (outcome.adapterHash !== expected.outcome.adapterHash) {
    found.push("the adapter and its optimizer state are not bit for bit those of the undisturbed run");
  }
  found.push(...run.leftovers);
  return found.length > MOST_SHOWN
    ? [...found.slice(0, MOST_SHOWN), `and ${found.length - MOST_SHOWN} more`]
    : found;
}

/** Each operation must have taken effect between its call and its answer, in the order of the calls. */
function outOfTime(run, outcome) {
  const found = [];
  const calls = run.operations.filter(({ f }) => f === "optimStep");
  const effects = outcome.trained.filter(({ f }) => f === "optimStep");
  for (const [index, { key, invoke, end }] of calls.entries()) {
    const effect = effects[index];
    if (effect === undefined || end === null) continue;
    if (effect.begin < invoke - SLACK_NS || effect.end > end + SLACK_NS) {
      found.push(`optimStep ${key} took effect outside of its call`);
    }
  }
  return found;
}

/** What a closed client leaves open. */
export async function leftoversOf(proxy, warnings) {
  const deadline = performance.now() + SETTLED_MS;
  while (proxy.openConnections > 0 && performance.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  const left = warnings.map((warning) => `warning: ${warning}`);
  if (proxy.openConnections > 0) left.push(`${proxy.openConnections} connections were left open`);
  return left;
}
