import { TinkerError, ValidationError } from "../../errors.js";
import { type Message, type Renderer, textOf } from "../../renderers/index.js";
import * as f from "../../wire/fields/index.js";
import {
  addModels,
  addTokens,
  describeBudget,
  describeEstimate,
  estimateOf,
  NO_TOKENS,
  type PlannedTokens,
  priceList,
} from "../costs/index.js";
import { batches, type Conversation, type ConversationSource, conversations } from "../data/index.js";
import { testRowsOf } from "../data/split.js";
import { EVALUATE_OPTIONS } from "../evaluation/evaluate.js";
import { type EvaluateOptions, type ExampleResult, evaluate, type TaskLike } from "../evaluation/index.js";
import { readTasks, type Task } from "../evaluation/tasks.js";
import { findRenderer, longestInput, preparationSignal } from "../runs/find-model.js";
import { recommendedBatchSize } from "../runs/hyperparameters.js";
import { checkBest } from "../runs/options.js";
import { weightsSource } from "../runs/reopening-sampler.js";
import type { FinishedRun, RunPlan } from "../runs/run-training.js";
import { describeModel, describeRate, describeSettings } from "../runs/settings.js";
import { RunSpending } from "../runs/spending.js";
import { type TrainSupervisedOptions, trainSupervised } from "../supervised/index.js";
import { OWN_OPTIONS, SUPERVISED_OPTIONS } from "../supervised/options.js";
import { rowsConfig, rowsSettings } from "../supervised/settings.js";
import { openTeacher, type Teacher, teacherField } from "./teacher.js";

/** How the teacher answers: the sampling options of `evaluate`, with a default temperature of 0.15. */
export type AnsweringOptions = Pick<
  EvaluateOptions,
  | "renderer"
  | "maxTokens"
  | "temperature"
  | "topK"
  | "topP"
  | "seed"
  | "numSamples"
  | "concurrency"
  | "exampleTimeoutMs"
  | "onProgress"
>;

/** An answer of the teacher. */
export interface TeacherAnswer {
  /** Conversation that the teacher answered, without the instructions. */
  readonly messages: readonly Message[];
  readonly text: string;
}

/** Options of `trainPromptDistillation`; the training options are those of `trainSupervised`. */
export interface PromptDistillationOptions extends Omit<TrainSupervisedOptions, "data"> {
  /** Questions for the teacher: texts, rows with a `prompt` or `messages`, or a file of such rows. */
  readonly questions: string | readonly (string | TaskLike)[];
  /** Instructions that only the teacher reads: a system message, or a function that makes its conversation from the question. */
  readonly instructions: string | ((messages: readonly Message[]) => readonly Message[]);
  /**
   * Model that answers the questions. Its chat format and tokens may differ from the student's. Default: the model
   * itself.
   */
  readonly teacher?: Teacher | undefined;
  /** Selects the text of an answer to train on; undefined leaves the answer out. Default: the whole text. */
  readonly learn?: ((answer: TeacherAnswer) => string | undefined) | undefined;
  readonly answering?: AnsweringOptions | undefined;
}

const { data: _data, ...REST } = SUPERVISED_OPTIONS.fields;
const { renderer, maxTokens, temperature, topK, topP, seed } = EVALUATE_OPTIONS.fields;
const { numSamples, concurrency, exampleTimeoutMs, onProgress } = EVALUATE_OPTIONS.fields;

const TABLE = f.optionTable({
  ...REST,
  questions: f.option(
    f.opaque as f.Field<PromptDistillationOptions["questions"]>,
    "questions that the teacher answers",
  ),
  instructions: f.option(
    f.value<PromptDistillationOptions["instructions"]>(
      "a text for the teacher, or a function of the messages",
      (given) => (typeof given === "string" && given !== "") || typeof given === "function",
    ),
    "what the teacher alone reads",
  ),
  teacher: f.option(f.optional(teacherField), "model that answers", { otherwise: "the model itself" }),
  learn: f.option(
    f.optional(
      f.functionOf<NonNullable<PromptDistillationOptions["learn"]>>(
        "a function of an answer, as ({ text }) => text",
      ),
    ),
    "part of an answer that is trained on",
    { otherwise: "the whole text" },
  ),
  answering: f.option(
    f.optionGroup({
      ...{ renderer, maxTokens, topK, topP, numSamples, concurrency, exampleTimeoutMs, onProgress },
      temperature: f.defaulting(temperature, 0.15),
      seed,
    } satisfies f.OptionsOf<AnsweringOptions>),
    "how the teacher answers",
  ),
} satisfies f.OptionsOf<PromptDistillationOptions>);

/**
 * Trains a model to answer as if it had read long instructions. A teacher that reads them answers the questions, and
 * the student is trained on these answers after the questions alone. Answers are saved in the run's folder, in
 * `teacher/answers`: the same call continues where it stopped. `answers.jsonl` has the rows to train on.
 */
