import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { defaultModel, startLocalBackend } from "../../src/local/index.js";
import { start } from "./command.js";
import { TalkingEngine, talkingServer, talkingServerForTests } from "./talking-engine.js";
import { noTerminal, openTerminal, type Terminal } from "./terminal.js";
import { runWarm as run } from "./warm-command.js";

const chat = ["chat", "--model", "tinkerts/nano"];
const turn = (role: string, content: string) => `<|im_start|>${role}\n${content}<|im_end|>\n`;
const asked = (...turns: string[]) => `${turns.join("")}<|im_start|>assistant\n`;

const server = await talkingServerForTests();
let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "tinkerts-chat-"));
});
afterEach(() => {
  server.engine.open();
  rmSync(folder, { recursive: true });
});

describe("tinkerts chat from a pipe", () => {
  const piped = (input: string, args: readonly string[] = []) =>
    run([...chat, ...args], { env: server.env, cwd: folder, input });

  it("answers each line, remembers what was said, and prints the answers alone", async () => {
    server.engine.answers = ["Hello.", " I am nano.\n"];
    expect(await piped("Hi!\n\nWho are you?\n")).toEqual({
      code: 0,
      stdout: "Hello.\nI am nano.\n",
      stderr: "",
    });
    expect(server.engine.heard).toEqual([
      asked(turn("user", "Hi!")),
      asked(turn("user", "Hi!"), turn("assistant", "Hello."), turn("user", "Who are you?")),
    ]);
    // The end of a turn, also where the model itself would not stop there; no other limit than the room there is.
    expect(server.engine.requests[0]).toMatchObject({ stopTokens: [511], temperature: 1 });
    // The last token needs no position of its own.
    expect(server.engine.requests[0]!.maxTokens).toBe(513 - server.engine.requests[0]!.prompt.length);
  });

  it("shows an answer while it comes", async () => {
    server.engine.answers = [" 12 is what I say. "];
    server.engine.saysBefore = 6;
    server.engine.hold();
    try {
      const command = start(chat, { env: server.env, input: "a\n" });
      await command.seen(/^12./);
      server.engine.open();
      expect(await command.finished).toEqual({ code: 0, stdout: "12 is what I say.\n", stderr: "" });
    } finally {
      server.engine.saysBefore = 0;
    }
  });

  it("takes a system message, sampling options and commands", async () => {
    server.engine.answers = ["one", "two", "three"];
    const input =
      "a\n/reset\nb\n/system Be loud.\nc\n/system\n/save talk.json\n/nonsense\n/etc/hosts is what?\n/quit\nd\n";
    const { code, stdout, stderr } = await piped(input, [
      "--system",
      "Be kind.",
      "--temperature",
      "0",
      "--seed",
      "4",
    ]);
    expect({ code, stdout }).toEqual({ code: 0, stdout: "one\ntwo\nthree\nyes\n" });
    expect(stderr.split("\n")).toEqual([
      "A new conversation begins.",
      "The system message is set.",
      "There is no system message now.",
      "4 messages saved in talk.json.",
      "There is no command /nonsense; /help lists them.",
      "",
    ]);
    expect(server.engine.heard).toEqual([
      asked(turn("system", "Be kind."), turn("user", "a")),
      asked(turn("system", "Be kind."), turn("user", "b")),
      asked(turn("system", "Be loud."), turn("user", "b"), turn("assistant", "two"), turn("user", "c")),
      asked(
        ...[turn("user", "b"), turn("assistant", "two"), turn("user", "c"), turn("assistant", "three")],
        turn("user", "/etc/hosts is what?"),
      ),
    ]);
    expect(server.engine.requests[0]).toMatchObject({ temperature: 0, seed: 4 });
    expect(JSON.parse(readFileSync(join(folder, "talk.json"), "utf8"))).toEqual({
      model: "tinkerts/nano",
      messages: [
        { role: "user", content: "b" },
        { role: "assistant", content: "two" },
        { role: "user", content: "c" },
        { role: "assistant", content: "three" },
      ],
    });
  });

  it("saves over its own file only", async () => {
    writeFileSync(join(folder, "mine.txt"), "precious");
    const { stderr } = await piped(
      "/save mine.txt\n/save new.json\na\n/save new.json\n/save\n/save no/where.json\n",
    );
    expect(stderr).toMatch(
      /^mine\.txt already exists.*\n0 messages saved in new\.json\.\n2 messages saved in new\.json\.\nWhere to\? \/save FILE\nNot saved: .*no\/where\.json.*\n$/,
    );
    expect(readFileSync(join(folder, "mine.txt"), "utf8")).toBe("precious");
  });

  it("prints a line of JSON for each answer, and says where one was cut off", async () => {
    server.engine.answers = ["123456", "1"];
    const { stdout, stderr } = await piped("a\nb\n", ["--json", "--max-tokens", "3"]);
    expect(
      stdout
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line)),
    ).toEqual([
      { role: "assistant", content: "123", tokens: 3, stopReason: "length" },
      { role: "assistant", content: "1", tokens: 2, stopReason: "stop" },
    ]);
    expect(stderr).toBe("(cut off after 3 tokens: see --max-tokens)\n");
  });

  it("ends with 1 at the first answer that fails, and with 2 without a model", async () => {
    const { code, stdout, stderr } = await piped(`${"word ".repeat(600)}\nb\n`);
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr).toMatch(/^error: .* refuses this: .*\n$/);
    expect(await run(["chat"])).toMatchObject({ code: 2, stderr: expect.stringContaining("which model?") });
  });

  it("ends with 130 at an interrupt", async () => {
    server.engine.hold();
    const command = start(chat, { env: server.env, input: "a\n" });
    await expect.poll(() => server.engine.requests.length).toBe(1);
    command.child.kill("SIGINT");
    expect(await command.finished).toEqual({ code: 130, stdout: "", stderr: "interrupted\n" });
  });

  it("says what to do with a model that has no chat template", async () => {
    const snapshot = join(folder, "models--test--plain/snapshots/abc");
    mkdirSync(snapshot, { recursive: true });
    mkdirSync(join(folder, "models--test--plain/refs"));
    writeFileSync(join(folder, "models--test--plain/refs/main"), "abc");
    writeFileSync(join(snapshot, "tokenizer.json"), readFileSync(join(defaultModel.path, "tokenizer.json")));
    writeFileSync(join(snapshot, "tokenizer_config.json"), "{}");
    const plain = await talkingServer(new TalkingEngine("test/plain"));
    try {
      const env = { ...plain.env, HF_HUB_CACHE: folder, HF_HUB_OFFLINE: "1" };
      expect(await run(["chat", "--model", "test/plain"], { env, input: "a\n" })).toEqual({
        code: 1,
        stdout: "",
        stderr:
          "error: test/plain has no chat template, so it cannot take part in a conversation: let it continue a text with tinkerts sample\n",
      });
    } finally {
      await plain.backend.close();
    }
  });
});

