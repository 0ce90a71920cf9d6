// A user's program that takes its classes from one subpath and its instances from another. Prints what does not fit.
import { createRequire } from "node:module";
import { join } from "node:path";

const [how, folder] = process.argv.slice(2);
const load = how === "require" ? createRequire(import.meta.url) : (name) => import(name);
const tinkerts = await load("tinkerts");
const autograd = await load("tinkerts/autograd");
const checkpoints = await load("tinkerts/checkpoints");
const { jaxLoss } = await load("tinkerts/jax");
const { startLocalBackend } = await load("tinkerts/local");
const { RunLog } = await load("tinkerts/run-log");
const { loadTokenizer, modelInputFromText, Tokenizer } = await load("tinkerts/tokenizers");
const training = await load("tinkerts/training");

const wrong = [];
// Errors say yes to `instanceof` also between two copies of the package, so this asks for the prototype itself.
const check = (what, value, ofClass) => {
  if (!Object.prototype.isPrototypeOf.call(ofClass.prototype, value)) wrong.push(what);
};
const thrown = async (call) => {
  try {
    await call();
  } catch (error) {
    return error;
  }
};

const dataDir = join(folder, `data-${how}`);
const backend = await startLocalBackend({ dataDir });
const service = new tinkerts.ServiceClient(backend);
const client = await service.createLoraTrainingClient({ baseModel: "tinkerts/nano", rank: 2 });
const tokenizer = await client.getTokenizer();
check("client.getTokenizer()", tokenizer, Tokenizer);
const prompt = modelInputFromText("a dog says", await loadTokenizer("tinkerts/nano"));
check("modelInputFromText()", prompt, tinkerts.ModelInput);
const datum = tinkerts.datumFromAnswer(prompt, tokenizer.encode(" woof"));
check("datumFromAnswer()", datum, tinkerts.Datum);
check("datum.lossFnInputs.weights", datum.lossFnInputs.weights, tinkerts.TensorData);

const pass = client.forwardBackwardCustom([datum], (data, logprobs) => {
  check("a custom loss's datum", data[0], tinkerts.Datum);
  check("a custom loss's logprobs", logprobs[0], autograd.Tensor);
  return { loss: autograd.neg(autograd.sum(logprobs[0])), metrics: {} };
});
check("client.forwardBackwardCustom()", pass, tinkerts.APIFuture);
await pass;
await client.optimStep({ learningRate: 1e-4 });

const log = await RunLog.open(join(folder, `run-${how}`));
const { checkpoint } = await training.runWithRecovery({
  service: () => new tinkerts.ServiceClient(backend),
  start: async (own) => {
    check("runWithRecovery's service", own, tinkerts.ServiceClient);
    return own.createLoraTrainingClient({ baseModel: "tinkerts/nano", rank: 2 });
  },
  step: async (own) => {
    check("runWithRecovery's training client", own, tinkerts.TrainingClient);
    check("forwardBackward()", own.forwardBackward([datum], "cross_entropy"), tinkerts.APIFuture);
    await own.optimStep({ learningRate: 1e-4 });
  },
  steps: 1,
  log,
});
await log.close();
const rest = new tinkerts.RestClient(backend);
const download = { outputDir: join(folder, `download-${how}`) };
await checkpoints.downloadCheckpoint(rest, checkpoint.samplerPath ?? checkpoint.statePath, download);

check(
  "a checkpoint's error",
  await thrown(() => checkpoints.downloadCheckpoint(rest, "x")),
  tinkerts.ValidationError,
);
check("a backend's error", await thrown(() => startLocalBackend({ dataDir })), tinkerts.TinkerError);
check("a tensor's error", await thrown(() => autograd.tensor([[1], [2, 3]])), tinkerts.TinkerError);
check("a tokenizer's error", await thrown(() => loadTokenizer(folder)), tinkerts.TinkerError);
check("a jax-js error", await thrown(() => jaxLoss(() => 0)([datum], [])), tinkerts.TinkerError);
check("ArchiveError", checkpoints.ArchiveError.prototype, tinkerts.TinkerError);
check("RunGaveUpError", training.RunGaveUpError.prototype, tinkerts.TinkerError);

await rest.close();
await service.close();
await backend.close();
console.log(JSON.stringify(wrong));