export async function trainPromptDistillation(options: PromptDistillationOptions): Promise<FinishedRun> {
  // Before the teacher answers anything: the conversations to train on do not exist yet.
  const checked = checkOptions(options, "trainPromptDistillation");
  const { questions, instructions, teacher, learn, answering, ...supervised } = checked;
  const rows = await countedAnswers(checked);
  return trainSupervised({ ...supervised, data: conversations(rows) });
}

/**
 * Decides every setting of `trainPromptDistillation`, reads the questions and finds the teacher, without sampling or
 * training anything. Rows and steps are upper bounds and tokens are unknown: only the teacher's answers show which are
 * cut off or not trained on.
 */
export async function planPromptDistillation(options: PromptDistillationOptions): Promise<RunPlan> {
  const { questions: _questions, answering, ...checked } = checkOptions(options, "planPromptDistillation");
  const { service, model, teacher = model, batchSize, testSize, testData, folder } = checked;
  const signal = preparationSignal(options);
  const maxLength = checked.maxLength ?? (await longestInput(service, model, signal));
  const { renderer, rendererName } = await findRenderer(options, signal);
  const tasks = await readQuestions(options);
  const questions = tasks.length;
  await using found = await openTeacher(service, teacher, signal);
  const answers = questions * answering.numSamples;
  const testRows = testData === undefined ? testRowsOf(answers, testSize) : await rowsIn(testData);
  const rows = testData === undefined ? answers - testRows : answers;
  const size = batchSize ?? recommendedBatchSize(rows);
  const counts = { rows, testRows, tokens: 0, lossTokens: 0, testTokens: 0 };
  const settings = rowsSettings(
    { ...checked, data: conversations([]) },
    {
      data: {
        counts,
        batchSize: size,
        stepsPerEpoch: batches({ length: rows }, { batchSize: size }).stepsPerEpoch,
      },
      rendererName,
      maxLength,
    },
  );
  const number = (value: number) => value.toLocaleString("en-US");
  const lengths = promptLengths(tasks, renderer, options);
  const room = answering.maxTokens ?? (maxLength === undefined ? undefined : maxLength - lengths.taught);
  const prices = await priceList(service, options.prices);
  const trained = rows * (settings.steps / batches({ length: rows }, { batchSize: size }).stepsPerEpoch);
  const estimate =
    room === undefined
      ? undefined
      : estimateOf(
          plannedTokens({ ...lengths, answers, trained, answer: room }, { model, teacher: found.baseModel }),
          prices,
        );
  return {
    estimate,
    config: {
      ...rowsConfig(settings),
      ...f.keptOptions(OWN_OPTIONS, checked),
      ...{ teacher: found.name, questions, answers },
      ...{ rows: null, test_rows: null, tokens: null, test_tokens: null, steps: null },
      ...{ max_rows: rows, max_test_rows: testRows, max_steps: settings.steps },
    },
    description: describeSettings([
      describeModel(settings),
      ["renderer", `${rendererName}, learning ${checked.trainOn}`],
      ["teacher", found.name],
      ["questions", `${number(questions)}, for ${number(answers)} answers of the teacher`],
      ["rows", `at most ${number(rows)} to learn from, ${number(testRows)} held out`],
      ["tokens", "unknown until the teacher has answered"],
      ["steps", `at most ${number(settings.steps)}, ${size} rows each`],
      describeRate(settings),
      ...(estimate === undefined
        ? []
        : [...describeEstimate(estimate, prices), ...describeBudget(checked.budget, estimate)]),
      ...(folder === undefined ? [] : ([["folder", folder]] as const)),
    ]),
  };
}

/** Number of questions whose length is measured. */
const QUESTIONS_MEASURED = 50;
/** Share of the longest possible answer that the least estimate supposes. */
const SHORT_ANSWER = 0.1;

/** Mean lengths of the student's prompts, and of the teacher's with the instructions. */
function promptLengths(
  tasks: readonly Task[],
  renderer: Renderer,
  { instructions }: PromptDistillationOptions,
) {
  const some = tasks.slice(0, QUESTIONS_MEASURED);
  const mean = (conversationOf: (task: Task) => readonly Message[]) =>
    some.reduce((sum, task) => sum + renderer.buildPrompt(conversationOf(task)).length, 0) / some.length;
  return {
    asked: mean(({ messages }) => messages),
    taught: mean(({ messages }) => instruct(messages, instructions)),
  };
}

