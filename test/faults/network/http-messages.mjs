// Cuts the byte stream of a connection into HTTP/1.1 messages, as far as a proxy has to know them.

const HEAD_END = Buffer.from("\r\n\r\n");

/** Reads whole messages from a socket, one after the other. */
export class MessageReader {
  #socket;
  #isResponse;
  #buffered = Buffer.alloc(0);
  #ended = false;
  #wake = () => {};

  constructor(socket, kind) {
    this.#socket = socket;
    this.#isResponse = kind === "response";
    socket.on("data", (bytes) => {
      this.#buffered = Buffer.concat([this.#buffered, bytes]);
      this.#wake();
    });
    for (const event of ["end", "close", "error"]) {
      socket.on(event, () => {
        this.#ended = true;
        this.#wake();
      });
    }
  }

  /** The next message, or undefined when the connection ended before it was whole. */
  async next() {
    for (;;) {
      const message = parse(this.#buffered, this.#isResponse);
      if (message !== undefined) {
        this.#buffered = this.#buffered.subarray(message.bytes.length);
        return message;
      }
      if (this.#ended || this.#socket.destroyed) return undefined;
      await new Promise((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}

function parse(buffer, isResponse) {
  const headLength = buffer.indexOf(HEAD_END);
  if (headLength < 0) return undefined;
  const [startLine, ...lines] = buffer.toString("latin1", 0, headLength).split("\r\n");
  const headers = new Map(
    lines.map((line) => {
      const at = line.indexOf(":");
      return [line.slice(0, at).toLowerCase(), line.slice(at + 1).trim()];
    }),
  );
  const bodyAt = headLength + HEAD_END.length;
  const status = isResponse ? Number(startLine.split(" ")[1]) : undefined;
  const body =
    headers.get("transfer-encoding") === "chunked"
      ? chunkedBody(buffer, bodyAt)
      : sizedBody(
          buffer,
          bodyAt,
          status === 204 || status === 304 ? 0 : Number(headers.get("content-length") ?? 0),
        );
  if (body === undefined) return undefined;
  const [method, path] = isResponse ? [] : startLine.split(" ");
  return {
    startLine,
    status,
    method,
    path,
    headers,
    bodyAt,
    body: body.content,
    bytes: buffer.subarray(0, body.end),
  };
}

function sizedBody(buffer, from, length) {
  if (buffer.length < from + length) return undefined;
  return { content: buffer.subarray(from, from + length), end: from + length };
}

function chunkedBody(buffer, from) {
  const pieces = [];
  for (let at = from; ; ) {
    const lineEnd = buffer.indexOf("\r\n", at);
    if (lineEnd < 0) return undefined;
    const size = Number.parseInt(buffer.toString("latin1", at, lineEnd), 16);
    const end = lineEnd + 2 + size + 2;
    if (buffer.length < end) return undefined;
    if (size === 0) return { content: Buffer.concat(pieces), end };
    pieces.push(buffer.subarray(lineEnd + 2, lineEnd + 2 + size));
    at = end;
  }
}

/** The bytes of an answer of our own. */
export function answerBytes(status, headers, body) {
  const content = Buffer.from(body);
  const lines = Object.entries({ ...headers, "content-length": content.length }).map(
    ([name, value]) => `${name}: ${value}\r\n`,
  );
  return Buffer.concat([
    Buffer.from(`HTTP/1.1 ${status} ${status}\r\n${lines.join("")}\r\n`, "latin1"),
    content,
  ]);
}
