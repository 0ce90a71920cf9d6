import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { pigLatin, trainingWords } from "../../src/cli/quickstart/words.js";
import { toExamples } from "../../src/cookbook/data/index.js";
import {
  conversations,
  datumFromExample,
  distillationDatum,
  type Evaluator,
  type OffPolicyDistillationOptions,
  type OnPolicyDistillationOptions,
  type PromptDistillationOptions,
  planOffPolicyDistillation,
  planOnPolicyDistillation,
  planPromptDistillation,
  planSelfDistillation,
  type SelfDistillationOptions,
  trainOffPolicyDistillation,
  trainOnPolicyDistillation,
  trainPromptDistillation,
  trainSelfDistillation,
  trainSupervised,
} from "../../src/cookbook/index.js";
import { Datum, datumFromAnswer, ModelInput, type TopkLogprobs } from "../../src/index.js";
import { getRenderer } from "../../src/renderers/index.js";
import { longTest, someOf } from "../support/long.js";
import { atStep, lines, weightsAt } from "./run-files.js";
import { TrainingBackend } from "./training-backend.js";

const MODEL = "tinkerts/nano";
const row = (word: string) => ({
  messages: [
    { role: "user", content: `Pig Latin: ${word}` },
    { role: "assistant", content: pigLatin(word) },
  ],
});
const WORDS = trainingWords.slice(0, 64);

const place = await TrainingBackend.forTests("distillation");
const { home } = place;
/** Weights that speak Pig Latin. */
let teacher: string;
beforeAll(async () => {
  const run = await trainSupervised({
    service: place.service,
    model: MODEL,
    data: conversations(WORDS.map(row)),
    testSize: 0,
    batchSize: 16,
    epochs: 5,
    rank: 8,
    evaluateEvery: 0,
    loggers: [],
  });
  teacher = run.samplerPath;
});

/** What is left of a metric: the mean of the last two steps as a share of the first. */
const fallOf = (metrics: readonly Record<string, unknown>[], name: string): number => {
  const values = metrics.map((line) => line[name] as number);
  return (values.at(-1)! + values.at(-2)!) / 2 / values[0]!;
};

describe("trainOnPolicyDistillation", () => {
  const options = (given: object = {}) =>
    ({
      service: place.service,
      model: MODEL,
      prompts: WORDS.slice(0, 16).map((word) => `Pig Latin: ${word}`),
      teacher,
      groupsPerBatch: 8,
      groupSize: 2,
      maxTokens: 8,
      steps: 6,
      rank: 4,
      learningRate: 3e-3,
      evaluateEvery: 0,
      loggers: [],
      ...given,
    }) as OnPolicyDistillationOptions;

  longTest("brings a student nearer to its teacher by its own answers", async () => {
    const folder = join(home, "on-policy");
    const run = await trainOnPolicyDistillation(options({ folder }));
    expect(run).toMatchObject({ isFinished: true, steps: 6 });
    const metrics = await lines(folder, "metrics.jsonl");
    expect(metrics[0]!["teacher_kl"]).toBeGreaterThan(1);
    expect(fallOf(metrics, "teacher_kl")).toBeLessThan(0.8);
    expect(metrics[0]!["teacher_kl/dataset_0"]).toBe(metrics[0]!["teacher_kl"]);
    expect(metrics[0]!["optim/kl_sample_train_v2"]).toBe(0);
    expect(metrics[0]!["env/all/total_episodes"]).toBe(16);
    expect(run.config).toMatchObject({
      teacher_kl_coef: 1,
      teacher_kl_discount_factor: 0,
      domains: [{ name: "dataset_0", teacher, groups_per_batch: 8 }],
      groups_per_batch: 8,
    });
    await expect(trainOnPolicyDistillation(options({ folder, teacher: MODEL }))).rejects.toThrow(
      "has other settings (domains)",
    );
  });

  it("lets each teacher speak of its own prompts, in the share that it is given", async () => {
    const folder = join(home, "several");
    const domains = [
      { name: "latin", prompts: conversations(WORDS.slice(0, 4).map(row)), teacher, groupsPerBatch: 2 },
      { prompts: [{ prompt: "What is 2 + 3?" }], teacher: MODEL, groupsPerBatch: 3 },
    ];
    const beside = { prompts: undefined, teacher: undefined, groupsPerBatch: undefined, steps: undefined };
    const run = await trainOnPolicyDistillation(options({ ...beside, folder, domains }));
    // As many as it takes for all four words, two at a time.
    expect(run.steps).toBe(2);
    const [first] = await lines(folder, "metrics.jsonl");
    expect(first!["env/latin/total_episodes"]).toBe(4);
    expect(first!["env/dataset_1/total_episodes"]).toBe(6);
    expect(first!["teacher_kl/latin"]).toBeGreaterThan(1);
    // The student is still its own second teacher.
    expect(Math.abs(first!["teacher_kl/dataset_1"] as number)).toBeLessThan(1e-5);
  });

  it("says beforehand what it would do, and what it cannot", async () => {
    const { description } = await planOnPolicyDistillation(options());
    expect(description).toMatch(/steps +6 of 8 groups with 2 tries each, synchronous/);
    expect(description).toContain(`teacher   ${teacher}`);
    const plan = (given: object) => planOnPolicyDistillation(options(given));
    await expect(plan({ renderer: "role_colon" })).rejects.toThrow("must read the student's chat format");
    await expect(plan({ prompts: [] })).rejects.toThrow("prompts must be a list of at least one text");
    await expect(plan({ environments: {} })).rejects.toThrow("prompts and environments are two ways");
    await expect(plan({ coefficient: 0 })).rejects.toThrow("coefficient must be a number above 0, got 0");
    await expect(plan({ discount: 2 })).rejects.toThrow("discount must be a number from 0 to 1, got 2");
    await expect(plan({ groupsPerBatch: 0 })).rejects.toThrow("groupsPerBatch must be a positive integer");
    await expect(plan({ penalties: () => [] })).rejects.toThrow("unknown field penalties");
    await expect(plan({ kl_penalty_coef: 1 })).rejects.toThrow("unknown field kl_penalty_coef");
  });
});

