import {
  anyText,
  bounded,
  customField,
  type Field,
  inQuery,
  integerFrom,
  list,
  nonNegativeInteger,
  oneOf,
  positiveInteger,
  text,
  value,
  withDefault,
} from "../fields/fields.js";
import { fromWireJson, toWireJson } from "../json-keys.js";
import { checkTinkerPath } from "../records/tinker-path.js";

const MAX_SHORT_TEXT = 256;
const MAX_METADATA_ENTRIES = 64;
const MAX_METADATA_CHARACTERS = 64 * 1024;
const MAX_TTL_SECONDS = 10 * 366 * 24 * 3600;
const MAX_PAGE = 1000;

export const textUpTo = (field: Field<string>, most: number): Field<string> =>
  bounded(field, `at most ${most} characters long`, (given) => given.length <= most);

export const shortText = textUpTo(text, MAX_SHORT_TEXT);
/** Also the empty one. */
export const anyShortText = textUpTo(anyText, MAX_SHORT_TEXT);

export const tags = bounded(
  list(anyText),
  `at most ${MAX_METADATA_ENTRIES} short texts`,
  (given) => given.length <= MAX_METADATA_ENTRIES && given.every((tag) => tag.length <= MAX_SHORT_TEXT),
);

/** The user's own; carried as it is. */
export const metadata = bounded(
  value<Readonly<Record<string, unknown>>>(
    "an object",
    (given) => typeof given === "object" && given !== null && !Array.isArray(given),
  ),
  `at most ${MAX_METADATA_ENTRIES} entries and ${MAX_METADATA_CHARACTERS / 1024} KiB`,
  (given) =>
    Object.keys(given).length <= MAX_METADATA_ENTRIES &&
    Object.keys(given).every((key) => key.length <= MAX_SHORT_TEXT) &&
    JSON.stringify(given).length <= MAX_METADATA_CHARACTERS,
);

export const ttlSeconds = bounded(
  positiveInteger,
  `at most ${MAX_TTL_SECONDS}, ten years`,
  (given) => given <= MAX_TTL_SECONDS,
);

/** A path of saved weights; what stands behind the scheme is the server's affair. */
export const tinkerPathText = customField((given, path): string => {
  checkTinkerPath(given, path);
  return given;
});

/** Number of a request among those of its model. */
export const seqId = integerFrom(1, 2 ** 31 - 1);

/** A number the client gives to a model or a sampler of its session. */
export const sessionSeqId = nonNegativeInteger;

/** The fields of a list that is cut by offset and limit. */
export const page = (limit: number) => ({
  limit: withDefault(
    inQuery(bounded(positiveInteger, `at most ${MAX_PAGE}`, (given) => given <= MAX_PAGE)),
    limit,
  ),
  offset: withDefault(inQuery(nonNegativeInteger), 0),
});

/** How a client says that its session ended. */
export const finishReason = oneOf("success", "errored", "interrupted");

export const accessScope = withDefault(oneOf("owned", "accessible"), "owned");

/** An object whose names are converted, whatever they are. */
export function wireJson<T>(expected: string): Field<T> {
  const isObject = value<T>(expected, (given) => typeof given === "object" && given !== null);
  return {
    ...isObject,
    read: (json, path) => fromWireJson<T>(isObject.read(json, path)),
    write: toWireJson,
  };
}
