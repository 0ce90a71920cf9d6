// Runs one case of the fuzz on both engines and throws where they differ by more than float32 in another order does.

/** What is allowed, relative to the size of what is compared: float32 in another order, and products of float16. */
export const ALLOWED = {
  exact: { loss: 1e-4, logprob: 1e-4, gradient: 1e-3, gradientNorm: 1e-3, moment: 1e-3, sample: 1e-3 },
  fast: { loss: 1e-2, logprob: 2e-2, gradient: 5e-2, gradientNorm: 5e-2, moment: 1e-1, sample: 5e-2 },
};

/** @returns the largest errors by kind */
export async function compareCase(testCase, { cpuKernels, gpuKernels, engineOf, precision }) {
  const allowed = ALLOWED[precision];
  const errors = {};
  const check = (what, error, detail) => {
    errors[what] = Math.max(errors[what] ?? 0, error);
    if (!(error <= allowed[what])) throw new Error(`${detail} is off by ${error}, allowed ${allowed[what]}`);
  };
  const steps = new PreparedSteps(gpuKernels, testCase.sizes);
  try {
    const [cpu, gpu] = [await engineOf(cpuKernels), await engineOf(gpuKernels)];
    for (const engine of [cpu, gpu]) await engine.createAdapter("a", testCase.model.name, testCase.lora);
    for (const [index, call] of testCase.calls.entries()) {
      steps.begin(call);
      await compareTraining(cpu, gpu, call, testCase.adam, (what, error, detail) =>
        check(what, error, `step ${index} (${call.lossFn}): ${detail}`),
      );
      steps.end();
    }
    await compareMoments(cpu, gpu, check);
    await compareSamples(cpu, gpu, testCase, check);
    await gpu.removeAdapter("a");
  } finally {
    steps.restore();
  }
  return errors;
}

const PREPARED = ["sizes", "attention", "attentionBackward", "logitsGradient", "reserveScratch"];

/** Small steps, and blocks that are computed again on the way back, where the case says so. */
class PreparedSteps {
  #kernels;
  #sizes;
  /** Properties of the kernels as they were; one that was inherited is undefined. */
  #before;
  #refusals = 0;
  #backward = 0;
  /** Blocks whose attention was computed between the loss and their own backward pass. */
  #again = 0;
  #last = "";

