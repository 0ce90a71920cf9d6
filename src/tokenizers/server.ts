import { readTar } from "../checkpoints/tar-reader.js";
import { APIError, messageOf, TinkerError } from "../errors.js";
import type { APIRequest, APIResponse } from "../transport/index.js";
import { boundedPieces, decodeText } from "./bounded-stream.js";
import { hasVocabulary, TOKENIZER_FILES, type TokenizerFileName, type TokenizerFiles } from "./files.js";

/** A Tinker server, which may have the files of its models. */
export interface TokenizerServer {
  readonly baseURL: string;
  /** Tells servers apart: an address, or the caller's `fetch`, behind which any server may be. */
  readonly server: string | typeof fetch;
  exchange(request: APIRequest): Promise<APIResponse>;
}

/** The files, or why the server gives none. */
export type ServerTokenizer =
  | { readonly files: TokenizerFiles; readonly refusal?: undefined }
  | { readonly refusal: string; readonly files?: undefined };

const MAX_UNPACKED_BYTES = 1 << 28;

/** Asks a server for a model's tokenizer. Any error counts as a no: servers without this endpoint answer in many ways. */
export async function downloadFromServer(
  server: TokenizerServer,
  modelName: string,
): Promise<ServerTokenizer> {
  let archive: Uint8Array;
  try {
    const query = { model: modelName };
    archive = (await server.exchange({ method: "GET", path: "/api/v1/tokenizer", query })).bytes;
  } catch (error) {
    if (!(error instanceof APIError)) throw error;
    return { refusal: `it answered with status ${error.status}` };
  }
  const isGzip = archive[0] === 0x1f && archive[1] === 0x8b;
  if (!isGzip) return { refusal: "it did not send a tar.gz archive" };
  try {
    const files = await filesIn(archive);
    return hasVocabulary(files) ? { files: Object.fromEntries(files) } : { refusal: "it has no vocabulary" };
  } catch (error) {
    throw new TinkerError(
      `The tokenizer of ${modelName} that ${server.baseURL} sent cannot be read: ${messageOf(error)}`,
      { cause: error },
    );
  }
}

async function filesIn(archive: Uint8Array): Promise<Map<TokenizerFileName, string>> {
  const files = new Map<TokenizerFileName, string>();
  for await (const { name, body } of readTar(unpacked(archive))) {
    const wanted = TOKENIZER_FILES.find((file) => file === name);
    if (wanted !== undefined) files.set(wanted, await decodeText(body));
  }
  return files;
}

function unpacked(archive: Uint8Array): AsyncGenerator<Uint8Array> {
  const stream = new Blob([archive as BlobPart]).stream().pipeThrough(new DecompressionStream("gzip"));
  return boundedPieces(stream, MAX_UNPACKED_BYTES, "it");
}