describe("a distillation that is disturbed", () => {
  const words = WORDS.slice(0, 8);
  const shared = () => ({
    service: place.service,
    model: MODEL,
    teacher,
    rank: 4,
    evaluateEvery: 0,
    loggers: [],
  });

  it("ends with the same weights, on policy, when it was paused", async () => {
    const prompts = words.map((word) => `Pig Latin: ${word}`);
    const options = { ...shared(), prompts, groupsPerBatch: 3, groupSize: 2, maxTokens: 6, steps: 3 };
    const whole = await trainOnPolicyDistillation(options);
    const folder = join(home, "paused");
    const pause = new AbortController();
    const pausing = { pauseSignal: pause.signal, loggers: [atStep(0, () => pause.abort())] };
    const half = await trainOnPolicyDistillation({ ...options, ...pausing, folder });
    expect(half.isFinished).toBe(false);
    expect(half.steps).toBeLessThan(3);
    const run = await trainOnPolicyDistillation({ ...options, folder });
    expect(run).toMatchObject({ isFinished: true, steps: 3 });
    expect(await weightsAt(place.backend, run.statePath)).toEqual(
      await weightsAt(place.backend, whole.statePath),
    );
  });

  longTest("ends with the same weights, off policy, when the server went away and came back", async () => {
    const options = { ...shared(), data: conversations(words.map(row)), testSize: 0, batchSize: 2 };
    const whole = await trainOffPolicyDistillation(options);
    let restarted: Promise<void> | undefined;
    const restarting = atStep(1, () => {
      restarted = place.restart();
    });
    const folder = join(home, "restarted");
    const run = await trainOffPolicyDistillation({ ...options, folder, loggers: [restarting] });
    await restarted;
    await place.renewService();
    expect(run).toMatchObject({ isFinished: true, steps: 4 });
    expect(run.restores).toBeGreaterThan(0);
    expect(await weightsAt(place.backend, run.statePath)).toEqual(
      await weightsAt(place.backend, whole.statePath),
    );
  });
});