  constructor(kernels, sizes) {
    this.#kernels = kernels;
    this.#sizes = sizes;
    this.#before = PREPARED.map((name) => [name, Object.getOwnPropertyDescriptor(kernels, name)]);
    const { trainingTokens, headLogits } = sizes;
    const { attention, attentionBackward, logitsGradient, reserveScratch } = kernels;
    const value = { ...kernels.sizes, trainingTokens, headLogits };
    Object.defineProperty(kernels, "sizes", { configurable: true, value });
    kernels.attention = (operation) => {
      this.#last = "forward";
      attention.call(kernels, operation);
    };
    kernels.attentionBackward = (operation) => {
      this.#backward += 1;
      if (this.#last === "forward") this.#again += 1;
      this.#last = "backward";
      attentionBackward.call(kernels, operation);
    };
    kernels.logitsGradient = (operation) => {
      this.#last = "loss";
      logitsGradient.call(kernels, operation);
    };
    kernels.reserveScratch = async (length) => {
      this.#refusals -= 1;
      if (this.#refusals >= 0) throw new RangeError("this case computes blocks again");
      await reserveScratch.call(kernels, length);
    };
  }

  /** Refuses the memory of steps that keep all activations: of as many sequences as may be, then of one. */
  begin({ data }) {
    const lengths = data.map(({ tokens }) => tokens.length);
    const [total, longest] = [lengths.reduce((sum, length) => sum + length, 0), Math.max(...lengths)];
    const hasSeveral = Math.min(total, this.#sizes.trainingTokens) > longest;
    this.#refusals = !this.#sizes.isRecomputing ? 0 : hasSeveral ? 2 : 1;
    this.#backward = this.#again = 0;
  }

  /** A fuzz that does not test what it says would be worth nothing. */
  end() {
    if (this.#backward > 0 && this.#again > 0 !== this.#sizes.isRecomputing)
      throw new Error(`${this.#again} blocks were computed again in ${JSON.stringify(this.#sizes)}`);
  }

  restore() {
    for (const [name, descriptor] of this.#before) {
      delete this.#kernels[name];
      if (descriptor !== undefined) Object.defineProperty(this.#kernels, name, descriptor);
    }
  }
}

async function compareTraining(cpu, gpu, call, adam, check) {
  const [expected, actual] = await Promise.all([cpu, gpu].map((engine) => engine.forwardBackward(call)));
  for (const [index, logprobs] of expected.logprobs.entries()) {
    for (const [at, logprob] of logprobs.entries()) {
      const other = actual.logprobs[index][at];
      check(
        "logprob",
        difference(other, logprob),
        `logprob ${at} of data[${index}] (${other}, not ${logprob})`,
      );
    }
  }
  const targets = expected.logprobs.reduce((sum, { length }) => sum + length, 0);
  const [loss, otherLoss] = [expected, actual].map(({ metrics }) => metrics["loss:sum"] / targets);
  check("loss", difference(otherLoss, loss), `the loss (${otherLoss}, not ${loss})`);
  const [gradients, otherGradients] = await Promise.all([cpu, gpu].map(gradientsOf));
  check("gradient", relativeError(otherGradients, gradients), "the gradient");
  const [step, otherStep] = await Promise.all([cpu, gpu].map((engine) => engine.optimStep("a", adam)));
  const norms = [step, otherStep].map(({ metrics }) => metrics["gradNorm:mean"]);
  check("gradientNorm", difference(norms[1], norms[0]), `the gradient's norm (${norms[1]}, not ${norms[0]})`);
}

/** The optimizer's first moments, tensor by tensor: a small one that is wrong would be lost in the whole gradient. */
async function compareMoments(cpu, gpu, check) {
  const states = await Promise.all(
    [cpu, gpu].map((engine) => engine.exportAdapter("a", { optimizer: true })),
  );
  const [expected, actual] = states.map(({ optimizer }) => optimizer.first);
  for (const [name, moments] of Object.entries(expected)) {
    check("moment", relativeError(actual[name], moments), `the first moment of ${name}`);
  }
}

/** Greedy samples; they may part where two tokens are as good as equal. */
async function compareSamples(cpu, gpu, { samples, model }, check) {
  const call = (sample, index) => ({
    requestId: `sample-${index}`,
    adapterId: "a",
    baseModel: model.name,
    temperature: 0,
    topK: -1,
    topP: 1,
    seed: 1,
    stopTokens: [],
    stopStrings: [],
    promptLogprobs: true,
    topkPromptLogprobs: 0,
    topkSampleLogprobs: 2,
    promptAltTokens: 0,
    ...sample,
  });
  const [expected, actual] = await Promise.all(
    [cpu, gpu].map((engine) =>
      Promise.all(samples.map((sample, index) => engine.sample(call(sample, index)))),
    ),
  );
  for (const [index, result] of expected.entries()) {
    const other = actual[index];
    for (const [at, logprob] of result.promptLogprobs.entries()) {
      if (at === 0) continue;
      const found = other.promptLogprobs[at];
      check(
        "sample",
        difference(found, logprob),
        `logprob ${at} of prompt ${index} (${found}, not ${logprob})`,
      );
    }
    for (const [number, sequence] of result.sequences.entries()) {
      compareSequence(sequence, other.sequences[number], `sample ${number} of prompt ${index}`, check);
    }
  }
}

function compareSequence(expected, actual, name, check) {
  if (actual.tokens.length !== expected.tokens.length)
    throw new Error(`${name} has ${actual.tokens.length} tokens, not ${expected.tokens.length}`);
  for (const [at, token] of expected.tokens.entries()) {
    const [best, second] = expected.topk.logprobs.subarray(2 * at, 2 * at + 2);
    if (actual.tokens[at] !== token) {
      check(
        "sample",
        difference(second, best),
        `${name}: token ${at} is ${actual.tokens[at]}, not ${token}; the gap`,
      );
      return;
    }
    const [logprob, other] = [expected.logprobs[at], actual.logprobs[at]];
    check("sample", difference(other, logprob), `${name}: logprob ${at} (${other}, not ${logprob})`);
  }
}

async function gradientsOf(engine) {
  const [copy] = await engine.copyAdapters();
  return copy.training.gradients;
}

const difference = (actual, expected) => Math.abs(actual - expected) / Math.max(1, Math.abs(expected));

/** In the Euclidean norm; where there is no gradient to speak of, its absolute size counts. */
function relativeError(actual, expected) {
  if (actual.length !== expected.length) return Number.POSITIVE_INFINITY;
  let [differences, size] = [0, 0];
  for (let i = 0; i < expected.length; i += 1) {
    differences += (actual[i] - expected[i]) ** 2;
    size += expected[i] ** 2;
  }
  return Math.sqrt(differences) / Math.max(Math.sqrt(size), 1e-3);
}
