import { TinkerError, ValidationError } from "../../errors.js";
import { type Message, textOf } from "../../renderers/index.js";
import { checkKeys, checkObject, wrongValue } from "../../wire/index.js";
import { type Conversation, conversations } from "../data/index.js";
import { type EvaluateOptions, type ExampleResult, evaluate, type TaskLike } from "../evaluation/index.js";
import { readTasks, type Task } from "../evaluation/tasks.js";
import { preparationSignal } from "../runs/find-model.js";
import { checkRunOptions, type RunOptions } from "../runs/options.js";
import type { FinishedRun } from "../runs/run-training.js";
import { type TrainSupervisedOptions, trainSupervised } from "../supervised/index.js";
import { checkOptions as checkSupervisedOptions } from "../supervised/options.js";
import { checkTeacher, samplerSource, type Teacher } from "./teacher.js";

/** How the teacher answers: as `evaluate` takes it, but for the temperature, 0.15. */
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
  /** What was asked, without the instructions. */
  readonly messages: readonly Message[];
  readonly text: string;
}

/** What `trainPromptDistillation` needs; the training is as for `trainSupervised`. */
export interface PromptDistillationOptions extends Omit<TrainSupervisedOptions, "data"> {
  /** What is asked: texts, rows with a `prompt` or `messages`, or a file of such rows. */
  readonly questions: string | readonly (string | TaskLike)[];
  /** What the teacher alone reads: a system message, or what makes its conversation of the question. */
  readonly instructions: string | ((messages: readonly Message[]) => readonly Message[]);
  /** Who answers. Its chat format and tokens need not be the student's. Default: the model itself. */
  readonly teacher?: Teacher | undefined;
  /** What of an answer is learnt; undefined leaves it out. Default: the whole text. */
  readonly learn?: ((answer: TeacherAnswer) => string | undefined) | undefined;
  readonly answering?: AnsweringOptions | undefined;
}

const OWN_KEYS = [
  ...(["questions", "instructions", "teacher", "learn", "answering"] as const),
  ...(["epochs", "maxSteps", "batchSize", "trainOn", "reduction", "maxLength"] as const),
  ...(["testSize", "testData", "pricePerMillionTokens"] as const),
] satisfies Exclude<keyof PromptDistillationOptions, keyof RunOptions>[];

const ANSWERING_KEYS: ReadonlySet<string> = new Set([
  ...(["renderer", "maxTokens", "temperature", "topK", "topP", "seed", "numSamples"] as const),
  ...(["concurrency", "exampleTimeoutMs", "onProgress"] as const),
] satisfies (keyof AnsweringOptions)[]);

const DEFAULT_TEMPERATURE = 0.15;

/**
 * Teaches a model to answer as if it had read long instructions. A teacher that reads them answers the questions, and the
 * student learns these answers behind the questions alone. Answers are kept in the run's folder as they come, in
 * `teacher/answers`: the same call goes on where it stopped. The rows that are learnt stand in `answers.jsonl`.
 */
export async function trainPromptDistillation(options: PromptDistillationOptions): Promise<FinishedRun> {
  checkOptions(options);
  const { questions, instructions, teacher, learn, answering, ...supervised } = options;
  // Before the teacher answers anything; what is learnt is not there yet.
  checkSupervisedOptions({ ...supervised, data: conversations([]) });
  const rows = await teacherAnswers(options);
  return trainSupervised({ ...supervised, data: conversations(rows) });
}

function checkOptions(options: PromptDistillationOptions): void {
  checkRunOptions(options, "trainPromptDistillation", OWN_KEYS);
  const { instructions, teacher = options.model, learn, answering = {} } = options;
  checkTeacher(teacher, "teacher");
  const isText = typeof instructions === "string" && instructions !== "";
  if (!isText && typeof instructions !== "function")
    throw wrongValue("instructions", "a text for the teacher, or a function of the messages", instructions);
  if (learn !== undefined && typeof learn !== "function")
    throw wrongValue("learn", "a function of an answer, as ({ text }) => text", learn);
  checkObject(answering, "answering");
  checkKeys(answering, ANSWERING_KEYS, "answering");
}

/** Lets the teacher answer what it has not yet. */
async function teacherAnswers(options: PromptDistillationOptions): Promise<readonly Conversation[]> {
  const { service, instructions, teacher = options.model, folder, seed = 0 } = options;
  const signal = preparationSignal(options);
  const { temperature = DEFAULT_TEMPERATURE, ...answering } = options.answering ?? {};
  const tasks = await readTasks(asTasks(options.questions), "questions", { field: "questions" });
  const sampler =
    typeof teacher === "string"
      ? await service.createSamplingClient({ ...samplerSource(teacher), signal })
      : teacher;
  const { examples } = await evaluate({
    seed,
    ...answering,
    temperature,
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
  const rows = learntRows(tasks, examples, options.learn);
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

/** Questions with what is learnt of their answers; what was cut off is left out. */
function learntRows(
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
