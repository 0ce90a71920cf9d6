import { createTextTokenizer } from "../../tokenizers/files.js";
import type { TextTokenizer } from "../../tokenizers/text-tokenizer.js";
import { EngineInputError } from "./engine.js";
import type { EngineModel, ModelTokenizer } from "./engine-core.js";
import { modelFilesOf, shardsOf } from "./model/model-files.js";

/** A model that a page has fetched. */
export interface FetchedModel extends EngineModel {
  /** From text to tokens and back; absent where the model has no `tokenizer.json`. */
  tokenizer?: ModelTokenizer & TextTokenizer;
}

/** Fetches a Hugging Face folder from the address that serves it: configuration, weights and tokenizer. */
export async function fetchModel(name: string, folder: string | URL): Promise<FetchedModel> {
  const path = new URL(`${folder}`.replace(/\/?$/, "/"), globalThis.location?.href).href;
  const [config, generationConfig, weights, tokenizerJson, tokenizerConfig] = await Promise.all([
    fetchFile(path, "config.json").then(parseJson),
    fetchOptional(path, "generation_config.json").then((file) => file && parseJson(file)),
    fetchWeights(path),
    fetchOptional(path, "tokenizer.json").then(textOf),
    fetchOptional(path, "tokenizer_config.json").then(textOf),
  ]);
  const model = { name, open: () => modelFilesOf({ path, config, generationConfig, weights }) };
  if (tokenizerJson === undefined) return model;
  const files = {
    "tokenizer.json": tokenizerJson,
    ...(tokenizerConfig === undefined ? {} : { "tokenizer_config.json": tokenizerConfig }),
  };
  const text = createTextTokenizer(files, path);
  const tokenizer = {
    encode: text.encode.bind(text),
    decode: text.decode.bind(text),
    json: () => JSON.parse(tokenizerJson) as unknown,
  };
  return { ...model, tokenizer };
}

interface FetchedFile {
  url: string;
  bytes: Uint8Array;
}

async function fetchWeights(path: string): Promise<Uint8Array[]> {
  const whole = await fetchOptional(path, "model.safetensors");
  if (whole) return [whole.bytes];
  const index = await fetchFile(path, "model.safetensors.index.json");
  const shards = shardsOf(parseJson(index), index.url);
  return Promise.all(shards.map(async (shard) => (await fetchFile(path, shard)).bytes));
}

async function fetchFile(path: string, name: string): Promise<FetchedFile> {
  const file = await fetchOptional(path, name);
  if (!file) throw new EngineInputError(`there is no ${name} at ${path}`);
  return file;
}

async function fetchOptional(path: string, name: string): Promise<FetchedFile | undefined> {
  const url = new URL(name, path).href;
  const response = await fetch(url);
  // Some servers answer with a page of their own for what they do not have.
  const isPage = response.headers.get("content-type")?.startsWith("text/html");
  if (response.status === 404 || isPage) return undefined;
  if (!response.ok) throw new EngineInputError(`${url} cannot be fetched: status ${response.status}`);
  return { url, bytes: new Uint8Array(await response.arrayBuffer()) };
}

const textOf = (file: FetchedFile | undefined) => file && new TextDecoder().decode(file.bytes);

function parseJson(file: FetchedFile): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(file.bytes));
  } catch {
    throw new EngineInputError(`${file.url} is not JSON`);
  }
}
