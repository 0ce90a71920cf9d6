import { execFileSync } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { defaultModel } from "../../src/local/default-model.js";
import { startLocalBackend } from "../../src/local/index.js";
import { readTokenizer } from "../../src/local/tokenizer.js";
import { createTextTokenizer } from "../../src/tokenizers/files.js";
import { silent } from "../local/raw-client.js";
import { type Family, readFiles } from "../tokenizers/fixtures.js";
import { explainSkip, hasPython, lastLine, python, pythonFile, runPython } from "./judge.js";
import { Random } from "./random.js";

explainSkip("tokenizers.test.ts");

it.skipIf(!hasPython)(
  "every way to a tokenizer that docs/coming-from-python.md shows leads to the model's own",
  async () => {
    await using backend = await startLocalBackend({ logger: silent, apiKeys: ["tml-one-key-of-the-test"] });
    const folder = await mkdtemp(join(tmpdir(), "tinkerts-tokenizers-"));
    const settings = {
      baseURL: backend.baseURL,
      apiKey: "tml-one-key-of-the-test",
      model: defaultModel.name,
      folder,
    };
    const output = await runPython("find_tokenizers.py", settings).finally(() =>
      rm(folder, { recursive: true }),
    );
    const found = lastLine<Record<string, number[]>>(output);
    const expected = readTokenizer(defaultModel.path)!.encode("What is 2 + 3?");
    expect(Object.keys(found).length).toBeGreaterThanOrEqual(4);
    for (const tokens of Object.values(found)) expect(tokens).toEqual(expected);
  },
);

/** First and last character of 20 scripts, one of ideographs and one of emoji among them. */
const SCRIPTS = [
  ["a", "z"],
  ["À", "ɏ"],
  ["α", "ω"],
  ["а", "я"],
  ["ա", "ֆ"],
  ["א", "ת"],
  ["ء", "ي"],
  ["अ", "ह"],
  ["অ", "হ"],
  ["அ", "ஹ"],
  ["అ", "హ"],
  ["ก", "ฮ"],
  ["ກ", "ຮ"],
  ["ཀ", "ཨ"],
  ["ა", "ჰ"],
  ["가", "힣"],
  ["ሀ", "ፚ"],
  ["ぁ", "ヺ"],
  ["一", "龥"],
  ["😀", "🙏"],
] as const;
const WORDS_PER_SCRIPT = 2_000;
const TEXTS = 100_000;

/** Texts whose words occur again and again, more of them than the tokenizer remembers. */
function makeTexts(random: Random): string[] {
  const words = SCRIPTS.map(([first, last]) => {
    const from = first.codePointAt(0)!;
    const character = () => String.fromCodePoint(random.integer(from, last.codePointAt(0)!));
    return random.times(WORDS_PER_SCRIPT, () => random.times(random.integer(1, 12), character).join(""));
  });
  const between = [" ", " ", " ", "", ", ", ".\n", "\n\n", "  ", "'s ", " 42", "-", "\u00a0", "\u3000", "\t"];
  return random.times(TEXTS, () => {
    const script = random.pick(words);
    return random.times(random.integer(1, 12), () => random.pick(script) + random.pick(between)).join("");
  });
}

it.skipIf(!hasPython).each<Family>(["nano", "qwen3"])(
  "100,000 texts of 20 scripts have the Rust tokenizers' tokens: %s",
  async (family) => {
    const folder = await mkdtemp(join(tmpdir(), "tinkerts-texts-"));
    try {
      const texts = makeTexts(new Random(1));
      const files = readFiles(family);
      await writeFile(join(folder, "tokenizer.json"), files["tokenizer.json"]!);
      await writeFile(join(folder, "texts.json"), JSON.stringify(texts));
      const args = ["tokenizer.json", "texts.json"].map((name) => join(folder, name));
      const output = execFileSync(python, [pythonFile("encode_texts.py"), ...args], {
        encoding: "utf8",
        maxBuffer: 2 ** 30,
      });
      const expected = output.split("\n");
      const tokenizer = createTextTokenizer(files, family);
      const wrong = texts.filter(
        (text, index) => tokenizer.encode(text, { addSpecialTokens: false }).join() !== expected[index],
      );
      expect(expected.length).toBe(TEXTS + 1);
      expect(wrong.slice(0, 5)).toEqual([]);
    } finally {
      await rm(folder, { recursive: true });
    }
  },
);
