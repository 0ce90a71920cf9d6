import { describe, expect, it } from "vitest";
import { encodeSampleEvent, KEEP_ALIVE_EVENT, type SampleEvent, SampleEventReader } from "./sample-events.js";

const events: SampleEvent[] = [
  { type: "token", sequence: 0, position: 0, token: 7, text: "a\nb: 🙂", logprob: -0.5 },
  {
    type: "token",
    sequence: 2,
    position: 1,
    token: 8,
    text: undefined,
    logprob: -1,
    topk: [[8, -1]],
    stopReason: "stop",
  },
  { type: "done", sequence: 0, stopReason: "length", totalTokens: 2, result: undefined },
  { type: "error", error: "no", category: "user" },
];

describe("events of a stream", () => {
  it("are read back, however the text is cut, with any line ends, comments between them", () => {
    const wire = events.map((event) => KEEP_ALIVE_EVENT + encodeSampleEvent(event)).join("");
    for (const lineEnd of ["\n", "\r\n", "\r"]) {
      const text = wire.replaceAll("\n", lineEnd);
      for (let length = 1; length < 40; length += 1) {
        const reader = new SampleEventReader();
        const read: SampleEvent[] = [];
        for (let at = 0; at < text.length; at += length)
          read.push(...reader.push(text.slice(at, at + length)));
        expect(read).toEqual(events);
      }
    }
  });

  it("of other kinds are passed over", () => {
    expect(new SampleEventReader().push('event: ping\ndata: {"a":1}\n\nid: 3\n\ndata: {}\n\n')).toEqual([]);
  });

  it.each([
    ["event: token\ndata: {\n\n", /^The server's stream cannot be read: /],
    ["event: token\ndata: []\n\n", /the data of token is not an object/],
    ['event: token\ndata: {"index":0}\n\n', /token_id must be a whole number, got undefined/],
    ['event: done\ndata: {"total_tokens":-1}\n\n', /total_tokens must be a whole number, got -1/],
  ])("that say nothing sensible are refused: %j", (text, message) => {
    expect(() => new SampleEventReader().push(text)).toThrow(message);
  });
});
