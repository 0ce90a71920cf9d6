import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { afterAll, describe, expect, it } from "vitest";
import { run } from "./command.js";
import { noTerminal, openTerminal } from "./terminal.js";

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
        "Lengths        half up to 26 characters, 95% up to 28, the longest 28",
        "Empty answers  none",
        "Duplicates     none",
        "",
        "ROLE       MESSAGES  CHARACTERS",
        "system            1           9",
        "user              3          40",
        "assistant         3           5",
        "",
      ].join("\n"),
    );
  });

  it("counts tokens with a model, and shows what is learnt in brackets", async () => {
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
        "Renderer       qwen3_instruct",
        "Examples       2",
      ].join("\n"),
    );
    expect(stdout).not.toContain("good.jsonl line 2");
    expect(stdout).toMatch(/^Learnt {9}8 tokens, \d+\.\d% \(all_assistant_messages\)$/m);
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
      learntTokens: 8,
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
      { conversations: [] },
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
        "bad.jsonl line 5: messages is missing, and so are prompt and completion: the row has conversations",
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
    expect(answerCut.cutLearntTokens).toBe(answerCut.cutTokens);
    expect(allCut).toMatchObject({ place: "odd.jsonl line 6", cutLearntTokens: 2 });
    expect(report.problems).toEqual([
      {
        place: "odd.jsonl line 6",
        field: "messages",
        message: `all that would be learnt lies behind the first 60 of ${allCut.tokens} tokens`,
      },
      {
        place: "odd.jsonl line 7",
        field: "messages",
        message: "nothing is learnt from this row by all_assistant_messages",
      },
    ]);
    const { code, stdout } = await check(...args, "--rows", "7");
    expect(code).toBe(1);
    expect(stdout).toContain("2 (odd.jsonl line 5, odd.jsonl line 6); ");
    expect(stdout).toContain(` (${answerCut.cutTokens} tokens cut)\n`);
  });

  it("learns what it is told to, as the renderer it is given writes it", async () => {
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
      'good.jsonl line 1: messages[0].trainable must say whether the message is learnt, since trainOn is "customized"',
    );
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
      /There is no renderer "none", only /,
    ],
    [["good.jsonl", "--train-on", "everything"], 2, /Allowed choices are all_assistant_messages/],
    [["empty.jsonl"], 1, /there are no rows/],
    [[], 2, /missing required argument 'files'/],
  ])("says what is wrong with %j", async (args, expected, message) => {
    write("good.jsonl", GOOD);
    write("empty.jsonl", []);
    const { code, stderr } = await check(...args);
    expect(code).toBe(expected);
    expect(stderr).toMatch(message);
  });

  it.skipIf(noTerminal !== undefined)("marks what is learnt in green at a terminal", async () => {
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
