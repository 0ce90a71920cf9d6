/**
 * A trained adapter as files: train a little, save, download, read the LoRA matrices as typed arrays, and merge them
 * into the base model. transformers, vLLM and others load the folder that results.
 *
 * Runs on the built-in backend, or on the server in TINKER_BASE_URL (with TINKER_API_KEY if it needs one). `baseFolder`
 * must hold the base model's weights.
 */
import assert from "node:assert/strict";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { datumFromAnswer, type SamplingClient, ServiceClient } from "tinkerts";
import { downloadCheckpoint, mergeAdapter, readAdapter } from "tinkerts/checkpoints";
import { defaultModel, startLocalBackend } from "tinkerts/local";

const baseModel = defaultModel.name; // "tinkerts/nano"; on another server, one of its models
const baseFolder = defaultModel.path; // and its folder

await using backend = process.env["TINKER_BASE_URL"] ? undefined : await startLocalBackend();
await using service = new ServiceClient(backend);
const training = await service.createLoraTrainingClient({ baseModel, rank: 8, seed: 1 });
const tokenizer = await training.getTokenizer();
const folder = await mkdtemp(join(tmpdir(), "tinkerts-download-"));

const prompt = tokenizer.encode("Once there was a");
const taught = " parrot who could read maps.\n";
const datum = datumFromAnswer(prompt, tokenizer.encode(taught));
for (let step = 0; step < 15; step += 1) {
  training.forwardBackward([datum], "cross_entropy");
  training.optimStep({ learningRate: 4e-3 });
}
const { path } = await training.saveWeightsForSampler("parrot"); // runs when the steps before it are done
console.log(`Trained and saved as ${path}`);

const downloaded = await downloadCheckpoint(service.createRestClient(), path, {
  outputDir: folder,
  onProgress: ({ bytes, totalBytes }) => console.log(`  ${bytes} of ${totalBytes ?? "?"} bytes`),
});
console.log(`Downloaded: ${downloaded.files.join(", ")}`);

const adapter = await readAdapter(downloaded.folder);
console.log(`A LoRA adapter of rank ${adapter.rank} for ${adapter.baseModel}, for example:`);
for (const [name, { shape, data }] of Object.entries(adapter.tensors).slice(0, 2)) {
  const norm = Math.sqrt(data.reduce((sum, value) => sum + value * value, 0));
  console.log(`  ${name} [${shape.join(", ")}], norm ${norm.toFixed(3)}`);
}

const merged = join(folder, "parrot-model");
await mergeAdapter(baseFolder, downloaded.folder, merged);
console.log(`Merged into a model of its own: ${(await readdir(merged)).join(", ")}`);

/** The likeliest way to go on. */
async function goOn(sampler: SamplingClient): Promise<string> {
  const samplingParams = { maxTokens: 24, temperature: 0, stop: "\n" };
  const { sequences } = await sampler.sample({ prompt, samplingParams });
  return tokenizer.decode(sequences[0]!.tokens);
}

// Served like any other base model, the folder says what the trained run says.
await using other = await startLocalBackend({ models: [{ name: "me/parrot", path: merged }] });
await using otherService = new ServiceClient(other);
const answers = {
  [baseModel]: await goOn(await service.createSamplingClient({ baseModel })),
  "the trained run": await goOn(await service.createSamplingClient({ modelPath: path })),
  "the merged folder": await goOn(await otherService.createSamplingClient({ baseModel: "me/parrot" })),
};
for (const [name, answer] of Object.entries(answers)) {
  console.log(`  ${name.padEnd(18)} Once there was a${answer.split("\n")[0]}`);
}
await rm(folder, { recursive: true });

assert.equal(answers["the trained run"], taught, "the model did not learn it");
assert.equal(answers["the merged folder"], taught, "the merged model says something else");
assert.notEqual(answers[baseModel], taught);
