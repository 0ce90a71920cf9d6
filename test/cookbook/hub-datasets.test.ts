import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { comparisons, conversations, split } from "../../src/cookbook/index.js";
import { FakeHub } from "../support/fake-hub.js";

const parquet = await readFile(new URL("../fixtures/data/formats/pandas.parquet", import.meta.url));
const lines = (...words: string[]) =>
  words.map((word) => `${JSON.stringify({ prompt: word, completion: "x" })}\n`).join("");

const CONVERTED = { kind: "datasets", revision: "refs/convert/parquet" } as const;
const OWN = { kind: "datasets" } as const;

describe("a data set of the hub", () => {
  let folder: string;
  let hub: FakeHub;

  async function start(files: Record<string, string | Uint8Array>, options: typeof OWN | typeof CONVERTED) {
    hub = await FakeHub.start("people/sums", files, options);
    vi.stubEnv("HF_ENDPOINT", hub.url);
  }
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), "tinkerts-dataset-"));
    vi.stubEnv("HF_HUB_CACHE", folder);
  });
  afterEach(async () => {
    vi.unstubAllEnvs();
    await hub.close();
    await rm(folder, { recursive: true });
  });

  async function prompts(name: string): Promise<readonly unknown[]> {
    await using rows = await conversations(name).open();
    const read = await rows.read([...Array(rows.length).keys()]);
    return read.map(({ messages }) => messages[0]!.content);
  }

  it("is read from the Parquet that the Hub keeps of it, and then from the cache alone", async () => {
    await start({ "default/train/0000.parquet": parquet, "default/test/0000.parquet": parquet }, CONVERTED);
    const [first] = await prompts("hf:people/sums");
    expect(first).toBe("What is 12 + 7?");
    expect(hub.asked).toEqual([
      "/api/datasets/people/sums/revision/refs%2Fconvert%2Fparquet",
      expect.stringMatching(/\/default\/train\/0000\.parquet$/),
    ]);
    // The layout of the Hugging Face libraries.
    const place = join(folder, "datasets--people--sums");
    expect(await readFile(join(place, "refs/refs/convert/parquet"), "utf8")).toBe(FakeHub.COMMIT);
    expect(await readdir(join(place, "snapshots", FakeHub.COMMIT, "default"))).toEqual(["train"]);
    hub.asked.length = 0;
    vi.stubEnv("HF_HUB_OFFLINE", "1");
    expect(await prompts("hf:people/sums")).toHaveLength(6);
    expect(hub.asked).toEqual([]);
    await expect(prompts("hf:people/sums:test")).rejects.toThrow(
      "hf:people/sums:test is not in the Hugging Face cache, and HF_HUB_OFFLINE forbids to download it.",
    );
  });

  it("has configs and splits, which are named where there are several", async () => {
    await start(
      {
        "main/train/0000.parquet": parquet,
        "main/test/0000.parquet": parquet,
        "other/train/0000.parquet": parquet,
      },
      CONVERTED,
    );
    await expect(prompts("hf:people/sums")).rejects.toThrow(
      "people/sums has the configs main, other: say which, as hf:people/sums/main.",
    );
    await expect(prompts("hf:people/sums/third")).rejects.toThrow(
      "people/sums has no config third, only main, other.",
    );
    await expect(prompts("hf:people/sums/main:dev")).rejects.toThrow(
      "people/sums has no split dev, only test, train: say which, as hf:people/sums/main:test.",
    );
    expect(hub.asked.filter((path) => path.includes("/resolve/"))).toEqual([]);
    expect(await prompts("hf:people/sums/main:test")).toHaveLength(6);
  });

  it("is read from its own files where the Hub has not converted it, or a revision is named", async () => {
    const files = {
      "README.md": "# Sums",
      "data/train-2.jsonl": lines("second"),
      "data/train-10.jsonl": lines("third"),
      "data/train-1.jsonl": lines("first"),
      "data/validation.jsonl": lines("held out"),
      "extra/eval data.jsonl": lines("extra"),
      "dataset_infos.json": "{}",
    };
    await start(files, OWN);
    expect(await prompts("hf:people/sums")).toEqual(["first", "second", "third"]);
    expect(await prompts("hf:people/sums@main:validation")).toEqual(["held out"]);
    expect(await prompts("hf:people/sums/extra:test")).toEqual(["extra"]);
    await expect(prompts("hf:people/sums@v2")).rejects.toThrow(
      /has no data set people\/sums with revision v2 \(status 404\)/,
    );
  });

  it("may be CSV, mixed with files by weight, and of comparisons", async () => {
    await start({ "train.csv": "prompt,chosen,rejected\na,b,c\n" }, OWN);
    await using pairs = await comparisons("hf:people/sums").open();
    expect((await pairs.read([0]))[0]).toMatchObject({ label: "A" });
    expect(split(pairs).train.length).toBe(1);
    const file = join(folder, "own.jsonl");
    await writeFile(file, lines("own"));
    await expect(prompts("hf:people/sums=2")).rejects.toThrow("train.csv row 1: completion is missing");
    await expect(conversations([`${file}=2`, "hf:people/sums=1"]).open()).resolves.toMatchObject({
      length: 3,
    });
  });

  it("whose download was cut is downloaded to its end the next time", async () => {
    await start({ "train.jsonl": lines("a", "b") }, OWN);
    const path = join(folder, "datasets--people--sums/snapshots", FakeHub.COMMIT, "train.jsonl.incomplete");
    await prompts("hf:people/sums");
    await rm(path.replace(".incomplete", ""));
    await writeFile(path, lines("a"));
    expect(await prompts("hf:people/sums")).toEqual(["a", "b"]);
    expect(hub.asked.at(-1)).toMatch(/train\.jsonl bytes=\d+-$/);
    await expect(stat(path)).rejects.toThrow("ENOENT");
  });

  it.each([
    ["hf:sums", /hf:sums is not the name of a data set: expected hf:OWNER\/NAME/],
    ["hf:people/sums@../x", /is not the name of a data set/],
    ["hf:people/sums@..%2Fx", /is not the name of a data set/],
    ["hf:people/sums:a:b", /is not the name of a data set/],
    ["hf:people/none", /has no data set people\/none with revision main \(status 404\)/],
    ["hf:people/sums", /hf:people\/sums has no file with rows/],
  ])("%s is refused", async (name, message) => {
    await start({ "README.md": "# Sums" }, OWN);
    await expect(prompts(name)).rejects.toThrow(message);
  });

  it("that names a file outside of its folder is refused", async () => {
    await start({ "../../train.jsonl": lines("a") }, OWN);
    await expect(prompts("hf:people/sums")).rejects.toThrow(
      /has a file with a strange name: \.\.\/\.\.\/train\.jsonl/,
    );
    expect(await readdir(folder)).toEqual([]);
  });
});
