import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { downloadFromHub } from "../../src/tokenizers/hub.js";
import { loadTokenizer, modelInputFromText, tokenizerForModel } from "../../src/tokenizers/index.js";
import { COMMIT, type FakeHub, startFakeHub } from "./fake-hub.js";
import { readFiles, writeFolder } from "./fixtures.js";

const nano = readFiles("nano");
const text = "English: stick\n47+38=85";
const repository = "models--org--model";

let home: string;
let cacheFolder: string;
let hub: FakeHub;

beforeEach(async () => {
  home = mkdtempSync(join(tmpdir(), "tinkerts-hub-"));
  cacheFolder = join(home, "hub");
  hub = await startFakeHub({ ...nano, "model.safetensors": "never wanted" });
  vi.stubEnv("HF_HOME", home);
  vi.stubEnv("HF_HUB_CACHE", undefined);
  vi.stubEnv("HF_ENDPOINT", `${hub.endpoint}/`);
  vi.stubEnv("HF_TOKEN", undefined);
  vi.stubEnv("HF_HUB_OFFLINE", undefined);
});

afterEach(async () => {
  vi.unstubAllEnvs();
  await hub.close();
  rmSync(home, { recursive: true, force: true });
});

describe("loadTokenizer", () => {
  it("reads a folder without a network", async () => {
    const folder = writeFolder(nano, join(home, "folder"));
    const tokenizer = await loadTokenizer(folder);
    expect(tokenizer.decode(tokenizer.encode(text))).toBe(text);
    expect(tokenizer.name).toBe(folder);
    expect(hub.requests).toEqual([]);
  });

  it("knows the package's own model", async () => {
    const tokenizer = await tokenizerForModel({ modelName: "tinkerts/nano" });
    const chat = [{ role: "user", content: "Hi" }];
    const written = tokenizer.applyChatTemplate(chat, { addGenerationPrompt: true, tokenize: false });
    expect(written).toBe("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    expect(tokenizer.decode(tokenizer.applyChatTemplate(chat, { addGenerationPrompt: true }))).toBe(written);
    expect(tokenizer.decode(tokenizer.applyChatTemplate(chat))).toBe("<|im_start|>user\nHi<|im_end|>\n");
    expect(hub.requests).toEqual([]);
    const input = modelInputFromText(text, tokenizer);
    expect(input.length).toBe(tokenizer.encode(text).length);
  });

  it("downloads what it needs, all of one commit, into the cache that others share", async () => {
    vi.stubEnv("HF_TOKEN", "hf_secret");
    const tokenizer = await loadTokenizer("org/model");
    expect(tokenizer.decode(tokenizer.encode(text))).toBe(text);
    expect(hub.requests.map(({ path }) => path)).toEqual([
      "/api/models/org/model/revision/main",
      `/org/model/resolve/${COMMIT}/tokenizer.json`,
      `/org/model/resolve/${COMMIT}/tokenizer_config.json`,
    ]);
    expect(new Set(hub.requests.map(({ authorization }) => authorization))).toEqual(
      new Set(["Bearer hf_secret"]),
    );
    expect(readFileSync(join(cacheFolder, repository, "refs/main"), "utf8")).toBe(COMMIT);
    const snapshot = join(cacheFolder, repository, "snapshots", COMMIT);
    expect(readdirSync(snapshot).sort()).toEqual(["tokenizer.json", "tokenizer_config.json"]);
    expect(readFileSync(join(snapshot, "tokenizer.json"), "utf8")).toBe(nano["tokenizer.json"]);
  });

  it("stops a download that is larger than any tokenizer", async () => {
    let sent = 0;
    const body = new ReadableStream<Uint8Array>({
      pull(controller) {
        sent += 1;
        controller.enqueue(new Uint8Array(2 ** 20));
      },
    });
    const endless = () => Promise.resolve(new Response(body));
    const source = { endpoint: "http://hub", token: undefined, fetch: endless };
    await expect(downloadFromHub({ id: "org/model", revision: "main" }, source)).rejects.toThrow(
      "is larger than any tokenizer: more than 16777216 bytes",
    );
    expect(sent).toBeLessThan(20);
  });

  it("loads once for all who ask at the same time, and again after a failure", async () => {
    hub.status = 503;
    await expect(loadTokenizer("org/model")).rejects.toThrow(/status 503/);
    hub.status = undefined;
    hub.requests.length = 0;
    const [one, two] = await Promise.all([loadTokenizer("org/model"), loadTokenizer("org/model")]);
    expect(one).toBe(two);
    expect(await tokenizerForModel({ modelName: "org/model/variant:x" })).toBe(one);
    expect(hub.requests).toHaveLength(3);
  });

  it("takes a cached snapshot without asking, by branch or by commit", async () => {
    const snapshot = join(cacheFolder, repository, "snapshots", COMMIT);
    writeFolder(nano, snapshot);
    mkdirSync(join(cacheFolder, repository, "refs"));
    writeFileSync(join(cacheFolder, repository, "refs/main"), `${COMMIT}\n`);
    const tokenizer = await loadTokenizer("org/model", { offline: true });
    expect(tokenizer.encode(text)).toEqual((await loadTokenizer("tinkerts/nano")).encode(text));
    await loadTokenizer("org/model");
    await loadTokenizer("org/model", { revision: COMMIT });
    expect(hub.requests).toEqual([]);
    await loadTokenizer("org/model", { revision: "v1" });
    expect(hub.requests).toHaveLength(3);
    expect(readFileSync(join(cacheFolder, repository, "refs/v1"), "utf8")).toBe(COMMIT);
  });

  it("completes a snapshot that has the vocabulary only, or makes do with it", async () => {
    const snapshot = join(cacheFolder, repository, "snapshots", COMMIT);
    writeFolder({ "tokenizer.json": nano["tokenizer.json"]! }, snapshot);
    hub.status = 500;
    const bare = await loadTokenizer("org/model", { revision: COMMIT });
    expect(bare.decode(bare.encode(text))).toBe(text);
    expect(() => bare.applyChatTemplate([])).toThrow(/org\/model has no chat template/);
    hub.status = undefined;
    await loadTokenizer("org/model", { revision: COMMIT, cacheFolder: `${cacheFolder}/` });
    expect(existsSync(join(snapshot, "tokenizer_config.json"))).toBe(true);
  });

  it("says offline which files it wanted, where it looked and what to do", async () => {
    vi.stubEnv("HF_HUB_OFFLINE", "1");
    const failure = loadTokenizer("org/model");
    await expect(failure).rejects.toThrow(
      /no tokenizer\.json and no tiktoken\.model in .*models--org--model/,
    );
    await expect(failure).rejects.toThrow(/Load it once with HF_HUB_OFFLINE unset/);
    await expect(failure).rejects.toThrow(join(cacheFolder, repository));
    expect(hub.requests).toEqual([]);
  });

  it("says what is wrong with the hub's answer", async () => {
    hub.status = 401;
    await expect(loadTokenizer("org/model")).rejects.toThrow(/gated, private or not there.*HF_TOKEN/);
    await expect(loadTokenizer("org/model", { token: "hf_x" })).rejects.toThrow(/may not read it/);
    hub.status = undefined;
    await expect(loadTokenizer("org/other")).rejects.toThrow(/no model org\/other with revision main/);
    await hub.close();
    await expect(loadTokenizer("org/third")).rejects.toThrow(/could not be reached: .*not in the cache/s);
  });

  it("says that a repository or a folder has no tokenizer", async () => {
    const empty = await startFakeHub({ "config.json": "{}" });
    await expect(loadTokenizer("org/model", { endpoint: empty.endpoint })).rejects.toThrow(
      /no tokenizer\.json and no tiktoken\.model at revision main/,
    );
    await empty.close();
    await expect(loadTokenizer(home)).rejects.toThrow(/folder .* has no tokenizer\.json/);
    await expect(loadTokenizer("../nowhere")).rejects.toThrow(/neither a folder .* nor a Hugging Face id/);
    await expect(loadTokenizer("org/..")).rejects.toThrow(/nor a Hugging Face id/);
    await expect(loadTokenizer("org/model", { revision: "../x" })).rejects.toThrow(/name of a revision/);
    writeFolder({ "tokenizer.json": "{" }, join(home, "broken"));
    await expect(loadTokenizer(join(home, "broken"))).rejects.toThrow(
      /tokenizer\.json in .* is not valid JSON/,
    );
  });

  it("loads tiktoken files, and a chat template from its own file before that of the settings", async () => {
    const folder = writeFolder(
      { ...readFiles("kimi"), "chat_template.jinja": "{{ messages[0].content }}{{ eos_token }}{{ extra }}" },
      join(home, "kimi"),
    );
    const tokenizer = await loadTokenizer(folder);
    const written = tokenizer.applyChatTemplate([{ role: "user", content: "你好" }], {
      tokenize: false,
      variables: { extra: "!" },
    });
    expect(written).toBe("你好[EOS]!");
    expect(tokenizer.decode(tokenizer.encode(written))).toBe(written);
  });

  it("hands on a template's own complaint", async () => {
    const template = "{{ raise_exception('Roles must alternate') }}";
    const folder = writeFolder({ ...nano, "chat_template.jinja": template }, join(home, "strict"));
    const tokenizer = await loadTokenizer(folder);
    expect(() => tokenizer.applyChatTemplate([{ role: "user", content: "x" }])).toThrow(
      /refused this conversation: .*Roles must alternate/,
    );
    expect(() => tokenizer.applyChatTemplate([])).toThrow(/messages must be a list of at least one message/);
  });
});