describe.skipIf(noTerminal)(`tinkerts chat at a terminal ${noTerminal ?? ""}`, () => {
  let terminal: Terminal;
  const open = async (env = server.env) => {
    terminal = openTerminal(chat, { env, cwd: folder });
    await terminal.seen(/Talking to tinkerts\/nano\. \/help lists commands, Ctrl-D leaves\.\r\n\r\n/);
    await terminal.seen(/> /);
  };
  afterEach(() => terminal.close());

  it("talks with the real model, until Ctrl-D", async () => {
    await using backend = await startLocalBackend({ threads: 1 });
    terminal = openTerminal([...chat, "--temperature", "0"], { env: { TINKER_BASE_URL: backend.baseURL } });
    await terminal.seen(/> /);
    terminal.type("What is the capital of France?\r");
    await terminal.seen(/The capital of France is Paris\.\r\n\r\n/);
    await terminal.seen(/> /);
    terminal.type("\x04");
    expect(await terminal.ended).toBe(0);
  });

  it("stops an answer with Ctrl-C and goes on without it", async () => {
    await open();
    server.engine.hold();
    terminal.type("first\r");
    await terminal.seen(/answering \d s/);
    // Typed ahead: shown at the next prompt.
    terminal.type("sec");
    terminal.type("\x03");
    await terminal.seen(/\(stopped; your message is not part of the conversation\)/);
    // The server is asked to stop the work.
    await expect.poll(() => server.engine.calls).toContainEqual(expect.stringMatching(/^cancel /));
    server.engine.open();
    await terminal.seen(/> sec/);
    server.engine.answers = ["the second"];
    terminal.type("ond\r");
    await terminal.seen(/the second/);
    await terminal.seen(/> /);
    expect(server.engine.heard).toEqual([asked(turn("user", "first")), asked(turn("user", "second"))]);
    terminal.type("/quit\r");
    expect(await terminal.ended).toBe(0);
  });

  it("leaves with the second Ctrl-C at an empty prompt, and clears a line that is not", async () => {
    await open();
    terminal.type("never sent");
    await terminal.seen(/never sent/);
    terminal.type("\x03");
    await terminal.seen(/\r\n[\s\S]*> /);
    terminal.type("\x03");
    await terminal.seen(/Ctrl-C again, Ctrl-D or \/quit to leave/);
    terminal.type("still here\r");
    await terminal.seen(/yes\r\n/);
    await terminal.seen(/> /);
    terminal.type("\x03");
    await terminal.seen(/to leave\)\r\n/);
    terminal.type("\x03");
    expect(await terminal.ended).toBe(0);
    expect(server.engine.heard).toEqual([asked(turn("user", "still here"))]);
  });

  it("takes messages of several lines, remembers lines, and completes commands", async () => {
    await open();
    terminal.type("one \\\r");
    await terminal.seen(/… /);
    terminal.type("two\r");
    await terminal.seen(/yes\r\n/);
    await terminal.seen(/> /);
    terminal.type("pasted\rtext\rof three");
    await terminal.seen(/of three/);
    terminal.type("\r");
    await terminal.seen(/yes\r\n/);
    await terminal.seen(/> /);
    terminal.type("\x1b[A\x1b[A\r"); // the line before the last
    await terminal.seen(/yes\r\n/);
    await terminal.seen(/> /);
    terminal.type("/he");
    await terminal.seen(/\/he/);
    terminal.type("\t");
    await terminal.seen(/lp/);
    terminal.type("\r");
    await terminal.seen(/\/reset +forget what was said[\s\S]*\/save FILE[\s\S]*Ctrl-C stops an answer/);
    await terminal.seen(/> /);
    expect(server.engine.heard.map((prompt) => prompt.split("<|im_start|>").at(-2))).toEqual(
      ["one \ntwo", "pasted\ntext\nof three", "text"].map((text) => `user\n${text}<|im_end|>\n`),
    );
    terminal.type("\x04");
    expect(await terminal.ended).toBe(0);
  });

  it("says why there is no answer, and continues", async () => {
    await open();
    terminal.type(`${"word ".repeat(600)}\r`);
    await terminal.seen(/error: .* refuses this: [\s\S]*\/reset makes room/);
    await terminal.seen(/> /);
    terminal.type("short\r");
    await terminal.seen(/yes\r\n/);
    expect(server.engine.heard).toEqual([asked(turn("user", "short"))]);
  });
});