describe("trainSelfDistillation", () => {
  const options = (given: object = {}) =>
    ({
      service: place.service,
      model: MODEL,
      data: conversations(WORDS.slice(0, 8).map(row)),
      teacher,
      // It knows what others would need in the prompt.
      hint: (question: string, _answer: string) => question,
      skipTokens: 1,
      groupSize: 2,
      groupsPerBatch: 8,
      maxTokens: 8,
      steps: 4,
      rank: 4,
      learningRate: 2e-3,
      evaluateEvery: 0,
      loggers: [],
      ...given,
    }) as SelfDistillationOptions;

  /** How unlikely the teacher's answers are for the words that the student is asked. */
  const unlikeliness = async (): Promise<Evaluator> => {
    const renderer = getRenderer("qwen3_instruct", await place.service.getTokenizer(MODEL));
    const data = WORDS.slice(0, 8).flatMap((word) =>
      toExamples(row(word), renderer, "all_assistant_messages").map((example) => datumFromExample(example)!),
    );
    return {
      name: "latin",
      evaluate: async ({ training, signal }) => {
        const { metrics } = await training.forward(data, "cross_entropy", { signal });
        return { "test/loss": metrics["loss:sum"]! };
      },
    };
  };

  it.each(someOf([{}, { reverse: true, substeps: 2 }, { topk: 0, skipTokens: undefined }], 3))(
    "teaches what the teacher knows: %o",
    async (given) => {
      const folder = join(home, `self-${Object.keys(given)}`);
      const evaluators = [await unlikeliness()];
      const run = await trainSelfDistillation(options({ folder, evaluators, evaluateEvery: 4, ...given }));
      expect(run).toMatchObject({ isFinished: true, steps: 4 });
      const metrics = await lines(folder, "metrics.jsonl");
      const [before, after] = [metrics[0]!, metrics.at(-1)!].map((line) => line["test/loss"] as number);
      expect(after).toBeLessThan(before! * 0.9);
      const [first] = metrics;
      expect(first!["sdft/num_datums"]).toBe("substeps" in given ? 8 : 16);
      // The second of two updates is not by the weights that have sampled.
      if (!("substeps" in given)) expect(first!["optim/kl_sample_train_v2"]).toBe(0);
      expect(run.config).toMatchObject({
        teacher,
        hint: "{question}",
        skip_first_n_tokens: "topk" in given ? 0 : 1,
      });
    },
  );

  it("is planned with upstream's defaults, and refuses rows without a good answer", async () => {
    const plan = (given: object) => planSelfDistillation(options(given));
    const defaults = { teacher: undefined, hint: undefined, skipTokens: undefined, rank: undefined };
    const { config, description } = await plan({
      ...defaults,
      groupSize: undefined,
      steps: undefined,
      epochs: 3,
    });
    expect(config).toMatchObject({
      lora_rank: 128,
      group_size: 1,
      topk: 20,
      reverse: false,
      skip_first_n_tokens: 3,
      teacher: MODEL,
      steps: 3,
      loss_fn: "cross_entropy",
    });
    expect(description).toContain(`teacher   ${MODEL}, with the answer as a hint`);
    const question = { messages: [{ role: "user", content: "Why?" }] };
    await expect(plan({ data: conversations([row("cat"), question]) })).rejects.toThrow(
      "row 2: messages must end with a user's question and an assistant's good answer to it",
    );
    await expect(plan({ topk: 0, reverse: true })).rejects.toThrow("reverse needs topk above 0");
    await expect(plan({ topk: 0, skipTokens: 2 })).rejects.toThrow("skipTokens needs topk above 0");
    await expect(plan({ hint: "Look!" })).rejects.toThrow("hint must be a function of the question");
    await expect(plan({ loss: "ppo" })).rejects.toThrow("unknown field loss");
    await expect(plan({ renderer: "role_colon" })).rejects.toThrow("must read the student's chat format");
  });
});

