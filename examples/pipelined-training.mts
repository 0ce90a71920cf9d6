/**
 * Pipelined training. Every call is sent at once and numbered; the server works by number. So a loop sends
 * the next step before the last one has ended, and the server never waits for the network.
 *
 * The built-in backend is on the same machine, so this program delays each request as the internet would. With
 * TINKER_BASE_URL set it runs on that server, without the added delay.
 */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import {
  type APIFuture,
  type Datum,
  datumFromAnswer,
  type ForwardBackwardOutput,
  ServiceClient,
} from "tinkerts";
import { startLocalBackend } from "tinkerts/local";

const baseModel = "tinkerts/nano"; // on another server, one of its models
const steps = 15;
const stepsAhead = 3; // a few are enough to keep a server busy
const distanceMs = 100;

await using backend = process.env["TINKER_BASE_URL"] ? undefined : await startLocalBackend();
await using service = new ServiceClient(
  backend && {
    ...backend,
    fetch: async (input, init) => {
      await sleep(distanceMs);
      return backend.fetch(input, init);
    },
  },
);

const tokenizer = await (await service.createSamplingClient({ baseModel })).getTokenizer();

/** The batch of a step: lines of a counting rhyme. */
function batchOf(step: number): Datum[] {
  return Array.from({ length: 4 }, (_, index) => {
    const number = step * 4 + index;
    const line = `${number} green bottles, ${number} green bottles on the wall\n`;
    return datumFromAnswer([], tokenizer.encode(line)); // no prompt: the whole line is trained on
  });
}

const newTraining = () => service.createLoraTrainingClient({ baseModel, rank: 8, seed: 1 });
const adam = { learningRate: 2e-3 };

/** Waits for each call before it makes the next one. */
async function oneByOne(): Promise<number[]> {
  const training = await newTraining();
  const losses: number[] = [];
  for (let step = 0; step < steps; step += 1) {
    const { metrics } = await training.forwardBackward(batchOf(step), "cross_entropy");
    await training.optimStep(adam);
    losses.push(metrics["loss:sum"]!);
  }
  return losses;
}

/** Sends a step while the ones before it are still being worked on. */
async function pipelined(): Promise<number[]> {
  const training = await newTraining();
  const losses: number[] = [];
  const underway: { pass: APIFuture<ForwardBackwardOutput>; update: APIFuture<unknown> }[] = [];
  for (let step = 0; step < steps + stepsAhead; step += 1) {
    if (step < steps) {
      const pass = training.forwardBackward(batchOf(step), "cross_entropy");
      underway.push({ pass, update: training.optimStep(adam) });
    }
    if (step < stepsAhead) continue;
    const { pass, update } = underway.shift()!;
    losses.push((await pass).metrics["loss:sum"]!);
    await update;
  }
  return losses;
}

async function timed(name: string, run: () => Promise<number[]>) {
  const started = performance.now();
  const losses = await run();
  const seconds = (performance.now() - started) / 1000;
  console.log(
    `${name}: ${steps} steps in ${seconds.toFixed(1)} s, loss from ${losses[0]!.toFixed(1)} to ${losses.at(-1)!.toFixed(1)}`,
  );
  return { losses, seconds };
}

const waiting = await timed("waiting each time", oneByOne);
const ahead = await timed("sent ahead       ", pipelined);
console.log(
  `${(waiting.seconds / ahead.seconds).toFixed(1)} times as fast, and the same losses to the last bit.`,
);

assert.deepEqual(ahead.losses, waiting.losses, "the order of the steps was not kept");
assert.ok(ahead.losses.at(-1)! < ahead.losses[0]! / 2, "the loss did not fall");
assert.ok(ahead.seconds < waiting.seconds, "sending ahead was not faster");
