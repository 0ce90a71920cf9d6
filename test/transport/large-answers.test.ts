import { gzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { AnswerTooLargeError, InternalServerError } from "../../src/errors.js";
import { SampleEventReader } from "../../src/wire/index.js";
import { clientForTest, REQUEST, ROUTE, serverForTest } from "./helpers.js";

const MIB = 2 ** 20;
const JSON_LIMIT = 64 * MIB;

/** A server that sends pieces of a megabyte as long as they are read. */
function endless(status: number, headers: Record<string, string> = {}) {
  const sent = { pieces: 0 };
  const piece = new Uint8Array(MIB).fill(32);
  const fetch = async () =>
    new Response(
      new ReadableStream<Uint8Array>({
        pull: (controller) => {
          sent.pieces += 1;
          controller.enqueue(piece);
        },
      }),
      { status, headers },
    );
  return { sent, fetch: fetch as unknown as typeof globalThis.fetch };
}

describe("an answer without end", () => {
  it("is read up to the limit of its kind, and not asked for again", async () => {
    const { sent, fetch } = endless(200);
    const client = clientForTest({ url: "http://localhost" }, { fetch });
    const asked = client.exchange({ ...REQUEST, expect: "json" });
    await expect(asked).rejects.toBeInstanceOf(AnswerTooLargeError);
    await expect(asked).rejects.toMatchObject({ limitBytes: JSON_LIMIT });
    await expect(asked).rejects.toThrow(`answered with more than ${JSON_LIMIT} bytes`);
    expect(sent.pieces).toBeLessThanOrEqual(68);
  });

  it("is not read at all where it says how long it is", async () => {
    const { sent, fetch } = endless(200, { "content-length": String(2 ** 40) });
    const client = clientForTest({ url: "http://localhost" }, { fetch });
    await expect(client.exchange(REQUEST)).rejects.toBeInstanceOf(AnswerTooLargeError);
    expect(sent.pieces).toBeLessThanOrEqual(3);
  });

  it("keeps its status where it is an error", async () => {
    const { sent, fetch } = endless(500);
    const client = clientForTest({ url: "http://localhost" }, { fetch, maxRetries: 0 });
    const error: unknown = await client.exchange(REQUEST).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(InternalServerError);
    expect(error).toMatchObject({ status: 500, body: "(more than 1048576 bytes)" });
    expect(sent.pieces).toBeLessThanOrEqual(5);
  });
});

it("an answer that is a gzip bomb is unpacked up to the limit", async () => {
  const server = await serverForTest();
  const bytes = gzipSync(new Uint8Array(JSON_LIMIT + 1), { level: 1 });
  server.on(ROUTE, { bytes, headers: { "content-encoding": "gzip", "content-type": "application/json" } });
  const asked = clientForTest(server).exchange({ ...REQUEST, expect: "json" });
  await expect(asked).rejects.toBeInstanceOf(AnswerTooLargeError);
  expect(server.requests).toHaveLength(1);
});

it("a stream's event without end is given up", () => {
  const reader = new SampleEventReader();
  const piece = "x".repeat(MIB);
  expect(() => {
    for (let pieces = 0; pieces < 100; pieces += 1) reader.push(piece);
  }).toThrow("an event of more than 67108864 characters");
});
