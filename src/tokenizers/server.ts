import { readTar } from "../checkpoints/tar-reader.js";
import { APIError, messageOf, TinkerError } from "../errors.js";
import type { ApiRequest, ApiResponse } from "../transport/index.js";
import { hasVocabulary, TOKENIZER_FILES, type TokenizerFileName, type TokenizerFiles } from "./files.js";

/** A Tinker server, which may have the files of its models. */
export interface TokenizerServer {
  readonly baseURL: string;
  /** Tells servers apart: an address, or the caller's `fetch`, behind which any server may be. */
  readonly server: string | typeof fetch;
  exchange(request: ApiRequest): Promise<ApiResponse>;
}

/** The files, or why the server gives none. */
export type ServerAnswer =
  | { readonly files: TokenizerFiles; readonly refusal?: undefined }
  | { readonly refusal: string; readonly files?: undefined };

const MAX_UNPACKED_BYTES = 1 << 28;

/** Asks a server for a model's tokenizer. One that does not know the question refuses, whatever it answers. */
export async function downloadFromServer(server: TokenizerServer, modelName: string): Promise<ServerAnswer> {
  let archive: Uint8Array;
  try {
    const query = { model: modelName };
    archive = (await server.exchange({ method: "GET", path: "/api/v1/tokenizer", query })).bytes;
  } catch (error) {
    if (!(error instanceof APIError)) throw error;
    return { refusal: `it answered with status ${error.status}` };
  }
  const isGzip = archive[0] === 0x1f && archive[1] === 0x8b;
  if (!isGzip) return { refusal: "its answer is no archive" };
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
    if (wanted === undefined) continue;
    const decoder = new TextDecoder();
    let text = "";
    for await (const piece of body) text += decoder.decode(piece, { stream: true });
    files.set(wanted, text + decoder.decode());
  }
  return files;
}

async function* unpacked(archive: Uint8Array): AsyncGenerator<Uint8Array> {
  const stream = new Blob([archive as BlobPart]).stream().pipeThrough(new DecompressionStream("gzip"));
  // Not every browser can iterate over a stream.
  const reader = stream.getReader();
  let bytes = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      bytes += value.length;
      if (bytes > MAX_UNPACKED_BYTES) throw new TinkerError("it is larger than any tokenizer.");
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
