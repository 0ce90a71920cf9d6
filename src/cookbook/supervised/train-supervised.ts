import type { TrainingClient } from "../../clients/index.js";
import type { Datum } from "../../wire/index.js";
import { type FinishedRun, runTraining } from "../runs/run-training.js";
import { adamAt } from "../runs/settings.js";
import type { TrainingContext } from "../runs/training-loop.js";
import { heldOutLikelihood, scoredTokens } from "./held-out.js";
import { bitsPerByte, meanNll } from "./likelihood.js";
import type { TrainSupervisedOptions } from "./options.js";
import { type PreparedRun, prepareRun } from "./prepare-run.js";
import { lossTokens } from "./training-data.js";

/**
 * Fine-tunes a model on conversations. Every batch is trained exactly once, whatever happens to the server or to this
 * process: the same call with the same folder goes on where the last one stopped.
 */
export async function trainSupervised(options: TrainSupervisedOptions): Promise<FinishedRun> {
  const prepared = await prepareRun(options);
  await using data = prepared.data;
  const { settings, config, description, renderer } = prepared;
  return await runTraining({
    options,
    settings,
    config,
    description,
    heldOut: heldOutLikelihood(data.test, renderer.tokenizer),
    step: (training, step, context) => trainStep(prepared, training, step, context),
  });
}

async function trainStep(
  { settings, data, renderer }: PreparedRun,
  training: TrainingClient,
  step: number,
  { signal, addMetrics, countTokens, checkLoss }: TrainingContext<unknown>,
): Promise<void> {
  const startedMs = performance.now();
  const batch = await data.batch(step);
  const madeMs = performance.now();
  const adam = adamAt(settings, step);
  const pass = training.forwardBackward(batch, "cross_entropy", { signal });
  const update = training.optimStep(adam, { signal });
  const numTokens = sumOf(batch, ({ modelInput }) => modelInput.length);
  countTokens(numTokens);
  const results = async () => {
    const scored = scoredTokens(batch, await pass);
    const nll = meanNll(scored);
    checkLoss(nll);
    const updated = await update;
    const doneMs = performance.now();
    return {
      epoch: Math.floor(step / settings.stepsPerEpoch),
      progress: (step + 1) / settings.steps,
      learning_rate: adam.learningRate,
      ...updated.metrics,
      num_sequences: batch.length,
      num_tokens: numTokens,
      num_loss_tokens: sumOf(batch, lossTokens),
      train_mean_nll: nll,
      train_mean_bpb: bitsPerByte(scored, renderer.tokenizer),
      "time/get_batch": (madeMs - startedMs) / 1000,
      "time/step": (doneMs - madeMs) / 1000,
      "time/total": (doneMs - startedMs) / 1000,
    };
  };
  addMetrics(results());
}

function sumOf(batch: readonly Datum[], count: (datum: Datum) => number): number {
  return batch.reduce((sum, datum) => sum + count(datum), 0);
}
