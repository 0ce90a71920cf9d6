import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { TinkerError } from "../../errors.js";
import { findChatTemplates } from "../../tokenizers/chat-template.js";
import type { GgufValue } from "./gguf-header.js";
import { splitterName } from "./splitters.js";

/** Metadata of a tokenizer in a GGUF file, with what a chat with the model needs. */
export interface TokenizerMetadata {
  readonly metadata: Record<string, GgufValue>;
  readonly chatTemplate: string | undefined;
  /** The contents of `tokenizer_config.json`. */
  readonly settings: Readonly<Record<string, unknown>>;
  /** Texts of the tokens that end an answer. */
  readonly stops: readonly string[];
}

const NORMAL = 1;
const UNKNOWN = 2;
const CONTROL = 3;
const USER_DEFINED = 4;
const UNUSED = 5;
const BYTE = 6;

const ADDED_TOKEN = z.looseObject({ id: z.number().int(), content: z.string(), special: z.boolean() });
const TOKENIZER = z.looseObject({
  added_tokens: z.array(ADDED_TOKEN).nullish(),
  normalizer: z.unknown(),
  pre_tokenizer: z.unknown(),
  post_processor: z.unknown(),
  model: z.looseObject({
    type: z.string().optional(),
    vocab: z.record(z.string(), z.number().int().nonnegative()),
    merges: z.array(z.union([z.string(), z.tuple([z.string(), z.string()])])),
    unk_token: z.string().nullish(),
    byte_fallback: z.boolean().nullish(),
  }),
});
type TokenizerFile = z.output<typeof TOKENIZER>;
const TOKEN_IDS = z
  .union([z.number().int(), z.array(z.number().int())])
  .nullish()
  .transform((ids) => (ids === null || ids === undefined ? [] : [ids].flat()));
const SPECIAL_TOKEN = z
  .union([z.string(), z.looseObject({ content: z.string() }).transform(({ content }) => content)])
  .nullish();
const TOKENIZER_CONFIG = z.looseObject({
  bos_token: SPECIAL_TOKEN,
  eos_token: SPECIAL_TOKEN,
  pad_token: SPECIAL_TOKEN,
  unk_token: SPECIAL_TOKEN,
  add_bos_token: z.boolean().nullish(),
});
const MODEL_TOKENS = z.looseObject({ bos_token_id: TOKEN_IDS, eos_token_id: TOKEN_IDS });

/** Reads the tokenizer of a model folder as metadata of a GGUF file with `vocabSize` tokens. */
export async function tokenizerMetadata(
  folder: string,
  config: Readonly<Record<string, unknown>>,
  vocabSize: number,
): Promise<TokenizerMetadata> {
  const path = join(folder, "tokenizer.json");
  const tokenizer = await readChecked(path, TOKENIZER);
  if (tokenizer === undefined) {
    throw new TinkerError(
      `${folder} has no tokenizer.json; make one with transformers: AutoTokenizer.from_pretrained(folder).save_pretrained(folder).`,
    );
  }
  if (tokenizer.model.type !== undefined && tokenizer.model.type !== "BPE") {
    throw new TinkerError(
      `${path}: a tokenizer of type ${tokenizer.model.type} has no form in GGUF, only BPE has.`,
    );
  }
  const settings = (await readChecked(join(folder, "tokenizer_config.json"), TOKENIZER_CONFIG)) ?? {};
  const generation = await readChecked(join(folder, "generation_config.json"), MODEL_TOKENS);
  const { tokens, types } = tokenList(tokenizer, vocabSize, path);
  const idOf = (text: string | null | undefined) => {
    const id = text === null || text === undefined ? -1 : tokens.indexOf(text);
    return id === -1 ? undefined : id;
  };
  const model = MODEL_TOKENS.parse(config);
  const first = openingToken(tokenizer);
  const bos = idOf(settings.bos_token) ?? idOf(first) ?? model.bos_token_id[0];
  const ends = [
    ...new Set(
      [idOf(settings.eos_token), ...(generation?.eos_token_id ?? []), ...model.eos_token_id].filter(
        (id) => id !== undefined && id < vocabSize,
      ),
    ),
  ];
  const ownFile = await readFile(join(folder, "chat_template.jinja"), "utf8").catch(() => undefined);
  const chatTemplate = findChatTemplates(settings, ownFile).get("default");
  const metadata: Record<string, GgufValue> = {
    ...(tokenizer.model.byte_fallback ? sentencePiece(tokenizer, tokens) : bytePairs(tokenizer, path)),
    "tokenizer.ggml.tokens": { strings: tokens },
    "tokenizer.ggml.token_type": { int32s: types },
    "tokenizer.ggml.add_bos_token": first === undefined ? (settings.add_bos_token ?? false) : true,
  };
  const special = {
    bos,
    eos: ends[0],
    // Three that may end an answer have a name in the format.
    eot: ends[1],
    eom: ends[2],
    unknown: idOf(tokenizer.model.unk_token ?? settings.unk_token),
    padding: idOf(settings.pad_token),
  };
  for (const [name, id] of Object.entries(special)) {
    if (id !== undefined) metadata[`tokenizer.ggml.${name}_token_id`] = { uint32: id };
  }
  if (chatTemplate !== undefined) metadata["tokenizer.chat_template"] = chatTemplate;
  return { metadata, chatTemplate, settings, stops: ends.map((id) => tokens[id!]!) };
}

