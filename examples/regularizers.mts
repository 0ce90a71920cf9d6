/**
 * Regularizers: terms that are added to a custom loss, each with its weight.
 *
 * A model that is trained on something new forgets old things. Here it is trained twice on what ghosts and robots say:
 * once on the lesson alone, once with a regularizer that keeps its former answers to a few old questions. Other old
 * questions, which neither run sees, show the difference.
 *
 * Runs on the built-in backend, or on the server in TINKER_BASE_URL (with TINKER_API_KEY if it needs one).
 */
import assert from "node:assert/strict";
import { Datum, datumFromAnswer, type SamplingClient, ServiceClient } from "tinkerts";
import { logSumExp, mul, neg, stack, sum, type Tensor } from "tinkerts/autograd";
import { startLocalBackend } from "tinkerts/local";
import { klToReference, type Regularizer, type RegularizerReport, withRegularizers } from "tinkerts/training";

const baseModel = "tinkerts/nano"; // on another server, one of its models
const steps = 16;
const learningRate = 4e-3;

const lesson = ["a ghost says boo", "a robot says beep", "a train says choo choo", "a clock says tick tock"];
const reminders = [
  ...["a dog says woof", "a cow says moo", "a duck says quack", "a bee says buzz"],
  ...["a lion says roar", "a cat says meow", "an owl says hoot", "a pig says oink"],
];
const unseen = [
  ...["a sheep says baa", "a horse says neigh", "a snake says hiss", "a mouse says squeak"],
  ...["a frog says croak", "a bird says tweet", "a wolf says howl"],
];

await using backend = process.env["TINKER_BASE_URL"] ? undefined : await startLocalBackend();
await using service = new ServiceClient(backend);
const original = await service.createSamplingClient({ baseModel });
const tokenizer = await original.getTokenizer();

/** "a cow says moo" as a question and its answer. */
function conversation(fact: string) {
  const content = `What does ${fact.split(" says ")[0]} say?`;
  const prompt = tokenizer.applyChatTemplate([{ role: "user", content }], { addGenerationPrompt: true });
  return { prompt, answer: `A${fact.slice(1)}.` };
}

/** A datum with weights for the base loss (learn), or with a mask for the regularizer (remember). */
function datumOf(fact: string, use: "learn" | "remember"): Datum {
  const { prompt, answer } = conversation(fact);
  const { modelInput, lossFnInputs } = datumFromAnswer(prompt, tokenizer.encode(`${answer}<|im_end|>`));
  const inAnswer = lossFnInputs["weights"]!;
  const nowhere = new Float32Array(modelInput.length);
  return new Datum({
    modelInput,
    lossFnInputs: {
      ...lossFnInputs,
      weights: use === "learn" ? inAnswer : nowhere,
      remember: use === "remember" ? inAnswer : nowhere,
    },
  });
}

/** The usual loss, answer by answer. */
function losses(data: readonly Datum[], logprobs: readonly Tensor[]): Tensor {
  return stack(
    data.map(({ lossFnInputs }, index) => neg(sum(mul(logprobs[index]!, lossFnInputs["weights"]!)))),
  );
}

const terms: Regularizer[] = [
  // Where the mask is, answer as before: squared distance to the logprobs that the model had at the beginning.
  {
    weight: 200,
    term: klToReference({ estimator: "k2", reference: "refLogprobs", mask: "remember" }),
    name: "remember",
  },
  // A term of one's own is a function: logSumExp is about the largest of the losses, so no answer stays behind.
  { weight: 0.5, term: ({ data, logprobs }) => logSumExp(losses(data, logprobs)), name: "hardest" },
];

async function train(regularizers: readonly Regularizer[]) {
  const training = await service.createLoraTrainingClient({ baseModel, rank: 16, seed: 1 });
  const plain = [
    ...lesson.map((fact) => datumOf(fact, "learn")),
    ...reminders.map((fact) => datumOf(fact, "remember")),
  ];
  // The server's own losses take their own inputs only; `remember` is for ours.
  const known = plain.map(({ modelInput, lossFnInputs }) => {
    return { modelInput, lossFnInputs: { targetTokens: lossFnInputs["targetTokens"]! } };
  });
  const { lossFnOutputs } = await training.forward(known, "cross_entropy");
  const data = plain.map(({ modelInput, lossFnInputs }, index) => {
    const refLogprobs = lossFnOutputs[index]!.logprobs; // one reference for each datum
    return new Datum({ modelInput, lossFnInputs: { ...lossFnInputs, refLogprobs } });
  });
  const lossFn = withRegularizers((data, logprobs) => ({ loss: sum(losses(data, logprobs)) }), regularizers);
  const reports: RegularizerReport[] = [];
  for (let step = 0; step < steps; step += 1) {
    const pass = training.forwardBackwardCustom(data, lossFn);
    const update = training.optimStep({ learningRate });
    reports.push((await pass).regularizers!);
    await update;
  }
  return { reports, sampler: await training.saveWeightsAndGetSamplingClient() };
}

/** How many of the questions the model answers right. */
async function examine(when: string, sampler: SamplingClient) {
  const ask = async (fact: string) => {
    const { prompt, answer } = conversation(fact);
    const samplingParams = { maxTokens: 24, temperature: 0 };
    const { sequences } = await sampler.sample({ prompt, samplingParams });
    const given = tokenizer.decode(sequences[0]!.tokens, { skipSpecialTokens: true });
    return { given, right: given === answer };
  };
  const [news, olds] = await Promise.all([lesson, unseen].map((facts) => Promise.all(facts.map(ask))));
  const learned = news!.filter(({ right }) => right).length;
  const kept = olds!.filter(({ right }) => right).length;
  console.log(
    `${when}: ${learned} of ${lesson.length} new answers right, ${kept} of ${unseen.length} old ones`,
  );
  console.log(`  ${[news![1]!, olds![0]!, olds![3]!].map(({ given }) => given).join(" ")}`);
  return { learned, kept };
}

const before = await examine("Before", original);
const alone = await train([]);
const afterAlone = await examine("After the lesson alone", alone.sampler);
const regularized = await train(terms);
const afterRegularized = await examine("After the lesson with regularizers", regularized.sampler);

console.log("\nWhat the terms did, in steps 1, 8 and 16:");
for (const report of [0, 7, 15].map((step) => regularized.reports[step]!)) {
  const parts = report.terms.map(
    ({ name, value, weight, contribution, gradientNorm }) =>
      `${name} ${weight} x ${value.toFixed(4)} = ${contribution.toFixed(3)} (gradient ${gradientNorm.toFixed(2)})`,
  );
  console.log(`  ${report.total.toFixed(2)} = base ${report.base.value.toFixed(2)} + ${parts.join(" + ")}`);
}

assert.ok(before.learned === 0 && before.kept === unseen.length, "the model was not as expected");
assert.ok(
  afterAlone.learned === lesson.length && afterRegularized.learned === lesson.length,
  "a lesson failed",
);
assert.ok(afterRegularized.kept > afterAlone.kept, "the regularizer did not help to remember");
for (const { base, terms, total } of regularized.reports) {
  const expected = terms.reduce((value, { contribution }) => value + contribution, base.value);
  assert.ok(Math.abs(expected - total) <= 1e-9 * Math.abs(total), "the report does not add up");
}
