import { ValidationError } from "../../errors.js";
import type { ChatSample } from "../chat/index.js";
import { extractChoice, extractNumber, isSameNumber } from "./extract.js";
import type { Task } from "./tasks.js";

/** An answer that is to be graded. */
export interface Attempt {
  readonly task: Task;
  /** What the model said, without thoughts. */
  readonly text: string;
  /** The same with its tokens and logprobs. */
  readonly answer: ChatSample;
  /** Ends with the time of the example, and with the run. */
  readonly signal: AbortSignal;
}

/** How good an answer is: true or 1 if it is right, false or 0 if not, or between; undefined where nobody can tell. */
export type Reward = number | boolean | undefined;

/** A reward, with numbers that are averaged over all answers, and details that stand in the results. */
export interface Graded {
  readonly reward: Reward;
  readonly metrics?: Readonly<Record<string, number>> | undefined;
  readonly logs?: Readonly<Record<string, unknown>> | undefined;
}

/** Says how good an answer is. */
export type Grade = (attempt: Attempt) => Reward | Graded | Promise<Reward | Graded>;

const comparing = new WeakSet<Grade>();

/** Whether a grader can do nothing for a task without an answer. */
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
  // The results remember it by its name.
  return Object.defineProperty(grade, "name", { value: name });
}

/** Right is the task's answer to the letter, but for white space around it. */
export function exactMatch(): Grade {
  return comparison("exact", (text, expected) => text.trim() === expected);
}

/** Right is the task's number, wherever the answer says it: boxed, after `####`, after "answer is", in bold, or last. */
export function numberMatch(): Grade {
  return comparison("number", (text, expected) => {
    // Solutions of GSM8K end with their number.
    const right = expected.includes("####") ? (extractNumber(expected) ?? expected) : expected;
    const extracted = extractNumber(text) ?? "";
    return { reward: isSameNumber(extracted, right), logs: { extracted } };
  });
}

/** Right is the task's letter, wherever the answer says it: boxed, after "answer is", or as the last letter alone. */
export function choiceMatch(letters = "ABCD"): Grade {
  if (!/^[A-Z]+$/.test(letters)) {
    throw new ValidationError("letters", `letters must be capital letters such as ABCD, got ${letters}`);
  }
  return comparison(`choice ${letters}`, (text, expected) => {
    const extracted = extractChoice(text, letters) ?? "";
    return { reward: extracted === expected.toUpperCase(), logs: { extracted } };
  });
}
