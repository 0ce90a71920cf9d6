// One HTTP exchange on a socket of its own, written by hand: an HTTP client would refuse to send most of this.
import { connect } from "node:net";

const LONGEST_WAIT_MS = 40_000;

/**
 * @param {{ port: number }} address
 * @param {{ method: string, path: string, headers: [string, string][], body?: Uint8Array, manner?: string }} request
 * `manner`: how it is sent; all at once unless it says otherwise.
 * @returns status 0 when the server closed the connection without an answer
 */
export async function send(address, request) {
  const head = headOf(request);
  const body = request.body ?? new Uint8Array(0);
  const socket = connect({ port: address.port, host: "127.0.0.1", ...ownAddress() });
  const parts = [];
  let sentAt = performance.now();
  let firstByteAt;
  const ended = new Promise((resolve) => {
    socket.on("data", (part) => {
      firstByteAt ??= performance.now();
      parts.push(part);
      // Some headers keep the connection open: the answer is over when it says so.
      if (isComplete(parts)) socket.destroy();
    });
    socket.on("close", resolve);
    socket.on("error", () => {});
    socket.setTimeout(LONGEST_WAIT_MS, () => socket.destroy());
  });
  await manners[request.manner ?? "at-once"](socket, head, body);
  if (firstByteAt === undefined) sentAt = performance.now();
  await ended;
  const answer = parse(Buffer.concat(parts));
  return { ...answer, durationMs: Math.max(0, (firstByteAt ?? performance.now()) - sentAt) };
}

/** Wrong keys are slowed by address: these are sent from many, so that what is slow here is nothing else. */
function ownAddress() {
  if (process.platform !== "linux") return {};
  addresses = (addresses + 1) % 60_000;
  return { localAddress: `127.1.${addresses >> 8}.${1 + ((addresses & 0xff) % 254)}` };
}
let addresses = 0;

const pause = (delayMs) => new Promise((resolve) => setTimeout(resolve, delayMs));

const manners = {
  "at-once": async (socket, head, body) => {
    socket.write(Buffer.concat([head, body]));
  },
  /** Half of the body, and the end of the connection. */
  half: async (socket, head, body) => {
    socket.end(Buffer.concat([head, body.subarray(0, body.length >> 1)]));
  },
  /** Half of the body, and silence. */
  stall: async (socket, head, body) => {
    socket.write(Buffer.concat([head, body.subarray(0, body.length >> 1)]));
  },
  /** Half of the body, and a reset. */
  reset: async (socket, head, body) => {
    socket.write(Buffer.concat([head, body.subarray(0, body.length >> 1)]));
    await pause(20);
    socket.resetAndDestroy();
  },
  "half-head": async (socket, head) => {
    socket.write(head.subarray(0, head.length >> 1));
    await pause(50);
    socket.destroy();
  },
  trickle: async (socket, head, body) => {
    socket.write(head);
    const pieces = 8;
    for (let index = 0; index < pieces && !socket.destroyed; index += 1) {
      const [from, to] = [index, index + 1].map((at) => Math.floor((at * body.length) / pieces));
      socket.write(body.subarray(from, to));
      await pause(15);
    }
  },
};

function headOf({ method, path, headers, body }) {
  const lines = [`${method} ${path} HTTP/1.1`];
  const has = (name) => headers.some(([key]) => key.toLowerCase() === name);
  if (!has("host")) lines.push("Host: 127.0.0.1");
  for (const [name, value] of headers) lines.push(`${name}: ${value}`);
  if (body !== undefined && !has("content-length") && !has("transfer-encoding"))
    lines.push(`Content-Length: ${body.length}`);
  if (!has("connection")) lines.push("Connection: close");
  return Buffer.from(`${lines.join("\r\n")}\r\n\r\n`, "latin1");
}

function isComplete(parts) {
  const bytes = parts.length === 1 ? parts[0] : Buffer.concat(parts);
  const end = bytes.indexOf("\r\n\r\n");
  const head = bytes.subarray(0, Math.max(0, end)).toString("latin1");
  const length = /^content-length: (\d+)/im.exec(head)?.[1];
  return length !== undefined && bytes.length >= end + 4 + Number(length);
}

function parse(bytes) {
  const end = bytes.indexOf("\r\n\r\n");
  if (end < 0) return { status: 0, head: bytes.toString("latin1"), body: Buffer.alloc(0) };
  const head = bytes.subarray(0, end).toString("latin1");
  const status = Number(/^HTTP\/1\.\d (\d{3})/.exec(head)?.[1] ?? 0);
  const rest = bytes.subarray(end + 4);
  if (status === 100) return parse(rest);
  return { status, head, body: /transfer-encoding: chunked/i.test(head) ? unchunk(rest) : rest };
}

function unchunk(bytes) {
  const parts = [];
  for (let offset = 0; ; ) {
    const end = bytes.indexOf("\r\n", offset);
    const size = end < 0 ? Number.NaN : Number.parseInt(bytes.subarray(offset, end).toString("latin1"), 16);
    if (!(size > 0)) return Buffer.concat(parts);
    parts.push(bytes.subarray(end + 2, end + 2 + size));
    offset = end + 2 + size + 2;
  }
}
