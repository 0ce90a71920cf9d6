// Fine-tunes the model on Pig Latin, as `npx tinkerts quickstart` does. It needs nothing of a page.
import type { Engine, EngineDatum, FetchedModel } from "tinkerts/engine";
import { seededRandom, shuffled } from "../../src/cli/quickstart/random.js";
import { heldOutWords, pigLatin, trainingWords } from "../../src/cli/quickstart/words.js";
import type { Answer, Progress, Settings } from "./messages.js";

const ADAPTER = "pig-latin";
const LORA = { rank: 32, seed: 1, trainAttn: true, trainMlp: true, trainUnembed: true };
const LEARNING_RATE = 2e-3;
const ADAM = { beta1: 0.9, beta2: 0.95, eps: 1e-12, weightDecay: 0, gradClipNorm: 0 };

const question = (word: string) => `English: ${word}\nPig Latin:`;

/** The model, an adapter to train on it, and words to ask for. */
export class PigLatin {
  readonly #engine: Engine;
  readonly #model: string;
  readonly #tokenizer: NonNullable<FetchedModel["tokenizer"]>;
  #isTrained = false;
  #samples = 0;

  constructor(engine: Engine, model: FetchedModel) {
    if (!model.tokenizer) throw new Error(`${model.name} has no tokenizer`);
    this.#engine = engine;
    this.#model = model.name;
    this.#tokenizer = model.tokenizer;
  }

  /** The likeliest answers for some of the words that are not trained on, asked for at once. */
  answersToHeldOut(count: number): Promise<Answer[]> {
    const every = Math.max(1, Math.floor(heldOutWords.length / count));
    const words = heldOutWords.filter((_, index) => index % every === 0).slice(0, count);
    return Promise.all(words.map((word) => this.answer(word)));
  }

  async answer(word: string): Promise<Answer> {
    this.#samples += 1;
    const { sequences } = await this.#engine.sample({
      requestId: `sample ${this.#samples}`,
      baseModel: this.#model,
      adapterId: this.#isTrained ? ADAPTER : undefined,
      prompt: Int32Array.from(this.#tokenizer.encode(question(word))),
      numSamples: 1,
      maxTokens: 20,
      temperature: 0,
      topK: -1,
      topP: 1,
      stopStrings: ["\n"],
      promptLogprobs: false,
      topkPromptLogprobs: 0,
      topkSampleLogprobs: 0,
      promptAltTokens: 0,
    });
    const text = this.#tokenizer.decode([...sequences[0]!.tokens]).trim();
    return { word, text, isRight: text === pigLatin(word) };
  }

  /** Resets the training. */
  async forget(): Promise<void> {
    this.#isTrained = false;
    await this.#engine.removeAdapter(ADAPTER);
  }

  /** One step after another, until the last or until it is stopped. */
  async *train({ steps, batchSize }: Settings): AsyncGenerator<Progress> {
    await this.#engine.createAdapter(ADAPTER, this.#model, LORA);
    this.#isTrained = true;
    const random = seededRandom(1);
    const started = performance.now();
    let words: string[] = [];
    let tokens = 0;
    for (let step = 0; step < steps; step += 1) {
      if (words.length < batchSize) words = shuffled(trainingWords, random);
      const data = words.splice(0, batchSize).map((word) => this.#example(word));
      const pass = this.#engine.forwardBackward({
        adapterId: ADAPTER,
        data,
        lossFn: "cross_entropy",
        lossFnConfig: {},
        forwardOnly: false,
      });
      const learningRate = LEARNING_RATE * (1 - step / steps);
      // Sent right behind it: the engine runs the calls of an adapter in order.
      const update = this.#engine.optimStep(ADAPTER, { ...ADAM, learningRate });
      const { metrics } = await pass;
      await update;
      tokens += metrics["tokens:sum"]!;
      yield {
        step: step + 1,
        lossPerWord: metrics["loss:sum"]! / data.length,
        tokensPerSecond: (1000 * tokens) / (performance.now() - started),
      };
    }
  }

  /** The model reads all of it and learns the answer only: the question's tokens weigh nothing. */
  #example(word: string): EngineDatum {
    const prompt = this.#tokenizer.encode(question(word));
    const all = [...prompt, ...this.#tokenizer.encode(` ${pigLatin(word)}\n`)];
    return {
      tokens: Int32Array.from(all.slice(0, -1)),
      targetTokens: Int32Array.from(all.slice(1)),
      targetsPerToken: 1,
      weights: Float32Array.from(all.slice(1), (_, index) => (index + 1 < prompt.length ? 0 : 1)),
    };
  }
}
