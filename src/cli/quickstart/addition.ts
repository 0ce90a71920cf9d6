/** Reinforcement learning: a small language model that often forgets the carry learns to add, from rewards alone. */
import {
  type Datum,
  datumFromSample,
  type SampledSequence,
  type SamplingClient,
  ServiceClient,
} from "tinkerts";
import { type LocalBackendOptions, startLocalBackend } from "tinkerts/local";
import { RunLog } from "tinkerts/run-log";
import { loadTokenizer } from "tinkerts/tokenizers";
import { createDisplay, drawCurve, percent } from "./display.js";
import { seededRandom, shuffled } from "./random.js";

const baseModel = "tinkerts/nano";
const tokenizer = await loadTokenizer(baseModel);

interface Problem {
  readonly prompt: number[];
  readonly solution: string;
}

/** All sums of two numbers from 0 to 99; one in seven, the same in both orders, is kept for the test. */
function allProblems(): { training: Problem[]; heldOut: Problem[] } {
  const training: Problem[] = [];
  const heldOut: Problem[] = [];
  for (let a = 0; a < 100; a += 1) {
    for (let b = 0; b < 100; b += 1) {
      const problem = { prompt: tokenizer.encode(`${a}+${b}=`), solution: String(a + b) };
      (((a + 1) * (b + 1)) % 7 === 1 ? heldOut : training).push(problem);
    }
  }
  return { training, heldOut };
}

/** Reward: 1 for the right number, 0 for anything else. */
function reward({ solution }: Problem, { tokens }: SampledSequence): number {
  return tokenizer.decode(tokens) === `${solution}\n` ? 1 : 0;
}

/** Samples several answers to each problem at temperature 1. */
function attempt(sampler: SamplingClient, problems: readonly Problem[], numSamples: number, step: number) {
  return Promise.all(
    problems.map(async (problem, index) => {
      // The seed makes every run of this program the same; without one, each is different.
      const samplingParams = { maxTokens: 5, temperature: 1, stop: "\n", seed: 1000 * step + index };
      const { sequences } = await sampler.sample({ prompt: problem.prompt, numSamples, samplingParams });
      return { problem, sequences, rewards: sequences.map((sequence) => reward(problem, sequence)) };
    }),
  );
}

type Attempts = Awaited<ReturnType<typeof attempt>>[number];

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Training data of a group: answers better than the group's mean become likelier, the others less likely. */
function lessons({ problem, sequences, rewards }: Attempts): Datum[] {
  const baseline = mean(rewards);
  // All right or all wrong: there is nothing to learn from.
  if (rewards.every((value) => value === baseline)) return [];
  return sequences.map((sequence, index) =>
    datumFromSample(problem.prompt, sequence, rewards[index]! - baseline),
  );
}

/** The share of problems whose likeliest answer is right. */
async function accuracyOf(sampler: SamplingClient, problems: readonly Problem[]): Promise<number> {
  const samplingParams = { maxTokens: 5, temperature: 0, stop: "\n" };
  const rewards = problems.map(async (problem) => {
    const { sequences } = await sampler.sample({ prompt: problem.prompt, samplingParams });
    return reward(problem, sequences[0]!);
  });
  return mean(await Promise.all(rewards));
}

export async function runAddition({
  dataDir = ".tinkerts",
  folder = `runs/addition-${Date.now()}`,
  steps = 60,
  problemsPerStep = 32,
  samplesPerProblem = 8,
  learningRate = 1e-3,
  testProblems = 300,
  display = createDisplay(),
  signal = new AbortController().signal,
  computing = {} as Pick<LocalBackendOptions, "device" | "precision">,
} = {}) {
  const started = performance.now();
  await using backend = await startLocalBackend({ dataDir, ...computing });
  await using service = new ServiceClient(backend);
  await using log = await RunLog.open(folder, { config: { model_name: baseModel, steps, learningRate } });
  const random = seededRandom(1);
  const { training: trainingProblems, heldOut } = allProblems();
  const test = shuffled(heldOut, random).slice(0, testProblems);
  const draw = () => shuffled(trainingProblems, random).slice(0, problemsPerStep);

  const accuracyBefore = await accuracyOf(await service.createSamplingClient({ baseModel }), test);
  display.say(`${baseModel} adds ${percent(accuracyBefore)} of ${test.length} held-out pairs right.\n`);

  display.say(`Learning from ${problemsPerStep} x ${samplesPerProblem} answers a step:`);
  const training = await service.createLoraTrainingClient({
    baseModel,
    rank: 32,
    seed: 1,
    userMetadata: { name: "quickstart: addition" },
  });
  let sampler = await training.saveWeightsAndGetSamplingClient();
  let attempts = attempt(sampler, draw(), samplesPerProblem, 1);
  const curve: number[] = [];
  const progress = display.progress(steps);
  const trainingStarted = performance.now();
  let tokens = 0;
  let tokensPerSecond = 0;
  for (let step = 1; step <= steps; step += 1) {
    signal.throwIfAborted();
    const groups = await attempts;
    // The next answers are sampled while these are trained on, so their sampler is one step old. The loss corrects for
    // that: it weights each token by its probability now over its probability then.
    if (step < steps) attempts = attempt(sampler, draw(), samplesPerProblem, step + 1);
    const batch = groups.flatMap(lessons);
    if (batch.length > 0) {
      const pass = training.forwardBackward(batch, "importance_sampling");
      const update = training.optimStep({ learningRate });
      sampler = await training.saveWeightsAndGetSamplingClient();
      await Promise.all([pass, update]);
    }
    curve.push(mean(groups.map(({ rewards }) => mean(rewards))));
    tokens += groups
      .flatMap(({ sequences }) => sequences)
      .reduce((sum, sequence) => sum + sequence.tokens.length, 0);
    tokensPerSecond = Math.round((1000 * tokens) / (performance.now() - trainingStarted));
    progress.update(step, `reward ${curve.at(-1)!.toFixed(2)}  ${tokensPerSecond} sampled tokens/s`);
    await log.logMetrics({ reward: curve.at(-1)!, tokensPerSecond, time: Date.now() / 1000 }, step - 1);
  }
  progress.end();

  display.say("\nMean reward, step by step:");
  display.say(drawCurve(curve));
  const { path: checkpoint } = await training.saveWeightsForSampler("addition");
  await log.logCheckpoint({ name: "final", batch: steps, final: true, samplerPath: checkpoint });
  const accuracyAfter = await accuracyOf(await service.createSamplingClient({ modelPath: checkpoint }), test);
  const seconds = Math.round((performance.now() - started) / 100) / 10;
  display.say(
    `\nFrom ${percent(accuracyBefore)} to ${percent(accuracyAfter)} in ${seconds} s. The checkpoint, kept in ${dataDir}:`,
  );
  display.say(`  ${checkpoint}`);
  return { accuracyBefore, accuracyAfter, seconds, tokensPerSecond, checkpoint };
}

// Runs only when started directly: `npx tsx addition.ts`.
if (process.argv[1] === import.meta.filename) await runAddition();
