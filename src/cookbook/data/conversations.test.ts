import { mkdtempSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { afterAll, describe, expect, it } from "vitest";
import { seededRandom } from "../../cli/quickstart/random.js";
import { TinkerError } from "../../errors.js";
import { textOf } from "../../renderers/index.js";
import { type ConversationsFrom, conversations } from "./conversations.js";

const folder = mkdtempSync(join(tmpdir(), "data-"));
afterAll(() => rmSync(folder, { recursive: true }));

const fixture = (name: string) =>
  fileURLToPath(new URL(`../../../test/fixtures/data/${name}`, import.meta.url));

function write(name: string, content: string | Uint8Array): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

const chat = (text: string) => ({ messages: [{ role: "user", content: text }] });
const lines = (...texts: string[]) => texts.map((text) => JSON.stringify(chat(text)));

async function texts(from: ConversationsFrom, indices?: readonly number[]): Promise<readonly string[]> {
  await using rows = await conversations(from).open();
  const read = await rows.read(indices ?? [...new Array(rows.length).keys()]);
  return read.map(({ messages }) => messages.map(textOf).join("|"));
}

async function places(from: ConversationsFrom): Promise<readonly string[]> {
  await using rows = await conversations(from).open();
  return [...new Array(rows.length).keys()].map((index) => rows.place(index));
}

describe("a JSONL file", () => {
  const [a, b, c] = lines("a", "b é 😀\u2028", "c");
  it.each([
    ["with a new line at the end", `${a}\n${b}\n${c}\n`],
    ["without one", `${a}\n${b}\n${c}`],
    ["of Windows", `${a}\r\n${b}\r\n${c}\r\n`],
    ["with a byte order mark", `\ufeff${a}\n${b}\n${c}`],
    ["with spaces around", `  ${a} \n\t${b}\t\n ${c}  `],
  ])("%s", async (name, content) => {
    const path = write("chats.jsonl", content);
    expect(await texts(path), name).toEqual(["a", "b é 😀\u2028", "c"]);
    expect(await places(path)).toEqual(["chats.jsonl line 1", "chats.jsonl line 2", "chats.jsonl line 3"]);
  });

  it("may have blank lines, which count as lines and not as rows", async () => {
    const path = write("blank.jsonl", `\n${a}\n\n \t\r\n${b}\n${c}\n\n`);
    expect(await texts(path)).toEqual(["a", "b é 😀\u2028", "c"]);
    expect(await places(path)).toEqual(["blank.jsonl line 2", "blank.jsonl line 5", "blank.jsonl line 6"]);
  });

  it.each([
    ["", 0],
    ["\n\n", 0],
    ["\ufeff", 0],
  ])("may be empty: %j", async (content, length) => {
    expect(await texts(write("empty.jsonl", content))).toHaveLength(length);
  });

  it("is read in any order, rows also twice", async () => {
    const path = write("order.jsonl", lines("0", "1", "2", "3", "4").join("\n"));
    expect(await texts(path, [4, 0, 1, 4, 3])).toEqual(["4", "0", "1", "4", "3"]);
    expect(await texts(path, [])).toEqual([]);
  });

  it("may be zipped", async () => {
    const path = write("chats.jsonl.gz", gzipSync(`${a}\n\n${b}`));
    expect(await texts(path)).toEqual(["a", "b é 😀\u2028"]);
    expect(await places(path)).toEqual(["chats.jsonl.gz line 1", "chats.jsonl.gz line 3"]);
  });

  it("may have lines longer than what is read at once, and many", async () => {
    const rows = Array.from({ length: 3000 }, (_, index) =>
      `${index} `.repeat(index % 1000 === 7 ? 400_000 : 50),
    );
    const path = write("long.jsonl", `${lines(...rows).join("\n")}\n`);
    expect(await texts(path)).toEqual(rows);
    expect(await texts(path, [2007, 7, 2999])).toEqual([rows[2007], rows[7], rows[2999]]);
  });

  it("names a wrong row by file, line and field", async () => {
    const path = write("wrong.jsonl", `${a}\n\n{"messages": [{"role": "user"}, {"role": 2}]}\n${c}`);
    await using rows = await conversations(path).open();
    await expect(rows.read([0, 1])).rejects.toMatchObject({
      field: "messages[0].content",
      message: "wrong.jsonl line 3: messages[0].content is missing (and 2 more in this row)",
    });
    expect(await rows.read([0, 2])).toHaveLength(2);
  });

  it("says what cannot be read", async () => {
    await expect(texts(join(folder, "none.jsonl"))).rejects.toThrow(
      `There is no file ${join(folder, "none.jsonl")}.`,
    );
    await expect(texts(folder)).rejects.toThrow(/cannot be read: EISDIR/);
    await expect(texts(write("cut.jsonl.gz", gzipSync(a!).subarray(0, -4)))).rejects.toThrow(
      /cut\.jsonl\.gz cannot be read: unexpected end of file/,
    );
    await expect(texts(write("plain.gz", a!))).rejects.toThrow(
      /plain\.gz cannot be read: incorrect header check/,
    );
    await expect(texts(write("wide.jsonl", Buffer.from(`\ufeff${a}`, "utf16le")))).rejects.toThrow(
      "wide.jsonl: the text is UTF-16, and must be UTF-8",
    );
  });

  it("that becomes shorter while it is open is an error, not an endless wait", async () => {
    const path = write("shrinking.jsonl", `${a}\n${b}`);
    await using rows = await conversations(path).open();
    truncateSync(path, 10);
    await expect(rows.read([1])).rejects.toThrow(
      "shrinking.jsonl line 2: the file became shorter since it was opened",
    );
  });
});

describe("several files", () => {
  it("follow each other", async () => {
    const first = write("first.jsonl", lines("a", "b").join("\n"));
    const second = write("second.jsonl.gz", gzipSync(lines("c").join("\n")));
    expect(await texts([first, second])).toEqual(["a", "b", "c"]);
    expect(await places([second, first])).toEqual([
      "second.jsonl.gz line 1",
      "first.jsonl line 1",
      "first.jsonl line 2",
    ]);
    await expect(texts([first, join(folder, "gone.jsonl")])).rejects.toThrow(/There is no file/);
  });
});

describe("a Parquet file", () => {
  it.each(["none", "snappy", "gzip", "zstd", "brotli", "lz4"])(
    "is read, compressed by %s",
    async (compression) => {
      await using rows = await conversations(fixture(`chats-${compression}.parquet`)).open();
      expect(rows.length).toBe(40);
      expect(rows.place(20)).toBe(`chats-${compression}.parquet row 21`);
      const [last, even, odd] = await rows.read([39, 16, 17]);
      expect(textOf(last!.messages[0]!)).toBe("What is 39 + 1? é 😀");
      expect(even).toEqual({
        messages: [
          { role: "user", content: "What is 16 + 1? é 😀" },
          { role: "assistant", content: "17" },
        ],
      });
      expect(odd!.messages[1]).toEqual({
        role: "assistant",
        content: "",
        toolCalls: [{ id: "c17", name: "add", arguments: '{"a": 1.0}' }],
      });
      expect([...(odd!.tools![0]!.parameters as Iterable<[string, unknown]>)].map(([key]) => key)).toEqual([
        "2",
        "1",
      ]);
    },
  );

  it("may have prompts and completions; a wrong row is named", async () => {
    expect(await texts(fixture("pairs.parquet"), [0])).toEqual(["1+1=|2"]);
    await expect(texts(fixture("pairs.parquet"))).rejects.toThrow(
      "pairs.parquet row 2: completion is missing",
    );
  });

  it.each(["none", "snappy", "gzip", "zstd", "brotli", "lz4"])(
    "that is damaged is an error or other rows, and nothing else goes wrong: %s",
    async (compression) => {
      const whole = readFileSync(fixture(`chats-${compression}.parquet`));
      const random = seededRandom(7);
      const somewhere = () => Math.floor(random() * whole.length);
      const damaged = Array.from({ length: 6 }, (_, index) => {
        if (index % 3 === 0) return whole.subarray(0, somewhere());
        const bytes = Buffer.from(whole);
        for (let flips = 0; flips < 8; flips += 1) bytes[somewhere()] = Math.floor(random() * 256);
        return bytes;
      });
      const outcomes = await Promise.all(
        damaged.map((bytes, index) =>
          texts(write(`damaged-${compression}-${index}.parquet`, bytes)).catch((error: unknown) => error),
        ),
      );
      const errors = outcomes.filter((outcome) => !Array.isArray(outcome));
      expect(errors.length).toBeGreaterThan(2);
      for (const error of errors) expect(error).toBeInstanceOf(TinkerError);
    },
  );

  it("says what cannot be read", async () => {
    await expect(texts(fixture("no-messages.parquet"))).rejects.toThrow(
      "no-messages.parquet has the columns text, label, none of which is known",
    );
    await expect(texts(write("fake.parquet", "no table"))).rejects.toThrow(
      /fake\.parquet cannot be read: it is damaged, or not a Parquet file/,
    );
    await expect(texts(join(folder, "gone.parquet"))).rejects.toThrow(/There is no file/);
  });
});

describe("rows in code", () => {
  it("may be a list, a generator, a stream or a set", async () => {
    const rows = ["a", "b", "c"].map(chat);
    async function* stream() {
      yield* rows;
    }
    const web = new ReadableStream({
      start: (controller) => {
        for (const row of rows) controller.enqueue(row);
        controller.close();
      },
    }) as unknown as AsyncIterable<(typeof rows)[number]>;
    for (const from of [rows, rows.values(), new Set(rows), stream(), web, Readable.from(rows)]) {
      expect(await texts(from)).toEqual(["a", "b", "c"]);
    }
    expect(await places(rows)).toEqual(["row 1", "row 2", "row 3"]);
    expect(await texts([])).toEqual([]);
  });

  it("are read once where they come one after the other, and that is said", async () => {
    for (const from of [[chat("a")].values(), Readable.from([chat("a")])]) {
      const source = conversations(from);
      await (await source.open()).close();
      await expect(source.open()).rejects.toThrow("can be read only once");
    }
    const again = conversations(new Set([chat("a")]));
    for (const _ of [1, 2]) expect((await again.open()).length).toBe(1);
  });

  it("are kept on disk where they are many", async () => {
    const image = new Uint8Array([0x89, 0x50]);
    async function* many() {
      for (let index = 0; index < 25_000; index++) {
        yield {
          messages: [
            {
              role: "user",
              content: [
                { type: "text", text: `n${index} é` },
                { type: "image", image },
              ],
            },
          ],
        };
      }
    }
    await using rows = await conversations(many()).open();
    expect(rows.length).toBe(25_000);
    const read = await rows.read([24_999, 0, 12_345]);
    expect(read.map(({ messages }) => textOf(messages[0]!))).toEqual(["n24999 é", "n0 é", "n12345 é"]);
    expect(read[0]!.messages[0]!.content[1]).toEqual({ type: "image", image: "data:image/png;base64,iVA=" });
    expect(rows.place(24_999)).toBe("row 25000");
    expect(readdirSync(tmpdir()).filter((name) => name.startsWith("tinkerts-rows-"))).toEqual([]);
  });

  it("that are wrong are named", async () => {
    await expect(texts([chat("a"), { messages: 3 }])).rejects.toThrow(
      "row 2: messages must be a list, got 3",
    );
    expect(() => conversations(3 as never)).toThrow("from must be a file, a list of files, or rows, got 3");
    async function* failing() {
      yield chat("a");
      throw new Error("the network is gone");
    }
    await expect(texts(failing())).rejects.toThrow("the network is gone");
  });
});
