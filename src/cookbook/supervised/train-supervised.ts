import { type FinishedRun, runTraining } from "../runs/run-training.js";
import { crossEntropyStep } from "./cross-entropy-step.js";
import { evaluationAnswers } from "./evaluation-answers.js";
import { heldOutLikelihood, scoredTokens } from "./held-out.js";
import { bitsPerByte, meanNll } from "./likelihood.js";
import { SUPERVISED_OPTIONS, type TrainSupervisedOptions } from "./options.js";
import { prepareRun } from "./prepare-run.js";

/** Steps of which examples are kept, where nothing is evaluated. */
const STEPS_SHOWN = 10;

/**
 * Fine-tunes a model on conversations. Every batch is trained exactly once, even if the server or this
 * process crashes: the same call with the same folder continues where the last one stopped.
 */
export async function trainSupervised(options: TrainSupervisedOptions): Promise<FinishedRun> {
  const { answersAtEvaluation: count } = SUPERVISED_OPTIONS.check(options, "trainSupervised");
  const prepared = await prepareRun(options);
  await using rows = prepared.data;
  const { settings, config, description, estimate, renderer } = prepared;
  const { tokenizer } = renderer;
  const answers = evaluationAnswers(rows.test, {
    folder: options.folder,
    count,
    maxLength: settings.maxLength,
    stop: renderer.stopSequences,
    seed: settings.seed,
  });
  const keepEvery = settings.evaluateEvery || Math.ceil(settings.steps / STEPS_SHOWN);
  return await runTraining({
    options:
      answers === undefined ? options : { ...options, evaluators: [...(options.evaluators ?? []), answers] },
    settings,
    config,
    description,
    estimate,
    heldOut: heldOutLikelihood(rows.test, tokenizer),
    step: crossEntropyStep(settings, async (step) => {
      const data = (await rows.rows(step)).flatMap((row) => row.data);
      return {
        data,
        measure: (output) => {
          const scored = scoredTokens(data, output);
          return { train_mean_nll: meanNll(scored), train_mean_bpb: bitsPerByte(scored, tokenizer) };
        },
        keep: async (output) => {
          const { folder } = options;
          if (folder === undefined || step % keepEvery !== 0) return;
          const { writeExamples } = await import("./example-files.node.js");
          await writeExamples(folder, step, data, output);
        },
      };
    }),
  });
}
