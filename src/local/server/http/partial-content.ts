import { HttpError } from "./http-error.js";

/** Something that can be fetched in parts. */
export interface FileContent {
  readonly sizeBytes: number;
  /** Different for different bytes. */
  readonly etag: string;
  readonly modifiedAt: number;
  readonly headers: Readonly<Record<string, string>>;
  /** Bytes `start` up to, not including, `end`. */
  body(start: number, end: number): ReadableStream<Uint8Array>;
}

/** Answers GET and HEAD with the whole content or the one range that was asked for (RFC 9110, chapter 14). */
export function contentResponse(request: Request, content: FileContent): Response {
  const { sizeBytes, etag } = content;
  const lastModified = new Date(content.modifiedAt).toUTCString();
  const range = sameVersion(request.headers.get("if-range"), etag, lastModified)
    ? parseRange(request.headers.get("range"), sizeBytes)
    : undefined;
  const headers: Record<string, string> = {
    "accept-ranges": "bytes",
    etag,
    "last-modified": lastModified,
  };
  if (range === "unsatisfiable") {
    throw new HttpError(416, `The range lies beyond the ${sizeBytes} bytes of this download.`, {
      ...headers,
      "content-range": `bytes */${sizeBytes}`,
    });
  }
  const { start, end } = range ?? { start: 0, end: sizeBytes };
  if (range !== undefined) headers["content-range"] = `bytes ${start}-${end - 1}/${sizeBytes}`;
  return new Response(request.method === "HEAD" ? null : content.body(start, end), {
    status: range === undefined ? 200 : 206,
    headers: { ...content.headers, ...headers, "content-length": String(end - start) },
  });
}

/** A part is useful only to a client that has the other parts of the same version. */
function sameVersion(ifRange: string | null, etag: string, lastModified: string): boolean {
  return ifRange === null || ifRange === etag || ifRange === lastModified;
}

/** Undefined if the whole file is sent: without a range, with several, or with one in an unknown form. */
function parseRange(
  text: string | null,
  sizeBytes: number,
): { start: number; end: number } | "unsatisfiable" | undefined {
  const match = /^bytes=\s*(\d{0,15})-(\d{0,15})\s*$/i.exec(text ?? "");
  if (match === null) return undefined;
  const [, first = "", last = ""] = match;
  if (first === "") {
    if (last === "") return undefined;
    const start = Math.max(0, sizeBytes - Number(last));
    return start < sizeBytes ? { start, end: sizeBytes } : "unsatisfiable";
  }
  const start = Number(first);
  if (last !== "" && Number(last) < start) return undefined;
  if (start >= sizeBytes) return "unsatisfiable";
  return { start, end: last === "" ? sizeBytes : Math.min(Number(last) + 1, sizeBytes) };
}

/** Part of what an iterator yields; `close` is called once, however the reading ends. */
export function streamPart(
  parts: AsyncGenerator<Uint8Array>,
  start: number,
  end: number,
  close: () => Promise<void>,
): ReadableStream<Uint8Array> {
  let position = 0;
  const finish = async () => {
    await parts.return(undefined).catch(() => undefined);
    await close();
  };
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        while (position < end) {
          const { done, value } = await parts.next();
          if (done === true) throw new Error("The content is shorter than announced.");
          const piece = value.subarray(Math.max(0, start - position), end - position);
          position += value.length;
          if (piece.length === 0) continue;
          controller.enqueue(piece);
          if (position < end) return;
        }
        await finish();
        controller.close();
      } catch (error) {
        await finish();
        controller.error(error);
      }
    },
    cancel: finish,
  });
}

/** Closes what was opened for an answer that then has no body to do so: a refusal, or one to HEAD. */
export async function answering(close: () => Promise<void>, answer: () => Response): Promise<Response> {
  let response: Response | undefined;
  try {
    response = answer();
    return response;
  } finally {
    if ((response?.body ?? null) === null) await close();
  }
}
