import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { afterAll, describe, expect, it } from "vitest";
import { noTerminal, openTerminal } from "./terminal.js";
import { runWarm as run } from "./warm-command.js";

const folder = mkdtempSync(join(tmpdir(), "tinkerts-data-check-"));
afterAll(() => rmSync(folder, { recursive: true }));

function write(name: string, rows: readonly unknown[]): string {
  const lines = rows.map((row) => (typeof row === "string" ? row : JSON.stringify(row)));
  const content = lines.join("\n");
  writeFileSync(join(folder, name), name.endsWith(".gz") ? gzipSync(content) : content);
  return name;
}

const chat = (...texts: string[]) => ({
  messages: texts.map((content, index) => ({ role: index % 2 === 0 ? "user" : "assistant", content })),
});
const GOOD = [
  { messages: [{ role: "system", content: "Be brief." }, ...chat("What is 12 + 7?", "19").messages] },
  chat("What is 3 + 4?", "7", "And 5 more?", "12"),
];

/** No network: nano's tokenizer comes with the package. */
const check = (...args: string[]) =>
  run(["data", "check", ...args], {
    cwd: folder,
    env: { HF_HUB_OFFLINE: "1", TINKER_BASE_URL: "", TINKER_API_KEY: "" },
  });

describe("tinkerts data check", () => {
  it("counts rows, roles and characters without a model", async () => {
    const { code, stdout, stderr } = await check(write("good.jsonl", GOOD));
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toBe(
      [
        "Rows           2",
        "Format         messages",
        "Test rows      0",
        "Lengths        half up to 26 characters, 95% up to 28, the longest 28",
        "Empty answers  none",
        "Duplicates     none",
        "Overlap        none",
        "",
        "LENGTHS IN CHARACTERS",
        `16-31  ${"█".repeat(40)} 2`,
        "",
        "ROLE       MESSAGES  CHARACTERS",
        "system            1           9",
        "user              3          40",
        "assistant         3           5",
        "",
      ].join("\n"),
    );
  });

  it("counts tokens with a model, and shows trained tokens in brackets", async () => {
    const { code, stdout } = await check(
      write("good.jsonl", GOOD),
      "--model",
      "tinkerts/nano",
      "--rows",
      "1",
    );
    expect(code).toBe(0);
    expect(stdout).toContain(
      [
        "good.jsonl line 1",
        "<|im_start|>system",
        "Be brief.<|im_end|>",
        "<|im_start|>user",
        "What is 12 + 7?<|im_end|>",
        "<|im_start|>assistant",
        "⟦19<|im_end|>⟧",
        "",
        "Rows           2",
        "Format         messages",
        "Test rows      0",
        "Renderer       qwen3_instruct",
        "Examples       2",
      ].join("\n"),
    );
    expect(stdout).not.toContain("good.jsonl line 2");
    expect(stdout).toMatch(/^Trained on {5}8 tokens, \d+\.\d% \(all_assistant_messages\)$/m);
    expect(stdout).toMatch(/^ROLE +MESSAGES +CHARACTERS +TOKENS$/m);
  });

  it("tells programs the same", async () => {
    const { code, stdout } = await check(write("good.jsonl", GOOD), "--model", "tinkerts/nano", "--json");
    expect(code).toBe(0);
    const report = JSON.parse(stdout);
    expect(report).toMatchObject({
      ok: true,
      model: "tinkerts/nano",
      renderer: "qwen3_instruct",
      trainOn: "all_assistant_messages",
      rows: 2,
      wrongRows: 0,
      examples: 2,
      trainedTokens: 8,
      problems: [],
    });
    expect(report.lengths.max).toBe(Math.max(report.tokens - report.lengths.p50, report.lengths.p50));
  });

  it("names all that is wrong by line and field, and ends with 1", async () => {
    const bad = write("bad.jsonl", [
      GOOD[0],
      { messages: [{ role: "user" }, { role: "assistant", contents: "x" }] },
      "",
      '{"messages": [',
      { dialogue: [] },
    ]);
    const { code, stdout, stderr } = await check(bad, write("also.jsonl.gz", [GOOD[1], { prompt: "Q" }]));
    expect(code).toBe(1);
    expect(stderr).toBe("error: 4 of 6 rows cannot be trained on\n");
    expect(stdout.slice(stdout.indexOf("PROBLEMS"))).toBe(
      [
        "PROBLEMS",
        "bad.jsonl line 2: messages[0].content is missing",
        "bad.jsonl line 2: messages[1].contents is not known: did you mean content?",
        "bad.jsonl line 2: messages[1].content is missing",
        "bad.jsonl line 4: the row is not JSON: expected a value at character 14, got the end",
        "bad.jsonl line 5: messages is missing, and so are prompt and completion: the row has dialogue",
        "also.jsonl.gz line 2: completion is missing",
        "",
      ].join("\n"),
    );
    const csv = await check(bad, "--format", "csv");
    expect(csv.code).toBe(1);
    expect(csv.stdout).toContain("bad.jsonl line 2,messages[0].content,messages[0].content is missing");
  });

  it("finds empty answers, duplicates, and rows that are too long or teach nothing", async () => {
    const file = write("odd.jsonl", [
      ...GOOD,
      chat("Say nothing.", " "),
      GOOD[1],
      chat("a", "b".repeat(100)),
      chat("a".repeat(100), "b"),
      chat("Hello?"),
    ]);
    const args = [file, "--model", "tinkerts/nano", "--max-length", "60"];
    const report = JSON.parse((await check(...args, "--json")).stdout);
    expect(report).toMatchObject({
      ok: false,
      rows: 7,
      wrongRows: 2,
      emptyAnswers: ["odd.jsonl line 3"],
      duplicates: [{ place: "odd.jsonl line 4", of: "odd.jsonl line 2" }],
    });
    const [answerCut, allCut] = report.tooLong;
    expect(report.tooLong).toHaveLength(2);
    expect(answerCut.place).toBe("odd.jsonl line 5");
    expect(answerCut.cutTokens).toBe(answerCut.tokens - 60);
    expect(answerCut.cutTrainedTokens).toBe(answerCut.cutTokens);
    expect(allCut).toMatchObject({ place: "odd.jsonl line 6", cutTrainedTokens: 2 });
    expect(report.problems).toEqual([
      {
        place: "odd.jsonl line 6",
        field: "messages",
        message: `all its trained tokens come after the first 60 of ${allCut.tokens} tokens`,
      },
      {
        place: "odd.jsonl line 7",
        field: "messages",
        message: "this row has no trained tokens with all_assistant_messages",
      },
    ]);
    const { code, stdout } = await check(...args, "--rows", "7");
    expect(code).toBe(1);
    expect(stdout).toContain("2 (odd.jsonl line 5, odd.jsonl line 6); ");
    expect(stdout).toContain(` (${answerCut.cutTokens} tokens cut)\n`);
  });

  it("refuses roles that no format has, or not this one, and knows what the model can read", async () => {
    const file = write("roles.jsonl", [
      ...["asistant", "bot", "developer"].map((role) => ({
        messages: [{ role, content: "Hm." }, ...chat("Q", "A").messages],
      })),
      { prompt: "Q", answer: "A ".repeat(600) },
    ]);
    const plain = await check(file);
    expect(plain).toMatchObject({ code: 1, stderr: "error: 2 of 4 rows cannot be trained on\n" });
    expect(plain.stdout).toContain(
      'line 1: messages[0].role is "asistant", which no model\'s format has: did you mean assistant?',
    );
    expect(plain.stdout).toMatch(/line 2: messages\[0\]\.role is "bot".* did you mean assistant\?\n/);
    const report = JSON.parse((await check(file, "--model", "tinkerts/nano", "--json")).stdout);
    expect(report).toMatchObject({
      wrongRows: 3,
      maxLength: 512,
      tooLong: [{ place: "roles.jsonl line 4", tokens: expect.any(Number) }],
    });
    expect(report.problems[2].message).toContain("did you mean system?");
  });

  it("counts trained tokens by --train-on and --renderer", async () => {
    const file = write("good.jsonl", GOOD);
    const args = [file, "--model", "tinkerts/nano", "--renderer", "role_colon"];
    const last = await check(...args, "--train-on", "last_assistant_message");
    expect(last.stdout).toContain(
      "User: What is 3 + 4?\n\nAssistant: 7\n\nUser: And 5 more?\n\nAssistant:⟦ 12\n\nUser:⟧",
    );
    const thinking = await check(file, "--model", "tinkerts/nano", "--renderer", "qwen3");
    expect(thinking.stdout).toContain("good.jsonl line 2, example 1 of 2");
    const customized = await check(...args, "--train-on", "customized");
    expect(customized.code).toBe(1);
    expect(customized.stdout).toContain(
      'good.jsonl line 1: messages[0].trainable must say whether the message is trained on, since trainOn is "customized"',
    );
  });

  it("names the format of the rows, shows how long they are, and what is in both parts", async () => {
    const question = (index: number) => `What is ${index} + 1?`;
    const sum = (index: number) => [question(index), String(index + 1)];
    const table = [["frage", "antwort"], ...Array.from({ length: 30 }, (_, index) => sum(index))];
    writeFileSync(join(folder, "sums.csv"), `${table.map((cells) => cells.join(",")).join("\n")}\n`);
    write("test.jsonl", [
      { instruction: question(3), input: "", output: "4" },
      {
        conversations: [
          { from: "human", value: question(5) },
          { from: "gpt", value: "about 6" },
        ],
      },
      {
        conversations: [
          { from: "human", value: "What else?" },
          { from: "gpt", value: "Nothing." },
        ],
      },
    ]);
    const unnamed = await check("sums.csv");
    expect(unnamed).toMatchObject({ code: 1, stdout: "" });
    expect(unnamed.stderr).toContain("sums.csv has the columns frage, antwort, none of which is known");

    const columns = ["--columns", "prompt=frage,completion=antwort"];
    const plain = await check("sums.csv", ...columns);
    expect(plain.stdout).toMatch(/^Rows +30\nFormat +prompt-completion\nTest rows +3\n/);
    expect(plain.stdout).toMatch(/LENGTHS IN CHARACTERS\n 8-15 +█+ 9\n16-31 +█{40} 21\n/);
    const json = await check("sums.csv", ...columns, "--test-size", "0", "--json");
    expect(JSON.parse(json.stdout)).toMatchObject({
      formats: { "prompt-completion": 30 },
      testRows: 0,
      histogram: [
        { from: 8, to: 15, count: 9 },
        { from: 16, to: 31, count: 21 },
      ],
    });
    write(
      "train.jsonl",
      Array.from({ length: 30 }, (_, index) => chat(...sum(index))),
    );
    const split = JSON.parse((await check("train.jsonl", "--test-file", "test.jsonl", "--json")).stdout);
    expect(split).toMatchObject({
      rows: 33,
      testRows: 3,
      formats: { messages: 30, alpaca: 1, sharegpt: 2 },
      overlap: [
        { place: "test.jsonl line 1", of: "train.jsonl line 4", sameAnswer: true },
        { place: "test.jsonl line 2", of: "train.jsonl line 6", sameAnswer: false },
      ],
    });
    write(
      "twice.jsonl",
      Array.from({ length: 40 }, (_, index) => chat(...sum(index % 20))),
    );
    const twice = JSON.parse((await check("twice.jsonl", "--json")).stdout);
    expect(twice.testRows).toBe(4);
    // Each row is there twice, and no two of these four are the same.
    expect(twice.overlap).toHaveLength(4);
  });

  it("reads Parquet, with tools", async () => {
    const file = fileURLToPath(new URL("../fixtures/data/chats-zstd.parquet", import.meta.url));
    const report = JSON.parse((await check(file, "--model", "tinkerts/nano", "--json")).stdout);
    expect(report).toMatchObject({ ok: true, rows: 40 });
    expect((await check(file, "--model", "tinkerts/nano")).stdout).toContain(
      '⟦<tool_call>\n{"name": "add", "arguments": {"a": 1.0}}\n</tool_call><|im_end|>⟧',
    );
  });

  it.each([
    [["none.jsonl"], 1, /There is no file none\.jsonl\./],
    [["good.jsonl", "--renderer", "qwen3"], 2, /--renderer needs --model, whose tokens it is about/],
    [["good.jsonl", "--max-length", "100"], 2, /--max-length needs --model/],
    [
      ["good.jsonl", "--model", "tinkerts/nano", "--renderer", "none"],
      1,
      /There is no renderer "none": one of /,
    ],
    [["good.jsonl", "--train-on", "everything"], 2, /Allowed choices are all_assistant_messages/],
    [["empty.jsonl"], 1, /there are no rows/],
    [["good.jsonl", "--data-format", "chatml"], 2, /Allowed choices are messages, sharegpt, alpaca/],
    [["good.jsonl", "--format", "alpaca"], 2, /table, json, csv\. The format of rows is --data-format\./],
    [["good.jsonl", "--columns", "prompt"], 2, /It must be a list such as prompt=question/],
    [["good.jsonl", "--columns", "promt=a"], 2, /unknown field columns\.promt; did you mean prompt\?/],
    [["none-*.jsonl"], 1, /No file matches none-\*\.jsonl/],
    [[], 2, /missing required argument 'files'/],
  ])("says what is wrong with %j", async (args, expected, message) => {
    write("good.jsonl", GOOD);
    write("empty.jsonl", []);
    const { code, stderr } = await check(...args);
    expect(code).toBe(expected);
    expect(stderr).toMatch(message);
  });

  it.skipIf(noTerminal !== undefined)("marks trained tokens in green at a terminal", async () => {
    write("good.jsonl", GOOD);
    const terminal = openTerminal(["data", "check", "good.jsonl", "--model", "tinkerts/nano"], {
      cwd: folder,
    });
    expect(await terminal.ended).toBe(0);
    expect(terminal.text()).toContain("assistant\r\n\x1b[32m19<|im_end|>\x1b[39m\r\n");
    expect(terminal.text()).not.toContain("⟦");
    terminal.close();
  });
});
