/** Teaches a small language model Pig Latin ("stick" becomes "ick-stay") in under a minute, all on this machine. */
import { datumFromAnswer, type SamplingClient, ServiceClient } from "tinkerts";
import { type LocalBackendOptions, startLocalBackend } from "tinkerts/local";
import { RunLog } from "tinkerts/run-log";
import { loadTokenizer } from "tinkerts/tokenizers";
import { createDisplay, percent } from "./display.js";
import { seededRandom, shuffled } from "./random.js";
import { heldOutWords, pigLatin, trainingWords } from "./words.js";

const baseModel = "tinkerts/nano";
const tokenizer = await loadTokenizer(baseModel);

const question = (word: string) => `English: ${word}\nPig Latin:`;

/** One example. The model reads all of it and is trained only on the answer: the question's tokens have weight 0. */
function example(word: string) {
  return datumFromAnswer(tokenizer.encode(question(word)), tokenizer.encode(` ${pigLatin(word)}\n`));
}

/** The likeliest answer for each word. All requests are sent at once, so that the server samples them together. */
async function translate(sampler: SamplingClient, words: readonly string[]): Promise<string[]> {
  const samplingParams = { maxTokens: 20, temperature: 0, stop: "\n" };
  const responses = await Promise.all(
    words.map((word) => sampler.sample({ prompt: tokenizer.encode(question(word)), samplingParams })),
  );
  return responses.map(({ sequences }) => tokenizer.decode(sequences[0]!.tokens).trim());
}

export async function runPigLatin({
  dataDir = ".tinkerts",
  folder = `runs/pig-latin-${Date.now()}`,
  steps = 150,
  batchSize = 16,
  learningRate = 2e-3,
  display = createDisplay(),
  signal = new AbortController().signal,
  computing = {} as Pick<LocalBackendOptions, "device" | "precision">,
} = {}) {
  const secondsSince = (start: number) => Math.round((performance.now() - start) / 100) / 10;
  const started = performance.now();
  await using backend = await startLocalBackend({ dataDir, ...computing });
  await using service = new ServiceClient(backend);
  await using log = await RunLog.open(folder, { config: { model_name: baseModel, steps, learningRate } });

  /** The share of right answers for held-out words. */
  async function accuracyOf(sampler: SamplingClient): Promise<number> {
    const answers = await translate(sampler, heldOutWords);
    const right = heldOutWords.filter((word, index) => answers[index] === pigLatin(word)).length;
    for (let index = 0; index < heldOutWords.length; index += 20) {
      display.say(`  ${heldOutWords[index]!.padEnd(10)} ${answers[index]}`);
    }
    display.say(`  ${right} of ${heldOutWords.length} words right\n`);
    return right / heldOutWords.length;
  }

  display.say(`Pig Latin by ${baseModel} as it is:`);
  const accuracyBefore = await accuracyOf(await service.createSamplingClient({ baseModel }));

  const training = await service.createLoraTrainingClient({
    baseModel,
    rank: 32,
    seed: 1,
    userMetadata: { name: "quickstart: Pig Latin" },
  });
  const random = seededRandom(1);
  let words: string[] = [];

  /** Sends one training step without waiting; the server executes steps in order. */
  function submit(step: number) {
    if (words.length < batchSize) words = shuffled(trainingWords, random);
    const batch = words.splice(0, batchSize).map(example);
    const pass = training.forwardBackward(batch, "cross_entropy");
    const update = training.optimStep({ learningRate: learningRate * (1 - step / steps) });
    const tokens = batch.reduce((sum, { modelInput }) => sum + modelInput.length, 0);
    return { pass, update, tokens };
  }

  display.say(`Training on ${steps} batches of ${batchSize} other words:`);
  const progress = display.progress(steps);
  const trainingStarted = performance.now();
  let trainedTokens = 0;
  let tokensPerSecond = 0;
  let next = submit(0);
  for (let step = 1; step <= steps; step += 1) {
    signal.throwIfAborted();
    const { pass, update, tokens } = next;
    // Always one step ahead, so that the server never waits.
    if (step < steps) next = submit(step);
    const { metrics } = await pass;
    await update;
    trainedTokens += tokens;
    tokensPerSecond = Math.round((1000 * trainedTokens) / (performance.now() - trainingStarted));
    const loss = metrics["loss:sum"]! / batchSize;
    progress.update(step, `loss ${loss.toFixed(3)} per word  ${tokensPerSecond} tokens/s`);
    await log.logMetrics({ loss, tokensPerSecond, time: Date.now() / 1000 }, step - 1);
  }
  progress.end();
  const trainingSeconds = secondsSince(trainingStarted);

  const { path: checkpoint } = await training.saveWeightsForSampler("pig-latin");
  await log.logCheckpoint({ name: "final", batch: steps, final: true, samplerPath: checkpoint });
  display.say("\nThe same words after training, from the saved checkpoint:");
  const accuracyAfter = await accuracyOf(await service.createSamplingClient({ modelPath: checkpoint }));
  const seconds = secondsSince(started);
  display.say(
    `From ${percent(accuracyBefore)} to ${percent(accuracyAfter)} in ${seconds} s. The checkpoint, kept in ${dataDir}:`,
  );
  display.say(`  ${checkpoint}`);
  return { accuracyBefore, accuracyAfter, seconds, trainingSeconds, tokensPerSecond, checkpoint };
}

// Runs only when started directly: `npx tsx pig-latin.ts`.
if (process.argv[1] === import.meta.filename) await runPigLatin();
