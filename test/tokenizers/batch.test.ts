import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { BatchEncoder } from "../../src/tokenizers/batch-encoder.js";
import { startBatchThread } from "../../src/tokenizers/batch-thread.js";
import { createTextTokenizer } from "../../src/tokenizers/files.js";
import { loadTokenizer } from "../../src/tokenizers/index.js";
import { readFiles, readTexts } from "./fixtures.js";

const compiled = fileURLToPath(new URL("../../dist/bundle/tokenizer-files.js", import.meta.url));

/** How often the event loop came round meanwhile. */
async function turnsDuring(work: () => Promise<unknown>): Promise<number> {
  let turns = 0;
  const timer = setInterval(() => (turns += 1), 1);
  await work();
  clearInterval(timer);
  return turns;
}

describe("encodeBatch", () => {
  const texts = readTexts();

  it("gives what encode gives, for no texts, a few and many", async () => {
    const tokenizer = await loadTokenizer("tinkerts/nano");
    expect(await tokenizer.encodeBatch([])).toEqual([]);
    const some = texts.slice(0, 700);
    expect(await tokenizer.encodeBatch(some)).toEqual(some.map((text) => tokenizer.encode(text)));
    const many = Array.from({ length: 7_500 }, (_, index) => `${index}: ${texts[index % texts.length]}`);
    const encoded = await tokenizer.encodeBatch(many, { addSpecialTokens: false });
    expect(encoded).toHaveLength(many.length);
    expect(many.join("").length).toBeGreaterThan(250_000);
    for (let index = 0; index < many.length; index += 97) {
      expect(encoded[index]).toEqual(tokenizer.encode(many[index]!, { addSpecialTokens: false }));
    }
  });

  it("works in a thread, so that heartbeats and polls go on", async () => {
    expect(existsSync(compiled), "npm run build makes the module that the thread imports").toBe(true);
    const tokenizer = await loadTokenizer("tinkerts/nano");
    const all = texts.join(" ");
    const long = Array.from({ length: 6 }, (_, index) => `${index} ${all.slice(0, 50_000)}`);
    const expected = long.map((text) => tokenizer.encode(text));
    let encoded: number[][] = [];
    const turns = await turnsDuring(async () => {
      encoded = await tokenizer.encodeBatch(long);
    });
    expect(encoded).toEqual(expected);
    // One text after the other in this thread would let it come round once for each of them at most.
    expect(turns).toBeGreaterThan(long.length);
  });

  it("takes one long text to the thread too", async () => {
    const tokenizer = await loadTokenizer("tinkerts/nano");
    const text = "word 12 ".repeat(20_000);
    let encoded: number[][] = [];
    const turns = await turnsDuring(async () => {
      encoded = await tokenizer.encodeBatch([text]);
    });
    expect(encoded).toEqual([tokenizer.encode(text)]);
    expect(turns).toBeGreaterThan(2);
  });

  it("serves several batches at once from one thread", async () => {
    const tokenizer = await loadTokenizer("tinkerts/nano");
    const batches = [0, 1, 2].map((index) =>
      Array.from({ length: 130 }, () => `${index} words `.repeat(220)),
    );
    const encoded = await Promise.all(batches.map((batch) => tokenizer.encodeBatch(batch)));
    for (const [index, batch] of batches.entries()) {
      expect(tokenizer.decode(encoded[index]![129]!)).toBe(batch[129]);
    }
  });

  it("does without a thread where none can be had, a slice at a time", async () => {
    const { "tokenizer.json": tokenizerJson } = readFiles("nano");
    const text = createTextTokenizer({ "tokenizer.json": tokenizerJson! }, "nano");
    const batch = Array.from({ length: 300 }, (_, index) => `${index} words `.repeat(110));
    let turns = 0;
    const timer = setInterval(() => {
      turns += 1;
    }, 1);
    // Without files, the thread cannot make its tokenizer.
    const encoded = await new BatchEncoder(text, {}).encode(batch, {});
    clearInterval(timer);
    expect(encoded[299]).toEqual(text.encode(batch[299]!));
    expect(turns).toBeGreaterThan(5);
  });

  it("gives up a text that takes too long, in a thread of its own", async () => {
    const { "tokenizer.json": tokenizerJson } = readFiles("nano");
    const thread = (await startBatchThread({ "tokenizer.json": tokenizerJson! }, 1))!;
    expect(thread.hasEnded).toBe(false);
    await expect(thread.encode(["1".repeat(2_000_000)], {})).rejects.toThrow("took longer than 0.001 s");
    expect(thread.hasEnded).toBe(true);
  });

  it("lets the process end when the work is done", () => {
    const module = new URL("../../dist/bundle/tokenizers.js", import.meta.url).href;
    const program = `
      const { loadTokenizer } = await import(${JSON.stringify(module)});
      const tokenizer = await loadTokenizer("tinkerts/nano");
      const batch = await tokenizer.encodeBatch(Array.from({ length: 300 }, () => "a ".repeat(500)));
      console.log(batch.length);`;
    const output = execFileSync(process.execPath, ["--input-type=module", "-e", program], {
      encoding: "utf8",
    });
    expect(output.trim()).toBe("300");
  });
});
