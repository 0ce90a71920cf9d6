import type { Message, Renderer } from "../../renderers/index.js";
import { COMMON_ROLES } from "../../renderers/renderer.js";
import { closestName } from "../../wire/index.js";
import type { RowProblem } from "./conversation.js";

/** Roles that at least one format has. */
const ALL_ROLES: readonly string[] = [...COMMON_ROLES, "developer", "tool_declare"];

/** Names that other programs give to the common roles. */
const OTHER_NAMES = new Map([
  ["ai", "assistant"],
  ["bot", "assistant"],
  ["chatbot", "assistant"],
  ["gpt", "assistant"],
  ["model", "assistant"],
  ["human", "user"],
  ["prompter", "user"],
  ["developer", "system"],
  ["function", "tool"],
]);

/** Messages with a role that the renderer's format does not have; without a renderer, that no format has. */
export function roleProblems(messages: readonly Message[], renderer?: Renderer): readonly RowProblem[] {
  const known = renderer?.roles ?? ALL_ROLES;
  return messages.flatMap(({ role }, index) => {
    if (known.includes(role)) return [];
    const field = `messages[${index}].role`;
    const meant = OTHER_NAMES.get(role.toLowerCase()) ?? closestName(role, known);
    const advice = meant === undefined ? `expected one of ${known.join(", ")}` : `did you mean ${meant}?`;
    const format = renderer === undefined ? "no model's format has" : "the model's format does not have";
    return [{ field, message: `${field} is ${JSON.stringify(role)}, which ${format}: ${advice}` }];
  });
}
