import { TinkerError } from "../errors.js";
import { networkReason } from "../transport/index.js";
import { boundedPieces, decodeText } from "./bounded-stream.js";
import { hasVocabulary, TOKENIZER_FILES, type TokenizerFileName, type TokenizerFiles } from "./files.js";
import type { TokenizerReference } from "./resolve-id.js";

export interface HubOptions {
  readonly endpoint: string;
  readonly token: string | undefined;
  readonly fetch: typeof fetch;
}

/** The largest published vocabularies have some 40 MB. */
const MAX_FILE_BYTES = 2 ** 28;
const MAX_ABOUT_BYTES = 2 ** 24;
const COMMIT = /^[0-9a-f]{40}$/;

/** The hub has no such repository, revision or file. */
export class HubNotFoundError extends TinkerError {}

// Not through the Hub library, which would add 280 KB in browsers for two requests.

/** Downloads a tokenizer's files, all of one commit. */
export async function downloadFromHub(
  { id, revision }: TokenizerReference,
  hub: HubOptions,
): Promise<{ commit: string; files: TokenizerFiles }> {
  const place = encodeURIComponent(revision);
  const about = await askHub(hub, `/api/models/${id}/revision/${place}`, id, revision);
  const { sha, siblings } = JSON.parse(await readText(about, MAX_ABOUT_BYTES)) as {
    sha?: unknown;
    siblings?: unknown;
  };
  if (typeof sha !== "string" || !COMMIT.test(sha) || !Array.isArray(siblings)) {
    throw new TinkerError(`${hub.endpoint} did not say which files ${id} has.`);
  }
  const there = new Set((siblings as { rfilename?: unknown }[]).map(({ rfilename }) => rfilename));
  if (!hasVocabulary(there)) {
    throw new TinkerError(
      `${id} on ${hub.endpoint} has no tokenizer.json and no tiktoken.model at revision ${revision}. Make a ` +
        "tokenizer.json of its tokenizer (transformers: AutoTokenizer.from_pretrained(id).save_pretrained(folder)) " +
        "and load that folder.",
    );
  }
  const files: { [Name in TokenizerFileName]?: string } = {};
  for (const name of TOKENIZER_FILES) {
    if (!there.has(name) || (name === "tiktoken.model" && there.has("tokenizer.json"))) continue;
    const file = await askHub(hub, `/${id}/resolve/${sha}/${name}`, id, revision);
    files[name] = await readText(file, MAX_FILE_BYTES);
  }
  return { commit: sha, files };
}

/** The text of an answer that is not larger than it may be, decompressed. */
async function readText(answer: Response, maxBytes: number): Promise<string> {
  return answer.body === null
    ? ""
    : decodeText(boundedPieces(answer.body, maxBytes, `What ${answer.url} sends`));
}

/** An answer of the hub about a model or a data set, or an error that says what to do. */
export async function askHub(
  hub: HubOptions,
  path: string,
  id: string,
  revision: string,
  kind: "model" | "data set" = "model",
): Promise<Response> {
  const url = `${hub.endpoint}${path}`;
  const headers: HeadersInit = hub.token === undefined ? {} : { authorization: `Bearer ${hub.token}` };
  let response: Response;
  try {
    response = await hub.fetch(url, { headers });
  } catch (error) {
    throw new TinkerError(`${url} could not be reached: ${networkReason(error).text}.`, { cause: error });
  }
  if (response.ok) return response;
  await response.body?.cancel();
  const { status } = response;
  if (status === 401 || status === 403) {
    const what =
      hub.token === undefined
        ? "Set HF_TOKEN to a token that may read it"
        : `The token in use may not read it: ask for access on the ${kind}'s page, or use another`;
    throw new TinkerError(
      `${id} on ${hub.endpoint} is gated, private or not there (status ${status}). ${what}.`,
    );
  }
  if (status === 404) {
    throw new HubNotFoundError(
      `${hub.endpoint} has no ${kind} ${id} with revision ${revision} (status 404).`,
    );
  }
  throw new TinkerError(`${url} answered with status ${status}.`);
}
