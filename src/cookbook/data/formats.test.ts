import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, it } from "vitest";
import { getRenderer } from "../../renderers/index.js";
import { tokenizerForModel } from "../../tokenizers/index.js";
import {
  type ConversationsFrom,
  type ConversationsOptions,
  conversations,
  questions,
} from "./conversations.js";
import { datumFromExample, toExamples } from "./examples.js";
import { readAll } from "./rows.js";

const folder = mkdtempSync(join(tmpdir(), "formats-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** Files that pandas and datasets wrote, or that follow a documentation: `npm run generate:golden:formats`. */
const fixtures = fileURLToPath(new URL("../../../test/fixtures/data/formats", import.meta.url));
const fixture = (name: string) => join(fixtures, name);

const renderer = getRenderer("qwen3_instruct", await tokenizerForModel({ modelName: "tinkerts/nano" }));

async function read(from: ConversationsFrom, options?: ConversationsOptions) {
  await using rows = await conversations(from, options).open();
  const read = await readAll(rows);
  return { rows: read, formats: [...(rows.formats ?? [])] };
}

async function datums(from: ConversationsFrom) {
  const { rows } = await read(from);
  return rows.flatMap((row) =>
    toExamples(row, renderer, "all_assistant_messages").flatMap((example) => {
      const { modelInput, lossFnInputs } = datumFromExample(example) ?? {};
      const inputs = Object.values(lossFnInputs ?? {}).map(({ data }) => Array.from(data));
      return modelInput === undefined ? [] : [[modelInput.toInts(), ...inputs]];
    }),
  );
}

function write(name: string, content: string): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

const texts = async (from: ConversationsFrom, options?: ConversationsOptions) =>
  (await read(from, options)).rows.map(({ messages }) =>
    messages.map(({ role, content }) => [role, content]),
  );

const FORMATS = [
  ["pandas.csv", "prompt-completion"],
  ["pandas.csv.gz", "prompt-completion"],
  ["pandas-excel.csv", "prompt-completion"],
  ["pandas.tsv", "prompt-completion"],
  ["pandas-records.json", "prompt-completion"],
  ["pandas-lines.jsonl", "prompt-completion"],
  ["pandas.parquet", "prompt-completion"],
  ["pandas-alpaca.json", "alpaca"],
  ["datasets-alpaca.csv", "alpaca"],
  ["datasets-messages.jsonl", "messages"],
  ["datasets-messages.parquet", "messages"],
  ["datasets-sharegpt.jsonl", "sharegpt"],
  ["datasets-trl.parquet", "prompt-completion"],
  ["axolotl-sharegpt.json", "sharegpt"],
] as const;

describe("the same conversations in the files of people's tools", () => {
  it.each(FORMATS)("%s are the same datums, and named %s", async (name, format) => {
    const expected = await datums(fixture("openai.jsonl"));
    expect(expected).toHaveLength(6);
    expect(await datums(fixture(name))).toEqual(expected);
    expect((await read(fixture(name))).formats).toEqual([format]);
  });

  it("with tools: OpenAI's file, and LLaMA-Factory's of ShareGPT's form, with an answer that is not trained on", async () => {
    const expected = await datums(fixture("openai-tools.jsonl"));
    expect(expected).not.toEqual([]);
    expect(await datums(fixture("llama-factory-tools.json"))).toEqual(expected);
    const { rows } = await read(fixture("openai-tools.jsonl"));
    expect(rows[0]!.messages.at(-1)).toMatchObject({ content: "Welcome!", weight: 0 });
    expect(rows[0]!.tools).toMatchObject([{ name: "get_weather" }]);
  });

  it("reads every file that the script wrote", () => {
    const known = [
      ...FORMATS.map(([name]) => name),
      "openai.jsonl",
      "openai-tools.jsonl",
      "llama-factory-tools.json",
    ];
    expect(readdirSync(fixtures).sort()).toEqual(known.sort());
  });
});

describe("Alpaca", () => {
  it("puts the input behind the instruction, and system and history before it", async () => {
    const row = {
      system: "Be brief.",
      history: [["Hi", "Hello"]],
      instruction: "Add.",
      input: "1 2",
      output: "3",
      text: "### Instruction",
    };
    expect(await texts([row])).toEqual([
      [
        ["system", "Be brief."],
        ["user", "Hi"],
        ["assistant", "Hello"],
        ["user", "Add.\n1 2"],
        ["assistant", "3"],
      ],
    ]);
    const dolly = { instruction: "Add.", context: "1 2", response: "3", category: "sums" };
    expect(await texts([dolly])).toEqual([
      [
        ["user", "Add.\n1 2"],
        ["assistant", "3"],
      ],
    ]);
  });
});

describe("rows that can be read in several ways", () => {
  const row = { messages: [{ role: "user", content: "Q" }], prompt: "P", completion: "A" };

  it("are an error until the format is given", async () => {
    await expect(read([row])).rejects.toThrow(
      "row 1: the row can be read as messages and prompt-completion: say which with format (--data-format messages or prompt-completion)",
    );
    expect(await texts([row], { format: "messages" })).toEqual([[["user", "Q"]]]);
    expect(await texts([row], { format: "prompt-completion" })).toEqual([
      [
        ["user", "P"],
        ["assistant", "A"],
      ],
    ]);
  });

  it("are not those where one way lacks a part", async () => {
    expect(await texts([{ messages: row.messages, prompt: "P", prompt_id: "1" }])).toEqual([[["user", "Q"]]]);
    expect(await texts([{ input: "P", output: "A" }])).toEqual([
      [
        ["user", "P"],
        ["assistant", "A"],
      ],
    ]);
  });
});

describe("columns of other names", () => {
  it("are named, in any kind of file, and others are not looked at", async () => {
    const file = write("german.csv", "frage,antwort,prompt\nWie?,So.,x\n");
    const columns = { prompt: "frage", completion: "antwort" };
    const expected = [
      [
        ["user", "Wie?"],
        ["assistant", "So."],
      ],
    ];
    expect(await texts(file, { columns })).toEqual(expected);
    expect(await texts([{ frage: "Wie?", antwort: "So.", messages: [] }], { columns })).toEqual(expected);
    expect(
      await texts(fixture("pandas.parquet"), { columns: { prompt: "answer", completion: "question" } }),
    ).toContainEqual([
      ["user", "19"],
      ["assistant", "What is 12 + 7?"],
    ]);
    await using asked = await questions(file, { columns: { prompt: "antwort" } }).open();
    expect((await readAll(asked))[0]!.messages).toEqual([{ role: "user", content: "So." }]);
  });

  it("are refused if the format has no such field", () => {
    expect(() => conversations([], { columns: { promt: "a" } as never })).toThrow(
      "unknown field columns.promt; did you mean prompt?",
    );
    expect(() => conversations([], { format: "chatml" as never })).toThrow(
      /^format must be "messages", "sharegpt"/,
    );
  });
});

describe("CSV", () => {
  it.each([
    ["a quoted comma, quote and line break", 'prompt,completion\n"a, ""b""\r\nc","d"\n', 'a, "b"\r\nc', "d"],
    ["empty quotes at the end", 'x,prompt,completion,y\n,"""a""",b,""\n', '"a"', "b"],
    ["a quote within a cell that has none around", 'prompt,completion\n5" or 6",b\n', '5" or 6"', "b"],
    ["blank lines, and no line break at the end", "prompt,completion\n\n\r\na,b", "a", "b"],
    ["cells that are left out", "prompt,completion,note\na,b\n", "a", "b"],
    ["semicolons and commas", 'prompt;completion\n"a,";b,c,d\n', "a,", "b,c,d"],
    ["a first column without a name", "\tprompt\tcompletion\r\n0\ta\tb\r\n", "a", "b"],
    ["bars", "prompt|completion\na,;|b\n", "a,;", "b"],
  ])("with %s", async (_, content, prompt, completion) => {
    expect(await texts(write("cells.csv", content))).toEqual([
      [
        ["user", prompt],
        ["assistant", completion],
      ],
    ]);
  });

  it("may have cells longer than what is read at once, in any order", async () => {
    const cells = Array.from({ length: 300 }, (_, index) =>
      `${index}"\n,`.repeat(index === 7 ? 600_000 : 100),
    );
    const rows = cells.map((cell) => `"${cell.replaceAll('"', '""')}",ok`);
    const path = write("long.csv", `prompt,completion\n${rows.join("\n")}`);
    await using opened = await conversations(path).open();
    const found = await opened.read([299, 7, 0]);
    expect(found.map(({ messages }) => messages[0]!.content)).toEqual([cells[299], cells[7], cells[0]]);
  });
});

describe("a JSON list", () => {
  it("may be on one line or indented, and long", async () => {
    const rows = Array.from({ length: 3000 }, (_, index) => ({
      prompt: `${index} ["}{,\\${"x".repeat(1000)}`,
      completion: "ok",
    }));
    const expected = rows.map(({ prompt }) => prompt);
    for (const indent of [undefined, 2]) {
      const found = await texts(write("rows.json", `\ufeff ${JSON.stringify(rows, null, indent)}\n`));
      expect(found.map((messages) => messages[0]?.[1])).toEqual(expected);
    }
    expect(await texts(write("none.json", "[]"))).toEqual([]);
  });

  it("may be called .jsonl if its first line is the bracket alone; a .json file may have a row a line", async () => {
    const row = JSON.stringify({ prompt: "a", completion: "b" });
    for (const [name, content] of [
      ["list.jsonl", `[\n${row},\n${row}\n]`],
      ["lines.json", `${row}\n${row}\n`],
    ] as const)
      expect(await texts(write(name, content))).toHaveLength(2);
  });
});

describe("several files", () => {
  const rows = (word: string, count: number) =>
    Array.from(
      { length: count },
      (_, index) => `${JSON.stringify({ prompt: `${word}${index}`, completion: "x" })}\n`,
    ).join("");
  mkdirSync(join(folder, "parts/deep"), { recursive: true });
  write("parts/part-2.jsonl", rows("two", 1));
  write("parts/part-10.jsonl", rows("ten", 1));
  write("parts/deep/part-3.jsonl", rows("three", 1));
  write("parts/other.csv", "prompt,completion\nother,x\n");
  write("parts/.part-0.jsonl", rows("hidden", 1));
  const prompts = async (...names: string[]) =>
    (await texts(names.map((name) => join(folder, "parts", name)))).map((messages) => messages[0]?.[1]);

  it("match a pattern, in the order of their numbers", async () => {
    expect(await prompts("part-*.jsonl")).toEqual(["two0", "ten0"]);
    expect(await prompts("**/part-?.jsonl")).toEqual(["three0", "two0"]);
    expect(await prompts("part-[13]*.jsonl")).toEqual(["ten0"]);
    expect(await prompts("{other,part-2}.{csv,jsonl}")).toEqual(["other", "two0"]);
    await expect(prompts("*.parquet")).rejects.toThrow(/^No file matches .*\*\.parquet\.$/);
  });

  it("have weights: shares of the rows", async () => {
    write("parts/large.jsonl", rows("large", 30));
    const found = await prompts("large.jsonl=3", "part-*.jsonl=1");
    expect(found.filter((prompt) => String(prompt).startsWith("large"))).toHaveLength(30);
    expect(found).toHaveLength(40);
    write("parts/a=2", rows("named", 1));
    expect(await prompts("a=2", "part-2.jsonl")).toEqual(["named0", "two0"]);
    await expect(prompts("large.jsonl=3", "part-2.jsonl")).rejects.toThrow(
      /large\.jsonl has a weight and .*part-2\.jsonl has none: give each one/,
    );
    await expect(prompts("large.jsonl=0")).rejects.toThrow(/The weight of .* must be a number above 0/);
  });
});

it("a byte that is not UTF-8 is the problem of its row", async () => {
  const path = join(folder, "latin.csv");
  writeFileSync(path, Buffer.from("prompt,completion\na,b\nGr\xfc\xdfe,c\n", "latin1"));
  await using rows = await conversations(path).open();
  expect(rows.length).toBe(2);
  await expect(rows.read([1])).rejects.toThrow(
    "latin.csv row 2: the row is not UTF-8: save the file as UTF-8",
  );
  expect(await rows.read([0])).toHaveLength(1);
  expect(readFileSync(path).length).toBeGreaterThan(0);
});