function tokenList(
  { model, added_tokens: added }: TokenizerFile,
  vocabSize: number,
  path: string,
): { tokens: string[]; types: number[] } {
  const tokens = Array.from({ length: vocabSize }, (_, id) => `[PAD${id}]`);
  const types: number[] = tokens.map(() => UNUSED);
  const put = (text: string, id: number, type: number) => {
    if (id >= vocabSize) {
      throw new TinkerError(
        `${path}: token ${JSON.stringify(text)} has the id ${id}, but the model has ${vocabSize} tokens.`,
      );
    }
    tokens[id] = text;
    types[id] = type;
  };
  for (const [text, id] of Object.entries(model.vocab)) {
    const isByte = model.byte_fallback === true && /^<0x[0-9A-F]{2}>$/.test(text);
    put(text, id, isByte ? BYTE : text === model.unk_token ? UNKNOWN : NORMAL);
  }
  for (const { id, content, special } of added ?? []) {
    if (types[id] !== UNKNOWN) put(content, id, special ? CONTROL : USER_DEFINED);
  }
  return { tokens, types };
}

/** The settings of a byte-level tokenizer, like GPT-2's. */
function bytePairs(tokenizer: TokenizerFile, path: string): Record<string, GgufValue> {
  const merges = tokenizer.model.merges.map((pair) => (typeof pair === "string" ? pair : pair.join(" ")));
  return {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": splitterName(tokenizer.pre_tokenizer, path),
    "tokenizer.ggml.merges": { strings: merges },
  };
}

/** The settings of a SentencePiece tokenizer: it merges by scores, which fall in the order of the merges. */
function sentencePiece(tokenizer: TokenizerFile, tokens: readonly string[]): Record<string, GgufValue> {
  const order = new Map<string, number>();
  for (const pair of tokenizer.model.merges) {
    const merged = typeof pair === "string" ? pair.replace(" ", "") : pair.join("");
    if (!order.has(merged)) order.set(merged, order.size);
  }
  const prefix = JSON.stringify([tokenizer.normalizer, tokenizer.pre_tokenizer]);
  return {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.pre": "default",
    "tokenizer.ggml.scores": { float32s: tokens.map((token) => -(order.get(token) ?? order.size)) },
    "tokenizer.ggml.add_space_prefix":
      /"type":"Prepend"/.test(prefix) || /"prepend_scheme":"(?:first|always)"/.test(prefix),
  };
}

/** The special token that the tokenizer puts before each text. */
function openingToken({ post_processor }: TokenizerFile): string | undefined {
  const found = /"single":\[\{"SpecialToken":\{"id":("(?:[^"\\]|\\.)*")/.exec(
    JSON.stringify(post_processor) ?? "",
  );
  return found === null ? undefined : (JSON.parse(found[1]!) as string);
}

async function readChecked<T extends z.ZodType>(path: string, schema: T): Promise<z.output<T> | undefined> {
  const text = await readFile(path, "utf8").catch(() => undefined);
  if (text === undefined) return undefined;
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw new TinkerError(`${path} is not JSON.`, { cause: error });
  }
  const parsed = schema.safeParse(json);
  if (parsed.success) return parsed.data;
  const { path: where, message } = parsed.error.issues[0]!;
  throw new TinkerError(`${path}: ${where.join(".")}: ${message}.`);
}
