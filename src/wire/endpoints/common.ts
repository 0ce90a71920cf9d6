import * as f from "../fields/index.js";
import { fromWireJson, toWireJson } from "../json-keys.js";
import { checkTinkerPath } from "../records/tinker-path.js";

const MAX_SHORT_TEXT = 256;
const MAX_METADATA_ENTRIES = 64;
const MAX_METADATA_CHARACTERS = 64 * 1024;
const MAX_TTL_SECONDS = 10 * 366 * 24 * 3600;
const MAX_PAGE = 1000;

export const textUpTo = (field: f.Field<string>, most: number): f.Field<string> =>
  f.bounded(field, `at most ${most} characters long`, (given) => given.length <= most);

export const shortText = textUpTo(f.text, MAX_SHORT_TEXT);
/** Also the empty one. */
export const anyShortText = textUpTo(f.anyText, MAX_SHORT_TEXT);

export const tags = f.bounded(
  f.list(f.anyText),
  `at most ${MAX_METADATA_ENTRIES} short texts`,
  (given) => given.length <= MAX_METADATA_ENTRIES && given.every((tag) => tag.length <= MAX_SHORT_TEXT),
);

/** The user's own; carried as it is. */
export const metadata = f.bounded(
  f.value<Readonly<Record<string, unknown>>>(
    "an object",
    (given) => typeof given === "object" && given !== null && !Array.isArray(given),
  ),
  `at most ${MAX_METADATA_ENTRIES} entries and ${MAX_METADATA_CHARACTERS / 1024} KiB`,
  (given) =>
    Object.keys(given).length <= MAX_METADATA_ENTRIES &&
    Object.keys(given).every((key) => key.length <= MAX_SHORT_TEXT) &&
    JSON.stringify(given).length <= MAX_METADATA_CHARACTERS,
);

export const ttlSeconds = f.bounded(
  f.positiveInteger,
  `at most ${MAX_TTL_SECONDS}, ten years`,
  (given) => given <= MAX_TTL_SECONDS,
);

/** A path of saved weights; what stands behind the scheme is the server's affair. */
export const tinkerPathText = f.customField((given, path): string => {
  checkTinkerPath(given, path);
  return given;
});

/** Number of a request among those of its model. */
export const seqId = f.integerFrom(1, 2 ** 31 - 1);

/** A number the client gives to a model or a sampler of its session. */
export const sessionSeqId = f.nonNegativeInteger;

/** The fields of a list that is cut by offset and limit. */
export const page = (limit: number) => ({
  limit: f.withDefault(
    f.inQuery(f.bounded(f.positiveInteger, `at most ${MAX_PAGE}`, (given) => given <= MAX_PAGE)),
    limit,
  ),
  offset: f.withDefault(f.inQuery(f.nonNegativeInteger), 0),
});

/** How a client says that its session ended. */
export const finishReason = f.oneOf("success", "errored", "interrupted");

export const accessScope = f.withDefault(f.oneOf("owned", "accessible"), "owned");

/** An object with free names, which are converted. */
export function wireJson<T>(expected: string): f.Field<T> {
  const isObject = f.value<T>(expected, (given) => typeof given === "object" && given !== null);
  return {
    ...isObject,
    read: (json, path) => fromWireJson<T>(isObject.read(json, path)),
    write: toWireJson,
  };
}
