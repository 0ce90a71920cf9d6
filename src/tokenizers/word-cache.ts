import type { Tokenizer } from "@huggingface/tokenizers";

const MAX_WORDS = 20_000;
const MAX_WORD_CHARACTERS = 64;

/** A part of the library: a function whose work is in its method. */
interface Part<Input> {
  _call(input: Input): string[];
}
type Splitter = Part<string> & { readonly tokenizers?: (Part<string[]> & ByteLevel)[] };
interface ByteLevel {
  readonly config?: { readonly type?: unknown };
  readonly use_regex?: unknown;
  readonly add_prefix_space?: unknown;
}

/**
 * Remembers the tokens of words. Nearly all words of a text were seen before, and the library remembers them only after
 * it has written out their bytes. Tokenizers whose words depend on their neighbours are left as they are.
 */
export function rememberWords(tokenizer: Tokenizer): void {
  const splitters = (tokenizer.pre_tokenizer as Splitter | null)?.tokenizers;
  const model = tokenizer.model as
    | (Part<string[]> & { readonly config: { type?: unknown }; fuse_unk?: unknown })
    | null;
  const byteLevel = splitters?.at(-1);
  if (byteLevel?.config?.type !== "ByteLevel" || byteLevel.use_regex !== false) return;
  if (byteLevel.add_prefix_space !== false || model?.config.type !== "BPE" || model.fuse_unk === true) return;

  splitters!.pop();
  const tokensOf = model._call.bind(model);
  const words = new Map<string, string[]>();
  model._call = (pieces) => {
    const tokens: string[] = [];
    for (const word of pieces) {
      let found = words.get(word);
      if (found === undefined) {
        found = tokensOf(byteLevel._call([word]));
        if (words.size === MAX_WORDS) words.clear();
        if (word.length <= MAX_WORD_CHARACTERS) words.set(copyOf(word), found);
      }
      for (const token of found) tokens.push(token);
    }
    return tokens;
  };
}

/** A string of its own: a part of a text would keep the whole text in memory. */
const copyOf = (word: string): string => JSON.parse(JSON.stringify(word)) as string;
