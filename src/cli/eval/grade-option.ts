import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { ServiceClient } from "tinkerts";
import { choiceMatch, exactMatch, type Grade, judge, numberMatch } from "../../cookbook/evaluation/index.js";
import { messageOf } from "../../errors.js";
import { UsageError } from "../context.js";
import { namedModel, samplingSource } from "../named-model.js";
import { defaultExportOf } from "../own-module.js";

/** Options that choose how answers are graded. */
export interface GradeOptions {
  readonly grade?: string;
  readonly letters: string;
  readonly judgeModel?: string;
  readonly rubric?: string;
}

interface Grading {
  readonly grade: Grade;
  readonly settings: Readonly<Record<string, unknown>>;
}

const NAMED_WAYS = ["exact", "number", "choice", "judge"];
const WAYS = `${NAMED_WAYS.join(", ")}, or a module of your own such as ./my-grade.mjs`;

/** Refuses impossible combinations before anything is opened. */
export function checkGrade({ grade: way, judgeModel, rubric }: GradeOptions): void {
  if (way === undefined) throw new UsageError(`how are answers graded? Give --grade ${WAYS}`);
  if (!NAMED_WAYS.includes(way) && !/[./\\]/.test(way)) {
    throw new UsageError(`--grade ${way} is not known: give ${WAYS}`);
  }
  if (way === "judge" && judgeModel === undefined) {
    throw new UsageError(
      "who judges? Give --judge-model NAME: best one that is better than the model itself",
    );
  }
  if (way !== "judge" && (judgeModel !== undefined || rubric !== undefined)) {
    throw new UsageError("--judge-model and --rubric are for --grade judge");
  }
}

/** The grader that the options choose, and the settings that its results depend on. */
export async function readGrade(
  { grade: way, letters, judgeModel, rubric }: GradeOptions,
  service: ServiceClient,
): Promise<Grading> {
  switch (way) {
    case "exact":
      return { grade: exactMatch(), settings: {} };
    case "number":
      return { grade: numberMatch(), settings: {} };
    case "choice":
      return { grade: choiceMatch(letters), settings: {} };
    case "judge": {
      const sampler = await service.createSamplingClient(samplingSource(await namedModel(judgeModel)));
      return { grade: judge({ sampler, rubric }), settings: { judgeModel, rubric } };
    }
    default:
      return await readModule(way!);
  }
}

/** Loads a module whose default export is the grader. */
async function readModule(file: string): Promise<Grading> {
  const source = await readFile(file, "utf8").catch((error: unknown) => {
    throw new UsageError(`--grade cannot be read: ${messageOf(error)}`);
  });
  const grade = await defaultExportOf(file);
  if (typeof grade !== "function") {
    throw new UsageError(
      `${file} must export a grader as its default: export default ({ text, task }) => text.includes(task.answer)`,
    );
  }
  // A file with other content is another grader.
  const version = createHash("sha256").update(source).digest("hex").slice(0, 12);
  return { grade: grade as Grade, settings: { grade: file, gradeVersion: version } };
}
