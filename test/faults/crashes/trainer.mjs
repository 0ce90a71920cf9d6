// A client that trains and saves, and keeps account of what the server acknowledged.
import { ServiceClient } from "tinkerts";
import { scaledClock } from "../shared/scaled-clock.mjs";
import { TINY_MODEL, TINY_VOCABULARY } from "../shared/tiny-model.mjs";

/** A client whose retries take no time: the server it speaks to dies often. */
export const connect = (baseURL) =>
  new ServiceClient({ baseURL, apiKey: "tml-local", logLevel: "off", clock: scaledClock(), maxRetries: 1 });

export const newModel = (service) =>
  service.createLoraTrainingClient({ baseModel: TINY_MODEL, rank: 4, seed: 7 });

/** The weights after this step follow from its number alone. */
export function trainStep(training, step) {
  const tokens = Array.from({ length: 12 }, (_, at) => (step * 7 + at * 3) % TINY_VOCABULARY);
  const targets = tokens.map((token) => (token * 5 + step) % TINY_VOCABULARY);
  const lossFnInputs = { targetTokens: targets, weights: targets.map(() => 1 / 12) };
  const pass = training.forwardBackward([{ modelInput: tokens, lossFnInputs }], "cross_entropy");
  const update = training.optimStep({ learningRate: 1e-2, gradClipNorm: 1 });
  return Promise.all([pass, update]);
}

/** What the server has said yes to, by path: the step whose weights are saved there. */
export class Acknowledged {
  saved = new Map();
  /** A newer one may have replaced these, without our having heard of it. */
  replaceable = new Set();
  deleted = new Set();
  /** Asked to be deleted, without our having heard whether they are. */
  doubtful = new Set();

  async save(step, path, request) {
    if (this.saved.has(path)) this.replaceable.add(path);
    this.deleted.delete(path);
    const answer = await request();
    if (answer.path !== path) throw new Error(`saved as ${answer.path} instead of ${path}`);
    this.saved.set(path, step);
  }

  async remove(path, request) {
    this.doubtful.add(path);
    await request();
    this.doubtful.delete(path);
    this.saved.delete(path);
    this.deleted.add(path);
  }
}

/**
 * Trains a new model step by step and saves in all the ways there are, until `steps` are done or the server is gone.
 * `onSave` is called when a save has been asked for.
 */
export async function trainAndSave(service, { steps, random, acknowledged, onStep, onSave }) {
  const training = await newModel(service);
  const rest = service.createRestClient();
  const root = `tinker://${training.modelId}`;
  for (let step = 0; step < steps; step += 1) {
    const trained = trainStep(training, step);
    trained.catch(() => {});
    onStep?.(step, training.modelId);
    const choice = random();
    const saving =
      choice < 0.4
        ? acknowledged.save(step, `${root}/weights/step-${step}`, () => training.saveState(`step-${step}`))
        : choice < 0.8
          ? acknowledged.save(step, `${root}/weights/latest`, () =>
              training.saveState("latest", { overwrite: true }),
            )
          : acknowledged.save(step, `${root}/sampler_weights/step-${step}`, () =>
              training.saveWeightsForSampler(`step-${step}`),
            );
    onSave?.(step, training.modelId);
    await Promise.all([trained, saving]);
    const [oldest] = acknowledged.saved.keys();
    if (random() < 0.2 && acknowledged.saved.size > 3) {
      await acknowledged.remove(oldest, () => rest.deleteCheckpoint(oldest));
    } else if (random() < 0.2) {
      const [path] = [...acknowledged.saved.keys()].slice(-1);
      await rest.publishCheckpoint(path);
    }
  }
}
