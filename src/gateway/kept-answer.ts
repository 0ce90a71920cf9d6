import { EngineInputError, type JsonConstraint } from "../local/engine/engine.js";
import { constraintGrammar } from "../local/engine/sampling/json/shape-grammar.js";
import { ConversationError, type PreparedAnswer } from "../renderers/prepare-answer.js";
import { constraintOf } from "../renderers/token-source.js";
import type { GatewayModel } from "./models.js";

/**
 * An answer as the model's server can keep it. A call that begins in the prompt needs no constraint; JSON and other calls
 * that cannot be kept are a `ConversationError`, so that they are asked for in words.
 */
export function keptAnswer(
  prepared: PreparedAnswer,
  { canConstrain }: Pick<GatewayModel, "canConstrain">,
): PreparedAnswer {
  const constraint = constraintOf(prepared);
  if (constraint === undefined) return prepared;
  const why = canConstrain
    ? refusalOf(constraint as JsonConstraint, prepared.stopTexts)
    : "this server cannot constrain what is sampled";
  if (why === undefined) return prepared;
  if (prepared.responseFormat !== undefined)
    throw new ConversationError("responseFormat", `must be text here: ${why}.`);
  if (prepared.prefillTokens.length > 0) return { ...prepared, shape: undefined };
  throw new ConversationError("toolChoice", `cannot be forced here: ${why}.`);
}

/** Why a constraint cannot be kept; undefined if it can. */
function refusalOf(constraint: JsonConstraint, stopTexts: readonly string[]): string | undefined {
  if (stopTexts.length > 0) return "stop texts might end it too early";
  try {
    constraintGrammar(constraint);
    return undefined;
  } catch (error) {
    if (error instanceof EngineInputError) return error.message;
    throw error;
  }
}
