import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { ServiceClient } from "../../src/index.js";
import { start } from "./command.js";
import { talkingServer } from "./talking-engine.js";
import { noTerminal, openTerminal } from "./terminal.js";
import { runWarm as run } from "./warm-command.js";

const nano = ["sample", "--model", "tinkerts/nano"];

describe("tinkerts sample", () => {
  let server: Awaited<ReturnType<typeof talkingServer>>;
  let folder: string;
  beforeAll(async () => {
    server = await talkingServer();
    folder = mkdtempSync(join(tmpdir(), "tinkerts-sample-"));
  });
  afterAll(async () => {
    await server.backend.close();
    rmSync(folder, { recursive: true });
  });
  beforeEach(() => {
    server.engine.heard.length = 0;
    server.engine.requests.length = 0;
    server.engine.answers = [];
  });
  const sample = (args: readonly string[], input?: string) =>
    run(args, { env: server.env, cwd: folder, ...(input !== undefined && { input }) });

  it("prints what the model says, and nothing else", async () => {
    server.engine.answers = ["a word"];
    expect(await sample([...nano, "--prompt", "Say a word:"])).toEqual({
      code: 0,
      stdout: "a word\n",
      stderr: "",
    });
    expect(server.engine.heard).toEqual(["Say a word:"]);
  });

  it("prints tokens as they come", async () => {
    server.engine.answers = ["12 words"];
    server.engine.saysBefore = 2;
    server.engine.hold();
    try {
      const command = start([...nano, "--prompt", "x"], { env: server.env, cwd: folder });
      await command.seen(/^12$/);
      server.engine.open();
      expect(await command.finished).toEqual({ code: 0, stdout: "12 words\n", stderr: "" });
    } finally {
      server.engine.saysBefore = 0;
    }
  });

  it("passes every option on", async () => {
    const args = [
      "--max-tokens",
      "9",
      "--temperature",
      "0.5",
      "--top-k",
      "7",
      "--top-p",
      "0.9",
      "--seed",
      "3",
    ];
    await sample([
      ...nano,
      "--prompt",
      "x",
      ...args,
      "--stop",
      "\\n\\n",
      "--stop",
      "a\\tb",
      "--num-samples",
      "2",
    ]);
    expect(server.engine.requests).toMatchObject([
      {
        maxTokens: 9,
        temperature: 0.5,
        topK: 7,
        topP: 0.9,
        seed: 3,
        stopStrings: ["\n\n", "a\tb"],
        numSamples: 2,
      },
    ]);
    await sample([...nano, "--prompt", "x"]);
    expect(server.engine.requests[1]).toMatchObject({
      maxTokens: 128,
      temperature: 1,
      topK: -1,
      topP: 1,
      stopStrings: [],
      numSamples: 1,
    });
    expect(server.engine.requests[1]?.stopTokens).toBeUndefined();
  });

  it("reads the prompt from a file or the standard input, less the new line at the end", async () => {
    writeFileSync(join(folder, "prompt.txt"), "two\nlines\n");
    await sample([...nano, "--prompt-file", "prompt.txt"]);
    await sample(nano, "piped\n");
    await sample([...nano, "--prompt-file", "-"], "dash\n\n");
    expect(server.engine.heard).toEqual(["two\nlines", "piped", "dash\n"]);
  });

  it("samples from saved weights", async () => {
    await using service = new ServiceClient({ ...server.backend });
    const training = await service.createLoraTrainingClient({ baseModel: "tinkerts/nano" });
    const { path } = await training.saveWeightsForSampler("best");
    const { code, stdout } = await sample(["sample", "--model", path, "--prompt", "x"]);
    expect({ code, stdout }).toEqual({ code: 0, stdout: "yes\n" });
    expect(server.engine.requests[0]?.adapterId).not.toBeNull();
  });

  it("tells several answers apart", async () => {
    server.engine.answers = ["one\n", "two"];
    const { stdout } = await sample([...nano, "--prompt", "x", "--num-samples", "2"]);
    expect(stdout).toBe("--- 1 of 2 (stop)\none\n--- 2 of 2 (stop)\ntwo\n");
  });

  it("prints tokens, logprobs and the stop reason as JSON", async () => {
    server.engine.answers = ["12", "345"];
    const args = [...nano, "--prompt", "1", "--num-samples", "2", "--max-tokens", "3", "--json"];
    const { code, stdout, stderr } = await sample(args);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(JSON.parse(stdout)).toEqual({
      model: "tinkerts/nano",
      prompt: "1",
      promptTokens: [16],
      samples: [
        { text: "12", tokens: [16, 17, 511], logprobs: [-0.5, -1, -1.5], stopReason: "stop" },
        { text: "345", tokens: [18, 19, 20], logprobs: [-0.5, -1, -1.5], stopReason: "length" },
      ],
    });
  });

  it("shows logprobs token by token, and CSV", async () => {
    server.engine.answers = ["1\n", "1\n", "a,b", "1", "2"];
    const logprobs = [...nano, "--prompt", "x", "--logprobs", "--max-tokens", "2"];
    expect((await sample(logprobs)).stdout).toBe(
      'TOKEN  TEXT  LOGPROB\n   16  "1"   -0.5000\n  198  "\\n"  -1.0000\n',
    );
    expect((await sample([...logprobs, "--format", "csv"])).stdout).toBe(
      'token,text,logprob\n16,1,-0.5\n198,"\n",-1\n',
    );
    const csv = [...nano, "--prompt", "x", "--format", "csv"];
    expect((await sample(csv)).stdout).toMatch(/^text,tokens,stopReason\n"a,b",\d,stop\n$/);
    expect((await sample([...logprobs, "--num-samples", "2", "--max-tokens", "1"])).stdout).toMatch(
      /^SAMPLE {2}TOKEN .*\n {5}1 .*\n {5}2 .*\n$/,
    );
  });

  it.concurrent.each([
    [["--prompt", "x"], /^error: which model\? Give --model: a name .*tinker:\/\/ path .*folder of a run/],
    [["--model", "tinkerts/nano", "--prompt", ""], /^error: the prompt is empty/],
    [["--model", "tinkerts/nano"], /^error: the prompt is empty/],
    [["--model", "tinkerts/nano", "--prompt", "x", "--prompt-file", "y"], /--prompt-file.*--prompt/],
    [["--model", "tinkerts/nano", "--prompt-file", "nowhere.txt"], /--prompt-file .*nowhere\.txt/],
    [["--max-tokens", "0"], /--max-tokens.* positive integer/],
    [["--temperature", "hot"], /--temperature.* non-negative number/],
    [["--temperature", "-1"], /--temperature.* non-negative number/],
    [["--top-k", "0"], /--top-k.* -1 or a positive integer/],
    [["--top-p", "1.5"], /--top-p.* above 0 and at most 1/],
    [["--num-samples", "0"], /--num-samples.* whole number from 1/],
    [["--seed", "1.5"], /--seed.* an integer/],
    [["--stop", ""], /--stop.* must not be empty/],
  ])("ends with 2 for %j", async (args, message) => {
    const { code, stdout, stderr } = await sample(["sample", ...args]);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(message);
  });

  it("ends with 1 and a sentence where the server refuses", async () => {
    const unknown = await sample(["sample", "--model", "no/such", "--prompt", "x"]);
    expect(unknown).toMatchObject({
      code: 1,
      stdout: "",
      stderr: `error: ${server.backend.baseURL} refuses this: --model must be a model of this server (tinkerts/nano), got "no/such"\n`,
    });
    const path = await sample(["sample", "--model", "tinker://no/sampler_weights/x", "--prompt", "x"]);
    expect(path).toMatchObject({ code: 1, stderr: expect.stringContaining("no checkpoint tinker://no/") });
    const long = await sample([...nano, "--prompt", "x", "--max-tokens", "5000"]);
    expect(long).toMatchObject({ code: 1, stderr: expect.stringContaining("leave room for 512") });
    const nobody = await run([...nano, "--prompt", "x", "--base-url", "http://127.0.0.1:9"]);
    expect(nobody).toMatchObject({ code: 1, stderr: expect.stringContaining("cannot be reached") });
  });

  it("stops at an interrupt", async () => {
    server.engine.hold();
    try {
      const command = start([...nano, "--prompt", "x"], { env: server.env });
      await expect.poll(() => server.engine.requests.length).toBe(1);
      command.child.kill("SIGINT");
      expect(await command.finished).toEqual({ code: 130, stdout: "", stderr: "interrupted\n" });
    } finally {
      server.engine.open();
    }
  });

  it("stops at an interrupt while it reads the prompt", async () => {
    const { child, finished } = start([...nano], { env: server.env, stdin: "open" });
    // More than a pipe holds: once it is written, there is a reader.
    await new Promise((resolve) => child.stdin!.write("x".repeat(1 << 20), resolve));
    child.kill("SIGINT");
    expect(await finished).toEqual({ code: 130, stdout: "", stderr: "interrupted\n" });
  });

  it.skipIf(noTerminal)(
    `asks for a prompt at a terminal, and shows there that it waits ${noTerminal ?? ""}`,
    async () => {
      const without = openTerminal(nano, { env: server.env });
      await without.seen(/error: which prompt\? Give --prompt TEXT or --prompt-file FILE/);
      expect(await without.ended).toBe(2);
      server.engine.hold();
      server.engine.answers = ["red\x1b[31m\tyes"];
      const waiting = openTerminal([...nano, "--prompt", "x"], { env: server.env });
      try {
        await waiting.seen(/waiting for tinkerts\/nano 1 s/);
      } finally {
        server.engine.open();
      }
      // What a terminal would obey is not sent to it.
      await waiting.seen(/red\ufffd\[31m\tyes\r\n$/);
      expect(waiting.text()).toContain("\r\x1b[Kred");
      expect(await waiting.ended).toBe(0);
    },
  );
});
