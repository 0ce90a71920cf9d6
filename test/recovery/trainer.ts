/** Runs training with recovery, with its log in a folder, says which step it begins, and waits for nothing if killed. */
import { ServiceClient } from "../../src/index.js";
import { runWithRecovery } from "../../src/training/recovery/index.js";
import { RunLog } from "../../src/training/run-log.node.js";
import { CHECKPOINT_EVERY, STEPS, trainStep } from "./training-step.js";

const [baseURL, folder] = process.argv.slice(2) as [string, string];
await using log = await RunLog.open(folder);
await runWithRecovery({
  service: () => new ServiceClient({ baseURL, apiKey: "tml-local" }),
  start: (service) => service.createLoraTrainingClient({ baseModel: "test/tiny", rank: 4, seed: 1 }),
  step: (training, step) => {
    process.stdout.write(`begun ${step}\n`);
    return { loss: trainStep(training, step) };
  },
  steps: STEPS,
  checkpointEvery: CHECKPOINT_EVERY,
  log,
});
