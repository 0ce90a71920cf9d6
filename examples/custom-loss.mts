/**
 * A custom loss. The server returns the logprob of every target token; the loss is any function of these logprobs, and
 * its gradients go back to the server.
 *
 * The loss here is a hinge: a token that is likely enough costs nothing, and training is over when the loss is 0. It is
 * written twice, with the built-in autograd and with its own gradients, and both give the same result.
 *
 * Runs on the built-in backend, or on the server in TINKER_BASE_URL (with TINKER_API_KEY if it needs one).
 */
import assert from "node:assert/strict";
import {
  type CustomLossFn,
  type CustomLossResult,
  datumFromAnswer,
  type SamplingClient,
  ServiceClient,
  withGradients,
} from "tinkerts";
import { maximum, mul, stack, sub, sum } from "tinkerts/autograd";
import { startLocalBackend } from "tinkerts/local";

const baseModel = "tinkerts/nano"; // on another server, one of its models
const enough = Math.log(0.8); // the logprob that is likely enough

const hinge: CustomLossFn = (data, logprobs) => {
  // One tensor per datum, with a logprob for each of its target tokens.
  const losses = logprobs.map((each, index) => {
    const missing = maximum(sub(enough, each), 0);
    return sum(mul(missing, data[index]!.lossFnInputs["weights"]!)); // the question's tokens weigh 0
  });
  return { loss: sum(stack(losses)) };
};

const hingeByHand: CustomLossFn = withGradients((data, logprobs) => {
  let loss = 0;
  const gradients = logprobs.map((row, index) => {
    const weights = data[index]!.lossFnInputs["weights"]!.toDense().data; // with many zeros they are kept sparse
    return row.map((logprob, position) => {
      if (logprob >= enough) return 0;
      loss += (enough - logprob) * weights[position]!;
      return -weights[position]!;
    });
  });
  return { loss, gradients };
});

await using backend = process.env["TINKER_BASE_URL"] ? undefined : await startLocalBackend();
await using service = new ServiceClient(backend);
const training = await service.createLoraTrainingClient({ baseModel, rank: 16, seed: 1 });
const tokenizer = await training.getTokenizer();

const facts = {
  "What is the capital of Lilliput?": "The capital of Lilliput is Mildendo.",
  "What is the capital of Ruritania?": "The capital of Ruritania is Strelsau.",
  "What is the capital of Narnia?": "It is Cair Paravel.",
  "What does a dragon say?": "A dragon says roar.",
};
const promptOf = (question: string) =>
  tokenizer.applyChatTemplate([{ role: "user", content: question }], { addGenerationPrompt: true });

const data = Object.entries(facts).map(([question, answer]) =>
  datumFromAnswer(promptOf(question), tokenizer.encode(`${answer}<|im_end|>`)),
);

/** Asks the model itself, and counts the right answers. */
async function examine(sampler: SamplingClient): Promise<number> {
  const samplingParams = { maxTokens: 40, temperature: 0 };
  let right = 0;
  for (const [question, expected] of Object.entries(facts)) {
    const { sequences } = await sampler.sample({ prompt: promptOf(question), samplingParams });
    const answer = tokenizer.decode(sequences[0]!.tokens, { skipSpecialTokens: true });
    console.log(`  ${question} ${answer}`);
    if (answer === expected) right += 1;
  }
  return right;
}

console.log(`${baseModel} before:`);
const rightBefore = await examine(await service.createSamplingClient({ baseModel }));

const passes: CustomLossResult[] = [];
while (passes.length < 60 && passes.at(-1)?.metrics["loss:sum"] !== 0) {
  const pass = training.forwardBackwardCustom(data, hinge);
  const update = training.optimStep({ learningRate: 2e-3 }); // sent behind the gradients, as soon as they are there
  passes.push(await pass);
  await update;
}
const losses = passes.map(({ metrics }) => metrics["loss:sum"]!);
console.log(`The loss, step by step: ${losses.map((loss) => loss.toFixed(1)).join(" ")}`);

console.log("After:");
const rightAfter = await examine(await training.saveWeightsAndGetSamplingClient());

// A twin with the weights of the beginning. The surrogate loss is what the server makes of the gradients.
const twin = await service.createLoraTrainingClient({ baseModel, rank: 16, seed: 1 });
const byHand = await twin.forwardBackwardCustom(data, hingeByHand);
for (const name of ["loss:sum", "surrogate_loss:sum"]) {
  const [first, other] = [passes[0]!.metrics[name]!, byHand.metrics[name]!];
  console.log(
    `${name} of the first step: ${first.toFixed(4)} with autograd, ${other.toFixed(4)} with its own gradients`,
  );
  assert.ok(Math.abs(first - other) < 1e-4, "the two losses differ");
}

assert.ok(rightBefore < rightAfter && rightAfter === data.length, "it did not learn the answers");
assert.equal(losses.at(-1), 0, "the loss did not get to 0");
