// Every file of models/nano but the weights and what is measured of them: tokenizer, chat template, configuration.
import { ByteLevelTokenizer, countPieces, tokenizerJson, trainMerges } from "./bpe.mjs";
import { CHAT_TEMPLATE, END_OF_TEXT, SPECIAL_TOKENS, TURN_END } from "./chat.mjs";
import { drawDocument } from "./documents.mjs";
import { CONTEXT_LENGTH, modelConfig, VOCABULARY_SIZE } from "./model.mjs";
import { Random } from "./random.mjs";
import { games } from "./word-games.mjs";

const SEED = 20;
const DOCUMENTS = 20_000;

/** The content of each file by name, as text. */
export function modelFiles() {
  // Words of the word games are left out, so that they keep short tokens whose letters the model can learn.
  const counts = new Map();
  for (let index = 0; index < DOCUMENTS; index++) {
    const { kind, text } = drawDocument(new Random(SEED, index), false);
    if (kind !== "wordGames") countPieces(text, counts);
    else for (const line of ["Word:", `${games[index % games.length].label}:`]) countPieces(line, counts);
  }
  const json = tokenizerJson(trainMerges(counts, VOCABULARY_SIZE - 256 - SPECIAL_TOKENS.length));
  const tokenizer = new ByteLevelTokenizer(json);

  const added = Object.fromEntries(json.added_tokens.map(({ id, ...token }) => [id, token]));
  const files = {
    "tokenizer.json": json,
    "tokenizer_config.json": {
      add_bos_token: false,
      add_prefix_space: false,
      added_tokens_decoder: added,
      additional_special_tokens: SPECIAL_TOKENS.slice(1),
      bos_token: null,
      chat_template: CHAT_TEMPLATE,
      clean_up_tokenization_spaces: false,
      eos_token: TURN_END,
      errors: "replace",
      model_max_length: CONTEXT_LENGTH,
      pad_token: END_OF_TEXT,
      tokenizer_class: "PreTrainedTokenizerFast",
      unk_token: null,
    },
    "config.json": modelConfig({ endOfText: tokenizer.idOf(END_OF_TEXT), turnEnd: tokenizer.idOf(TURN_END) }),
    "generation_config.json": {
      do_sample: true,
      eos_token_id: [tokenizer.idOf(TURN_END), tokenizer.idOf(END_OF_TEXT)],
      pad_token_id: tokenizer.idOf(END_OF_TEXT),
      temperature: 1,
    },
  };
  return Object.fromEntries(
    Object.entries(files).map(([name, content]) => [name, `${JSON.stringify(content, null, 2)}\n`]),
  );
}
