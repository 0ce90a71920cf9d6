import type { Shape } from "../fields/fields.js";
import { camelToSnake } from "../json-keys.js";
import { LOSS_INPUT_DTYPES, LOSSES } from "../training/losses.js";
import { endpoints } from "./index.js";

/** Parts of a datum, which has a codec of its own. */
const DATUM_NAMES = ["modelInput", "lossFnInputs", "expectedTokens", "sparseCrowIndices", "sparseColIndices"];
/** Names a stored loss in the settings of a pass. */
const LOSS_ID = "lossId";

/** Where our methods take a field apart from the message it travels in. */
const USERS_PATHS: ReadonlyArray<readonly [wirePath: RegExp, usersPath: string]> = [
  [/\b(?:lora_config|adam_params|optimizer_params|optim_params)\./g, ""],
  [/\boptimizer_config\b/g, "optimizer"],
  [/\bloss_fn_config\b/g, "config"],
  [/\bprompt_logprobs\b(?!_)/g, "includePromptLogprobs"],
];

let wireNames: ReadonlyMap<string, string> | undefined;

/** The camelCase name of every field of the protocol, by the name it has on the wire; of several words only. */
export function fieldNames(): ReadonlyMap<string, string> {
  if (wireNames !== undefined) return wireNames;
  const names = new Set<string>([...DATUM_NAMES, LOSS_ID, ...Object.keys(LOSS_INPUT_DTYPES)]);
  for (const { config } of Object.values(LOSSES)) for (const key of Object.keys(config)) names.add(key);
  for (const { request } of Object.values(endpoints)) collect(request.shape, names);
  wireNames = new Map(
    [...names].map((name) => [camelToSnake(name), name] as const).filter(([wire, name]) => wire !== name),
  );
  return wireNames;
}

function collect(shape: Shape, names: Set<string>): void {
  for (const [name, field] of Object.entries(shape)) {
    names.add(name);
    if ("shape" in field) collect(field.shape as Shape, names);
  }
}

/** A server's sentence with the fields named as users of this SDK write them: `rank` for `lora_config.rank`. */
export function inUsersWords(text: string): string {
  if (!text.includes("_")) return text;
  let said = text;
  for (const [wirePath, usersPath] of USERS_PATHS) said = said.replace(wirePath, usersPath);
  return said.replace(/\b[a-z]+(?:_[a-z0-9]+)+\b/g, (word) => fieldNames().get(word) ?? word);
}

/** Our own sentence with the fields named as they are on the wire, for clients of any language; quotes and paths stay as they are. */
export function inWireWords(text: string): string {
  return text.replace(/"[^"]*"|tinker:\/\/\S+|\b[a-z]+(?:[A-Z][a-z0-9]*)+\b/g, (word) => {
    const wire = camelToSnake(word);
    return fieldNames().has(wire) ? wire : word;
  });
}
