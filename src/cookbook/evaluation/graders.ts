import { ValidationError } from "../../errors.js";
import { wrongField } from "../../wire/index.js";
import type { ChatSample } from "../chat/index.js";
import { CHOICE_LETTERS, extractChoice, extractNumber, isSameNumber } from "./extract.js";
import type { Task } from "./tasks.js";

/** An answer to be graded. */
export interface Attempt {
  readonly task: Task;
  /** Text of the answer, without thoughts. */
  readonly text: string;
  /** Sampled answer with its tokens and logprobs. */
  readonly answer: ChatSample;
  /** Aborted when the time of the example is over, or when the run ends. */
  readonly signal: AbortSignal;
}

/**
 * Quality of an answer: true or 1 if it is right, false or 0 if not, or a value in between; undefined if it cannot be
 * graded.
 */
export type Reward = number | boolean | undefined;

/** A reward, with metrics that are averaged over all answers and details for the results. */
export interface Graded {
  readonly reward: Reward;
  readonly metrics?: Readonly<Record<string, number>> | undefined;
  readonly logs?: Readonly<Record<string, unknown>> | undefined;
}

/** Grades an answer. */
export type Grade = (attempt: Attempt) => Reward | Graded | Promise<Reward | Graded>;

const comparing = new WeakSet<Grade>();

/** Whether a grader needs the task's answer. */
export function needsAnswers(grade: Grade): boolean {
  return comparing.has(grade);
}

/** A grader that compares with the task's answer. */
function comparison(name: string, compare: (text: string, expected: string) => Reward | Graded): Grade {
  const grade: Grade = ({ task: { id, answer }, text }) => {
    if (answer === undefined) throw new ValidationError("answer", `task ${id} has no answer to compare with`);
    return compare(text, answer.trim());
  };
  comparing.add(grade);
  // The results identify the grader by its name.
  return Object.defineProperty(grade, "name", { value: name });
}

/** Right if the text equals the task's answer, ignoring surrounding white space. */
export function exactMatch(): Grade {
  return comparison("exact", (text, expected) => text.trim() === expected);
}

/** Right if the task's number is the answer's: boxed, after `####`, after "answer is", in bold, or last. */
export function numberMatch(): Grade {
  return comparison("number", (text, expected) => {
    // Solutions of GSM8K end with their number.
    const right = expected.includes("####") ? (extractNumber(expected) ?? expected) : expected;
    const extracted = extractNumber(text) ?? "";
    return { reward: isSameNumber(extracted, right), logs: { extracted } };
  });
}

/** Right if the task's letter is the answer's: boxed, after "answer is", or the last letter that stands alone. */
export function choiceMatch(letters = CHOICE_LETTERS): Grade {
  if (!/^[A-Z]+$/.test(letters)) {
    throw wrongField("letters", `must be capital letters such as ABCD, got ${letters}`);
  }
  return comparison(`choice ${letters}`, (text, expected) => {
    const extracted = extractChoice(text, letters) ?? "";
    return { reward: extracted === expected.toUpperCase(), logs: { extracted } };
  });
}