describe("trainOffPolicyDistillation", () => {
  const options = (given: Partial<OffPolicyDistillationOptions> = {}) =>
    ({
      service: place.service,
      model: MODEL,
      data: conversations(WORDS.map(row)),
      teacher,
      batchSize: 16,
      testSize: 8,
      epochs: 2,
      rank: 8,
      evaluateEvery: 0,
      loggers: [],
      ...given,
    }) as OffPolicyDistillationOptions;

  longTest("brings a student nearer to its teacher, and says how far it is", async () => {
    const folder = join(home, "off-policy");
    const run = await trainOffPolicyDistillation(options({ folder }));
    expect(run).toMatchObject({ isFinished: true, steps: 8 });
    const metrics = await lines(folder, "metrics.jsonl");
    const divergences = metrics.map((line) => line["teacher_kl"] as number);
    expect(divergences[0]).toBeGreaterThan(1);
    expect(divergences.at(-1)).toBeLessThan(divergences[0]! / 3);
    expect(metrics[0]!["teacher_kl/dataset_0"]).toBe(divergences[0]);
    expect(metrics[0]!["num_loss_tokens"]).toBeLessThan(metrics[0]!["num_tokens"] as number);
    expect(run.config).toMatchObject({
      n_teacher_targets: 20,
      batch_size: 16,
      domains: [{ name: "dataset_0", teacher, weight: null }],
    });
  });

  it("asks each teacher about its own data alone", async () => {
    const halves = [WORDS.slice(0, 16), WORDS.slice(16, 32)].map((words) => conversations(words.map(row)));
    const folder = join(home, "two-teachers");
    const domains = [
      { name: "latin", data: halves[0]!, teacher },
      { data: halves[1]!, teacher: MODEL },
    ];
    const given = { domains, data: undefined, teacher: undefined, testSize: 0, epochs: 1, batchSize: 32 };
    await trainOffPolicyDistillation(options({ ...given, folder } as object));
    const [first] = await lines(folder, "metrics.jsonl");
    // A new adapter does nothing: the student is still its own second teacher.
    expect(first!["teacher_kl/dataset_1"]).toBeCloseTo(0, 1);
    expect(first!["teacher_kl/latin"]).toBeGreaterThan(1);
  });

  it("says beforehand what it would do", async () => {
    const { description } = await planOffPolicyDistillation(options());
    expect(description).toMatch(/steps +8: 2 epochs of 4, 16 rows each/);
    expect(description).toContain(`teacher   ${teacher}: its 20 likeliest tokens`);
  });
});