/** Tokens of the teacher's answers and of training on them. */
function plannedTokens(
  counts: Record<"asked" | "taught" | "answers" | "trained" | "answer", number>,
  { model, teacher }: Record<"model" | "teacher", string>,
): PlannedTokens {
  const { asked, taught, answers, trained, answer } = counts;
  const tokens = (length: number) =>
    addModels(
      new Map([[teacher, addTokens(NO_TOKENS, { prefill: answers * taught, sample: answers * length })]]),
      new Map([[model, addTokens(NO_TOKENS, { train: trained * (asked + length) })]]),
    );
  const short = Math.max(1, Math.round(answer * SHORT_ANSWER));
  const most = Math.round(answer);
  return {
    least: tokens(short),
    most: tokens(most),
    assumptions: [
      `answers of ${short.toLocaleString("en-US")} to ${most.toLocaleString("en-US")} tokens, all of them trained on`,
      "without evaluations",
    ],
  };
}

function checkOptions(options: PromptDistillationOptions, caller: string) {
  const checked = TABLE.check(options, caller);
  checkBest(checked);
  return checked;
}

async function rowsIn(source: ConversationSource): Promise<number> {
  await using rows = await source.open();
  return rows.length;
}

const readQuestions = ({ questions }: Pick<PromptDistillationOptions, "questions">) =>
  readTasks(asTasks(questions), "questions", { field: "questions" });

/** The teacher's answers, whose tokens count for the run if it has a folder to keep them in. */
async function countedAnswers(
  options: f.FilledMessage<(typeof TABLE)["fields"]>,
): Promise<readonly Conversation[]> {
  const { service, model, prices, folder } = options;
  const spending = await RunSpending.open({ service, model, prices, budget: undefined, folder });
  try {
    return await teacherAnswers(options);
  } finally {
    spending.close();
  }
}

/** Lets the teacher answer the questions that have no answer yet. */
async function teacherAnswers(
  options: f.FilledMessage<(typeof TABLE)["fields"]>,
): Promise<readonly Conversation[]> {
  const { service, instructions, teacher = options.model, folder, seed, answering } = options;
  const signal = preparationSignal(options);
  const tasks = await readQuestions(options);
  const sampler =
    typeof teacher === "string"
      ? await service.createSamplingClient({ ...weightsSource(teacher), signal })
      : teacher;
  const { examples } = await evaluate({
    seed,
    ...answering,
    sampler,
    name: "answers",
    tasks: tasks.map(({ id, messages, row }) => ({
      ...row,
      id,
      prompt: undefined,
      messages: instruct(messages, instructions),
    })),
    grade: function answered() {
      return 1;
    },
    folder: folder && `${folder}/teacher`,
    signal,
  });
  const rows = trainedRows(tasks, examples, options.learn);
  if (folder !== undefined) {
    const { writeFileAtomic } = await import("../../files.node.js");
    await writeFileAtomic(`${folder}/answers.jsonl`, rows.map((row) => `${JSON.stringify(row)}\n`).join(""));
  }
  return rows;
}

function asTasks(questions: PromptDistillationOptions["questions"]): string | readonly TaskLike[] {
  if (!Array.isArray(questions)) return questions as string;
  return questions.map((question) => (typeof question === "string" ? { prompt: question } : question));
}

/** The conversation that the teacher reads. */
function instruct(
  messages: readonly Message[],
  instructions: PromptDistillationOptions["instructions"],
): readonly Message[] {
  if (typeof instructions === "function") return instructions(messages);
  const [first, ...rest] = messages;
  return first?.role === "system"
    ? [{ role: "system", content: `${instructions}\n\n${textOf(first)}` }, ...rest]
    : [{ role: "system", content: instructions }, ...messages];
}

/** Questions with the parts of their answers to train on; answers that were cut off are left out. */
function trainedRows(
  tasks: readonly Task[],
  examples: readonly ExampleResult[],
  learn: PromptDistillationOptions["learn"] = ({ text }) => text,
): readonly Conversation[] {
  const failed = examples.filter(({ error }) => error !== undefined);
  if (failed.length > 0) {
    throw new TinkerError(
      `The teacher did not answer ${failed.length} of ${examples.length} questions (${failed[0]!.error}). The same call ` +
        "asks these again, and keeps the other answers where it has a folder.",
    );
  }
  const byId = new Map(tasks.map((task) => [task.id, task]));
  const rows = examples
    .filter(({ outcome }) => outcome === "graded")
    .flatMap(({ id, text }) => {
      const { messages, tools } = byId.get(id)!;
      const content = learn({ messages, text });
      if (content === undefined) return [];
      return [{ messages: [...messages, { role: "assistant", content }], ...(tools && { tools }) }];
    });
  if (rows.length > 0) return rows;
  const cut = examples.filter(({ outcome }) => outcome === "truncated").length;
  throw new ValidationError(
    "learn",
    `there is nothing to learn: of ${examples.length} answers ${cut} were cut off, and learn left out the others`,
  );
}
