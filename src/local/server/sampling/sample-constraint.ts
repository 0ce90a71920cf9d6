import type { AnswerShape } from "../../../renderers/answer-shape.js";
import { isRecord } from "../../../wire/reading.js";
import type { SampleConstraint } from "../../../wire/sampling/sample-constraint.js";
import { EngineInputError, type JsonConstraint } from "../../engine/engine.js";
import { checkConstraintSize } from "../../engine/sampling/json/schema-grammar.js";
import { invalid } from "../http/http-error.js";
import type { SampleJob } from "./sample-call.js";

const MAX_REPETITIONS = 1000;
/** Texts that a text may not contain; formats have a few short ones. */
const MAX_SIGNS = 100;
const MAX_SIGN_LENGTH = 200;

/** A call whose samples must be as a client says. Whether its schema can be kept to is for the engine to say. */
export function constrained(call: SampleJob["call"], given: SampleConstraint | undefined): SampleJob["call"] {
  if (given === undefined) return call;
  const constraint = given as JsonConstraint;
  try {
    checkConstraintSize(constraint);
  } catch (error) {
    if (error instanceof EngineInputError) throw invalid("constraint", `cannot be used: ${error.message}`);
    throw error;
  }
  if (given.type === "shape" && !isShape(given.shape))
    throw invalid("constraint.shape", "must be the shape of an answer, as prepareAnswer gives it");
  if (constraint.type === "shape" && canBeEmpty(constraint.shape))
    throw invalid("constraint.shape", "must not be met by an empty answer");
  return { ...call, constraint };
}

/** Whether a value is an `AnswerShape`; it is not deeper than a constraint may be. */
function isShape(given: unknown): boolean {
  if (!isRecord(given)) return false;
  const { before, asText, asJson, behind, separator, tool, max } = given;
  switch (given["type"]) {
    case "sign":
    case "plain":
      return isText(given["text"]);
    case "json":
      return tool === undefined || isText(tool);
    case "text":
      return isSigns(given["without"]);
    case "members":
      return (
        [before, asText, asJson, behind, separator, tool].every(isText) &&
        isListOf(given["texts"], isText) &&
        isSigns(given["without"])
      );
    case "sequence":
      return isListOf(given["parts"], isShape);
    case "choice":
      return isListOf(given["options"], isShape);
    case "repeat":
      return isShape(given["item"]) && !canBeEmpty(given["item"] as AnswerShape) && isCount(max);
    default:
      return false;
  }
}

/** Whether a shape may be met by nothing at all: repeated, it would have no end. */
function canBeEmpty(shape: AnswerShape): boolean {
  switch (shape.type) {
    case "sign":
    case "plain":
      return shape.text === "";
    case "json":
      return false;
    case "text":
    case "members":
    case "repeat":
      return true;
    case "sequence":
      return shape.parts.every(canBeEmpty);
    case "choice":
      return shape.options.some(canBeEmpty);
    default:
      return shape satisfies never;
  }
}

const isCount = (given: unknown): boolean =>
  given === undefined ||
  (Number.isSafeInteger(given) && Number(given) >= 0 && Number(given) <= MAX_REPETITIONS);
const isText = (given: unknown): boolean => typeof given === "string";
const isSigns = (given: unknown): boolean =>
  isListOf(given, (each) => isText(each) && each !== "" && String(each).length <= MAX_SIGN_LENGTH) &&
  (given as unknown[]).length <= MAX_SIGNS;

function isListOf(given: unknown, isOne: (each: unknown) => boolean): boolean {
  return Array.isArray(given) && given.every(isOne);
}