describe("trainPromptDistillation", () => {
  const INSTRUCTIONS = "Nobody but the teacher reads this.";
  const options = (given: Partial<PromptDistillationOptions>): PromptDistillationOptions => ({
    service: place.service,
    model: MODEL,
    questions: WORDS.slice(0, 24).map((word) => `Pig Latin: ${word}`),
    instructions: INSTRUCTIONS,
    teacher,
    answering: { maxTokens: 24 },
    testSize: 4,
    batchSize: 10,
    epochs: 2,
    rank: 4,
    evaluateEvery: 0,
    loggers: [],
    ...given,
  });
  const distil = (given: Partial<PromptDistillationOptions>) => trainPromptDistillation(options(given));

  it("plans what is known before the teacher answers, and says what is not", async () => {
    const folder = join(home, "prompt-planned");
    const { config, description } = await planPromptDistillation(
      options({ folder, answering: { numSamples: 2 } }),
    );
    expect(config).toMatchObject({
      ...{ teacher, questions: 24, answers: 48, batch_size: 10 },
      ...{ max_rows: 44, max_test_rows: 4, max_steps: 10, rows: null, steps: null, tokens: null },
    });
    expect(description).toMatch(
      /tokens +unknown until the teacher has answered\nsteps +at most 10, 10 rows each/,
    );
    expect(await readdir(home)).not.toContain("prompt-planned");
    await expect(planPromptDistillation(options({ teacher: "no/such-model" }))).rejects.toThrow(
      "no/such-model",
    );
    await expect(planPromptDistillation(options({ questions: [] }))).rejects.toThrow("There is no task");
  });

  it("lets the teacher answer with its instructions, and the student learn without them", async () => {
    const folder = join(home, "prompt");
    const run = await distil({ folder });
    expect(run).toMatchObject({ isFinished: true, steps: 4 });
    const asked = await lines(folder, "teacher/answers/trajectories.jsonl");
    expect(asked).toHaveLength(24);
    for (const { turns } of asked as { turns: { content: string }[] }[])
      expect(turns[0]!.content).toContain(INSTRUCTIONS);
    const rows = await lines(folder, "answers.jsonl");
    expect(rows).toHaveLength(24);
    expect(rows[0]).toEqual({
      messages: [
        { role: "user", content: `Pig Latin: ${WORDS[0]}` },
        { role: "assistant", content: expect.stringMatching(/./) },
      ],
    });
    const metrics = await lines(folder, "metrics.jsonl");
    const [first, last] = [metrics.at(0)!, metrics.at(-1)!].map((line) => line["train_mean_nll"] as number);
    expect(last).toBeLessThan(first! * 0.8);
    const ended = await distil({ folder });
    expect(ended).toMatchObject({ steps: 4, samplerPath: run.samplerPath });
    // Nothing was asked or trained again.
    expect(await lines(folder, "teacher/answers/trajectories.jsonl")).toHaveLength(24);
    expect(await lines(folder, "metrics.jsonl")).toHaveLength(4);
    await expect(distil({ folder, instructions: "Something else." })).rejects.toThrow(
      "24 tasks were changed",
    );
  });

  it("goes on with the questions that were not answered when it was stopped", async () => {
    const folder = join(home, "stopped");
    const stop = new AbortController();
    const onProgress = ({ done }: { done: number }) => {
      if (done >= 6) stop.abort();
    };
    const answering = { maxTokens: 24, concurrency: 2 };
    const stopped = distil({ folder, answering: { ...answering, onProgress }, signal: stop.signal });
    await expect(stopped).rejects.toThrow();
    const before = await lines(folder, "teacher/answers/trajectories.jsonl");
    expect(before.length).toBeGreaterThanOrEqual(6);
    expect(before.length).toBeLessThan(24);
    await distil({ folder, answering });
    const after = await lines(folder, "teacher/answers/trajectories.jsonl");
    expect(after).toHaveLength(24);
    expect(after.slice(0, before.length)).toEqual(before);
    // In the order of the questions, whichever came first.
    const rows = (await lines(folder, "answers.jsonl")) as { messages: { content: string }[] }[];
    expect(rows.map(({ messages }) => messages[0]!.content)).toEqual(
      WORDS.slice(0, 24).map((word) => `Pig Latin: ${word}`),
    );
  });

  it("trains on the part of an answer that `learn` chooses", async () => {
    const folder = join(home, "learn");
    const questions = [{ prompt: "Pig Latin: stick" }, "Pig Latin: cat", "Pig Latin: dog"];
    const instructions: PromptDistillationOptions["instructions"] = (messages) => [
      { role: "user", content: `${INSTRUCTIONS} ${messages[0]!.content}` },
    ];
    const learn: PromptDistillationOptions["learn"] = ({ messages, text }) =>
      messages[0]!.content === "Pig Latin: cat" ? undefined : text.toUpperCase();
    const given = { questions, instructions, learn, folder, testSize: 0, batchSize: 2, epochs: 1 };
    await distil(given);
    const rows = (await lines(folder, "answers.jsonl")) as { messages: { content: string }[] }[];
    expect(rows.map(({ messages }) => messages[0]!.content)).toEqual(["Pig Latin: stick", "Pig Latin: dog"]);
    for (const { messages } of rows) expect(messages[1]!.content).toMatch(/^[^a-z]+$/);
    await expect(distil({ ...given, folder: undefined, learn: () => undefined })).rejects.toThrow(
      "there is nothing to learn: of 3 answers 0 were cut off",
    );
    await expect(distil({ answering: { topk: 3 } as object })).rejects.toThrow("answering.topk");
    const unasked = { answering: { onProgress: () => expect.unreachable("the teacher was asked") } };
    await expect(distil({ ...unasked, batchSize: 0 })).rejects.toThrow(
      "batchSize must be a positive integer",
    );
    await expect(distil({ instructions: "" })).rejects.toThrow("instructions must be a text for the teacher");
    await expect(distil({ questions: [{ question: 1 }] as never })).rejects.toThrow(
      "questions[0]: prompt or messages is missing",
    );
  });
});

