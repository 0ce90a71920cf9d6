// What the client does in every run: a pipelined training, samples beside it, saves in between. It follows from the
// sizes alone, so that two runs over whatever network must end with the same bits.
import { ServiceClient } from "tinkerts";
import { TINY_MODEL, TINY_VOCABULARY } from "../shared/tiny-model.mjs";

const now = () => Number(process.hrtime.bigint());

/** The client's side of a Jepsen history: what was called when, and how each call ended. */
export class ClientHistory {
  operations = [];

  /** Starts an operation; its entry says "info" until it is known how it ended. */
  async run(f, key, start) {
    const operation = { f, key, invoke: now(), type: "info", end: null, result: undefined, error: undefined };
    this.operations.push(operation);
    try {
      operation.result = await start();
      operation.type = "ok";
    } catch (error) {
      operation.error = error;
      operation.type = "fail";
      throw error;
    } finally {
      operation.end = now();
    }
    return operation.result;
  }
}

const datum = (step, index) => {
  const length = 6 + ((step + index) % 5);
  const tokens = Array.from({ length }, (_, at) => (step * 7 + index * 13 + at * 3) % TINY_VOCABULARY);
  const targets = tokens.map((token) => (token * 5 + step) % TINY_VOCABULARY);
  return {
    modelInput: tokens,
    lossFnInputs: { targetTokens: targets, weights: targets.map(() => 1 / length) },
  };
};

const batch = (step) => Array.from({ length: 1 + (step % 3) }, (_, index) => datum(step, index));

/** Runs everything and leaves what happened in `history`; rejects with the first error. */
export async function runWorkload({ clientOptions, ...sizes }) {
  const service = new ServiceClient(clientOptions);
  try {
    return await useService(service, sizes);
  } finally {
    await service.close();
  }
}

async function useService(service, { steps, samples, pipelining, history }) {
  const training = await history.run("createModel", "model", () =>
    service.createLoraTrainingClient({ baseModel: TINY_MODEL, rank: 4, seed: 7 }),
  );
  const base = await history.run("createSampler", "base", () =>
    service.createSamplingClient({ baseModel: TINY_MODEL }),
  );
  const samplers = [base];
  const snapshots = [Math.floor(steps / 3), Math.floor((2 * steps) / 3)];
  const quarter = Math.floor(samples / 4);

  const sampling = [takeSamples(history, base, "base", 0, quarter)];
  const window = [];
  for (let step = 0; step < steps; step += 1) {
    const pass = history.run("forwardBackward", `step ${step}`, () =>
      training.forwardBackward(batch(step), "cross_entropy"),
    );
    const update = history.run("optimStep", `step ${step}`, () =>
      training.optimStep({ learningRate: 1e-2 / (1 + step / 50), gradClipNorm: 1, weightDecay: 0.01 }),
    );
    window.push(Promise.all([pass, update]));
    if (snapshots.includes(step)) {
      const index = samplers.push(undefined);
      const snapshot = history.run("snapshot", `after ${step}`, () =>
        training.saveWeightsAndGetSamplingClient(),
      );
      sampling.push(
        snapshot.then((sampler) =>
          takeSamples(history, sampler, `snapshot ${index}`, index * quarter, quarter),
        ),
      );
      window.push(history.run("saveState", `state-${step}`, () => training.saveState(`state-${step}`)));
    }
    // A rejection is met where it is awaited, here or below.
    for (const part of [...window, ...sampling]) part.catch(() => {});
    while (window.length >= pipelining) await window.shift();
  }
  await Promise.all(window);

  const { path: statePath } = await history.run("saveState", "final", () => training.saveState("final"));
  const { path } = await history.run("saveForSampler", "final", () =>
    training.saveWeightsForSampler("final"),
  );
  const sampler = await history.run("createSampler", "final", () =>
    service.createSamplingClient({ modelPath: path }),
  );
  const left = samples - 3 * quarter;
  await Promise.all([...sampling, takeSamples(history, sampler, "final", samples - left, left)]);
  await history.run("getInfo", "model", async () => (await training.getInfo()).modelName);

  const resumed = await history.run("loadState", "final", () =>
    service.createTrainingClientFromStateWithOptimizer(statePath),
  );
  await history.run("unload", "resumed", () => resumed.unloadModel());
  await history.run("unload", "model", () => training.unloadModel());
  return { modelId: training.modelId, statePath, samplerPath: path };
}

const IN_FLIGHT = 48;

async function takeSamples(history, sampler, name, first, count) {
  let next = 0;
  const worker = async () => {
    while (next < count) {
      const index = first + next++;
      await history.run("sample", `${name} ${index}`, () =>
        sampler.sample({
          prompt: Array.from(
            { length: 3 + (index % 4) },
            (_, at) => (index * 11 + at * 17) % TINY_VOCABULARY,
          ),
          numSamples: 1 + (index % 2),
          samplingParams: { maxTokens: 4, temperature: 1, seed: index },
        }),
      );
    }
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, worker));
}
