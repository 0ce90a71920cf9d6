import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { afterAll, expect, it } from "vitest";
import { messageOf, TinkerError } from "../../errors.js";
import { type ConversationsOptions, conversations } from "./conversations.js";
import { readAll } from "./rows.js";

const folder = mkdtempSync(join(tmpdir(), "broken-"));
afterAll(() => rmSync(folder, { recursive: true }));

const fixture = (name: string) =>
  readFileSync(fileURLToPath(new URL(`../../../test/fixtures/data/formats/${name}`, import.meta.url)));
const whole = fixture("pandas.parquet");
const row = (fields: object) => `${JSON.stringify(fields)}\n`;
const turn = (from: unknown, value: unknown) => row({ conversations: [{ from, value }] });
const pair = row({ prompt: "a", completion: "b" });
const utf16 = (text: string) => Buffer.from(`\ufeff${text}`, "utf16le");

/** Files as people have them by mistake: the name, the content, and what is said. */
const BROKEN: readonly (readonly [string, string | Uint8Array, RegExp, ConversationsOptions?])[] = [
  // CSV and TSV.
  [
    "quote.csv",
    'prompt,completion\n"a,b\n',
    /^quote\.csv: row 1 opens a cell with a quote that is never closed$/,
  ],
  ["behind.csv", 'prompt,completion\nx,y\n"a" b,c\n', /row 2 has text behind a closing quote/],
  ["cells.csv", "prompt,completion\na, b and c,d\n", /row 1 has more cells than the 2 columns/],
  ["ragged.tsv", "prompt\tcompletion\na\tb\tc\n", /row 1 has more cells than the 2 columns/],
  ["unknown.csv", "text,label\na,1\n", /has the columns text, label, none of which is known/],
  ["headless.csv", "What is 1+1?,2\nWhat is 2+2?,4\n", /has the columns What is 1\+1\?, 2, none/],
  ["twice.csv", "prompt,completion,prompt\na,b,c\n", /names the column prompt twice/],
  ["empty.csv", "", /has the columns \(none\)/],
  ["wide.csv", `${"x,".repeat(1001)}prompt\n`, /has 1002 columns, more than 1000/],
  ["excel.csv", utf16("prompt,completion\na,b\n"), /the text is UTF-16, and must be UTF-8/],
  ["latin-header.csv", Buffer.from("pr\xe4mpt,completion\n", "latin1"), /first line is not UTF-8/],
  ["latin.csv", Buffer.from("prompt,completion\nGr\xfc\xdfe,b\n", "latin1"), /row 1: the row is not UTF-8/],
  ["spreadsheet.csv", Buffer.from("PK\x03\x04\0\0prompt\n", "latin1"), /zero byte: this is not a text file/],
  ["half.csv", "prompt,completion\na,\n", /row 1: completion is missing/],
  [
    "python.csv",
    "messages\n\"[{'role': 'user', 'content': 'a'}]\"\n",
    /Python's text of a list and not JSON: write it with json\.dumps/,
  ],
  [
    "named.csv",
    "frage,antwort\na,b\n",
    /has the columns frage, antwort, and not reply/,
    { columns: { prompt: "frage", completion: "reply" } },
  ],
  // JSON lists.
  ["open.json", `[${pair},`, /^open\.json: the list is not closed after row 1/],
  ["text.json", '[{"prompt": "a', /the list is not closed after row 1/],
  ["commas.json", `[${pair},,${pair}]`, /nothing stands before or after the comma behind row 1/],
  ["trailing.json", `[${pair},]`, /nothing stands before or after the comma behind row 1/],
  ["two.json", `[${pair}]\n[${pair}]`, /something follows the end of the list/],
  ["values.json", "[1, 2]", /row 1: the row must be a JSON object, got 1/],
  ["brackets.json", '[{"prompt": "a", "completion": ["b"}, 1}]', /brackets\.json row 1: the row is not JSON/],
  [
    "single.json",
    '{\n  "prompt": "a",\n  "completion": "b"\n}',
    /line 1: the row is not JSON: .*: a file holds one row a line/,
  ],
  [
    "columns.json",
    '{"prompt": {"0": "a"}, "completion": {"0": "b"}}',
    /prompt must be text or a list of messages, got an object/,
  ],
  [
    "nested.json",
    `{"data": [${pair.trim()}]}`,
    /messages is missing, and so are prompt and completion: the row has data/,
  ],
  ["wide.json", utf16(`[${pair}]`), /the text is UTF-16/],
  // JSON lines.
  ["cut.jsonl", `${pair}{"prompt": "a", "compl`, /cut\.jsonl line 2: the row is not JSON/],
  [
    "list.jsonl",
    `[${pair.trim()}]`,
    /the row must be a JSON object, got a list: a file holds one row a line/,
  ],
  ["quotes.jsonl", "{'prompt': 'a', 'completion': 'b'}", /line 1: the row is not JSON/],
  ["deep.jsonl", `{"prompt": ${"[".repeat(200_000)}`, /line 1: the row is not JSON/],
  [
    "huge.jsonl",
    Buffer.alloc((64 << 20) + 10, "x"),
    /line 1 has 65 MiB, more than the 64 MiB that a row may have/,
  ],
  // Zipped files and Parquet.
  [
    "cut.csv.gz",
    gzipSync("prompt,completion\na,b\n").subarray(0, -6),
    /cut\.csv\.gz cannot be read: unexpected end of file/,
  ],
  ["plain.json.gz", `[${pair}]`, /cannot be read: incorrect header check/],
  ["page.parquet", "<html>404</html>", /is damaged, or not a Parquet file/],
  ["cut.parquet", whole.subarray(0, 300), /is damaged, or not a Parquet file/],
  // Rows of the formats.
  ["speaker.jsonl", turn(undefined, "a") + pair, /conversations\[0\]\.from is missing/],
  ["value.jsonl", turn("human", undefined), /conversations\[0\]\.value is missing/],
  ["number.jsonl", turn("human", 3), /conversations\[0\]\.value must be text, got 3/],
  [
    "calls.jsonl",
    turn("function_call", "get()"),
    /conversations\[0\]\.value must be the JSON of a tool call, got "get\(\)"/,
  ],
  [
    "history.jsonl",
    row({ instruction: "a", output: "b", history: ["x"] }),
    /history\[0\] must be a list of an instruction and its answer, got "x"/,
  ],
  ["output.jsonl", row({ instruction: "a", input: "b" }), /output is missing/],
  ["alpaca.jsonl", row({ instruction: "a", input: 2, output: "b" }), /input must be text, got 2/],
  [
    "both.jsonl",
    row({ messages: [], conversations: [] }),
    /the row can be read as messages and sharegpt: say which/,
  ],
  [
    "weight.jsonl",
    row({ messages: [{ role: "assistant", content: "a", weight: 2 }] }),
    /messages\[0\]\.weight must be 0 \(not trained on\) or 1, got 2/,
  ],
  [
    "tools.jsonl",
    row({ messages: [{ role: "user", content: "a" }], tools: "get" }),
    /tools must be a list, got "get"/,
  ],
  ["forced.jsonl", pair, /messages must be a list, got undefined/, { format: "messages" }],
];

it.each(BROKEN.map(([name, content, said, options = {}]) => [name, content, said, options] as const))(
  "%s is refused in one sentence",
  async (name, content, expected, options) => {
    const path = join(folder, name);
    writeFileSync(path, content);
    const read = async () => {
      await using rows = await conversations(path, options).open();
      return await readAll(rows);
    };
    const error: unknown = await read().then(
      (rows) => rows,
      (reason: unknown) => reason,
    );
    expect(error).toBeInstanceOf(TinkerError);
    expect(messageOf(error)).toMatch(expected);
    expect(messageOf(error)).toContain(name);
    expect(messageOf(error)).not.toContain("\n");
    expect(messageOf(error).length).toBeLessThan(260);
  },
);