describe("soft targets", () => {
  it("are the hard ones where the teacher is certain", async () => {
    const modelInput = ModelInput.fromInts([10, 20, 30]);
    const hard = new Datum({
      modelInput,
      lossFnInputs: { targetTokens: Int32Array.of(20, 30, 40), weights: Float32Array.of(0, 1, 1) },
    });
    const certain = {
      sample: async () => ({
        ...(await sampler.sample({ prompt: [1], samplingParams: { maxTokens: 1 } })),
        topkPromptLogprobs: [null, [[20, 0]], [[30, 0]], [[40, 0]]] as TopkLogprobs,
      }),
    };
    const sampler = await place.service.createSamplingClient({ baseModel: MODEL });
    const { datum: soft } = await distillationDatum(hard, { teacher: certain, topk: 3 });
    expect(soft.lossFnInputs["targetTokens"]!.shape).toEqual([3, 3]);
    const training = await place.service.createLoraTrainingClient({ baseModel: MODEL, rank: 4 });
    const [bySoft, byHard] = await Promise.all(
      [soft, hard].map((datum) => training.forward([datum], "cross_entropy")),
    );
    expect(bySoft!.metrics["loss:sum"]).toBeGreaterThan(1);
    expect(bySoft!.metrics["loss:sum"]).toBeCloseTo(byHard!.metrics["loss:sum"]!, 5);
  });

  it("are the teacher's own distribution over its likeliest tokens", async () => {
    const sampler = await place.service.createSamplingClient({ modelPath: teacher });
    const hard = datumFromAnswer([10, 20, 30], [40, 50]);
    const { datum, entropy, weight, positions } = await distillationDatum(hard, {
      teacher: sampler,
      topk: 4,
    });
    expect({ weight, positions }).toEqual({ weight: 2, positions: 2 });
    const { topkPromptLogprobs } = await sampler.sample({
      prompt: [10, 20, 30, 40, 50],
      samplingParams: { maxTokens: 1 },
      includePromptLogprobs: true,
      topkPromptLogprobs: 4,
    });
    const weights = datum.lossFnInputs["weights"]!.toNested() as number[][];
    const tokens = datum.lossFnInputs["targetTokens"]!.toNested() as number[][];
    expect(weights.slice(0, 2).flat()).toEqual(new Array(8).fill(0));
    let expectedEntropy = 0;
    for (const position of [2, 3]) {
      const candidates = topkPromptLogprobs![position + 1]!;
      const total = candidates.reduce((sum, [, logprob]) => sum + Math.exp(logprob), 0);
      const shares = candidates.map(([, logprob]) => Math.exp(logprob) / total);
      expect(tokens[position]).toEqual(candidates.map(([token]) => token));
      for (const [rank, share] of shares.entries()) expect(weights[position]![rank]).toBeCloseTo(share, 6);
      expectedEntropy -= shares.reduce((sum, share) => sum + share * Math.log(share), 0);
    }
    expect(entropy).toBeCloseTo(expectedEntropy, 6);
  });
});

describe("a teacher and a student that do not speak the same language", () => {
  const plan = (given: object) =>
    planOffPolicyDistillation({
      service: place.service,
      model: MODEL,
      data: conversations(WORDS.slice(0, 8).map(row)),
      teacher,
      ...given,
    } as OffPolicyDistillationOptions);

  it("are refused before anything is trained", async () => {
    await expect(plan({ renderer: "role_colon" })).rejects.toThrow(
      `teacher must read the student's chat format, role_colon, and ${teacher} was trained with qwen3_instruct. ` +
        'Give renderer: "qwen3_instruct", or another teacher.',
    );
    await expect(plan({ renderer: "role_colon", teacher: MODEL })).rejects.toThrow("role_colon");
    // Written alike, whatever it is called.
    await expect(plan({ renderer: "template" })).resolves.toBeDefined();
    const tokenizer = await place.service.getTokenizer(MODEL);
    const shifted = {
      encode: (text: string) => tokenizer.encode(text).map((token) => (token + 1) % 512),
      decode: (tokens: ArrayLike<number>) =>
        tokenizer.decode(Array.from(tokens, (token) => (token + 511) % 512)),
    };
    await expect(plan({ tokenizer: shifted })).rejects.toThrow(
      `teacher must have the student's tokenizer, and that of ${teacher} (${MODEL}) cuts text into other tokens`,
    );
  });

  it("and wrong options are named", async () => {
    await expect(plan({ teacher: 7 })).rejects.toThrow(
      "teacher must be the name of a base model, a tinker:// path or a SamplingClient, got 7",
    );
    await expect(plan({ topk: 0 })).rejects.toThrow("topk must be a positive integer, got 0");
    await expect(plan({ topK: 5 })).rejects.toThrow("unknown field topK");
    await expect(plan({ domains: [] })).rejects.toThrow(
      "must be given for each of the domains, not beside them",
    );
    const both = { data: undefined, teacher: undefined };
    await expect(plan({ ...both, domains: [] })).rejects.toThrow("domains must be a list of at least one");
    const domain = { data: conversations([row("stick")]), teacher };
    await expect(plan({ ...both, domains: [{ ...domain, prompt: 1 }] })).rejects.toThrow("domains[0].prompt");
    await expect(plan({ ...both, domains: [domain, { ...domain, data: 1 }] })).rejects.toThrow(
      "domains[1].data must be conversations",
    );
    const same = { ...domain, name: "same" };
    await expect(plan({ ...both, domains: [same, same] })).rejects.toThrow(
      'domains[1].name: "same" is already used by domains[0]; names must be unique',
    );
  });
});
