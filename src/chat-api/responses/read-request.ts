import type { Refuse } from "../lenience.js";
import { checkBody, type JsonFields, ParamError } from "../param-error.js";
import { type History, inputItems } from "./history.js";
import { clientTools, readableItems } from "./left-out.js";
import { inputSchema, refuseExtras, responseSchema, withKnownChoice } from "./request.js";

/** Reads a request for a response, with the stored conversation before it. */
export function readResponseRequest(body: JsonFields, history: History, refuse: Refuse) {
  const { input, ...given } = body;
  refuseExtras(given, refuse);
  const known = withKnownChoice({ ...given, tools: clientTools(given["tools"], "tools", refuse) }, refuse);
  const request = checkBody(known, responseSchema);
  const before = history.itemsUntil(request.previous_response_id ?? undefined);
  const added = history.resolved(readableItems(inputItems(input), refuse), refuse);
  const items = [before, added].flatMap((part) => checkBody({ input: part }, inputSchema).input);
  if (items.length === 0 && !request.instructions)
    throw new ParamError(400, "missing_required_parameter", "input must not be empty.", "input");
  return { given, request, added, items };
}
