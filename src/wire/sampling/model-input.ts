import { TinkerError, ValidationError } from "../../errors.js";
import { base64ToBytes, bytesToBase64 } from "../base64.js";
import * as f from "../fields/index.js";
import { toNumbers } from "../json-keys.js";
import { isRecord } from "../reading.js";
import { dmelShape } from "./dmel.js";

/** The image formats that models read. */
export type ImageFormat = "png" | "jpeg";

/** A piece of text, as token ids. */
export interface EncodedTextChunk {
  readonly type: "encoded_text";
  readonly tokens: Int32Array;
}

/** An image, as the bytes of its file. */
export interface ImageChunk {
  readonly type: "image";
  readonly data: Uint8Array;
  readonly format: ImageFormat;
  /** Tokens the image is expected to take; the server counts for itself and refuses a wrong number early. */
  readonly expectedTokens?: number | undefined;
}

/** An image that the server fetches from a path or URL. */
export interface ImageAssetPointerChunk {
  readonly type: "image_asset_pointer";
  readonly format: ImageFormat;
  /** Path or URL of the image. */
  readonly location: string;
  readonly expectedTokens?: number | undefined;
}

/** Audio, as tokens in a container. */
export interface DmelChunk {
  readonly type: "dmel";
  /** A serialized tensor container with the audio's tokens. */
  readonly dmel: Uint8Array;
}

/** One piece of what a model reads. */
export type ModelInputChunk = EncodedTextChunk | ImageChunk | ImageAssetPointerChunk | DmelChunk;

/** A list of token ids in any of the forms tokenizers return. */
export type TokensLike = ArrayLike<number> | BigInt64Array | BigUint64Array;

/** A chunk as it may be given: any list of tokens, bytes also as base64 text. */
export type ModelInputChunkLike =
  | ModelInputChunk
  | { readonly type: "encoded_text"; readonly tokens: TokensLike }
  | {
      readonly type: "image";
      readonly data: Uint8Array | string;
      readonly format: ImageFormat;
      readonly expectedTokens?: number | null | undefined;
    }
  | {
      readonly type: "image_asset_pointer";
      readonly format: ImageFormat;
      readonly location: string;
      readonly expectedTokens?: number | null | undefined;
    }
  | { readonly type: "dmel"; readonly dmel: Uint8Array | string };

/** Anything that a model input can be made from: tokens, chunks, or an object with `chunks`. */
export type ModelInputLike =
  | ModelInput
  | TokensLike
  | readonly ModelInputChunkLike[]
  | { readonly chunks: readonly ModelInputChunkLike[] };

/** Input of a model: text tokens, images and audio in order. Never changes; `append` returns a new one. */
export class ModelInput {
  readonly chunks: readonly ModelInputChunk[];

  private constructor(chunks: readonly ModelInputChunk[]) {
    this.chunks = chunks;
  }

  /** An `Int32Array` is taken as it is, not copied: do not change it afterwards. */
  static fromInts(tokens: TokensLike): ModelInput {
    return new ModelInput([{ type: "encoded_text", tokens: toTokens(tokens, "tokens") }]);
  }

  /** The tokens of a text; any object with `encode` is a tokenizer here. */
  static fromText(text: string, tokenizer: { encode(text: string): TokensLike }): ModelInput {
    return ModelInput.fromInts(tokenizer.encode(text));
  }

  static empty(): ModelInput {
    return new ModelInput([]);
  }

  /** Takes tokens, chunks, or anything with `chunks`; `field` is the name errors give it. */
  static from(value: ModelInputLike, field = "modelInput"): ModelInput {
    if (value instanceof ModelInput) return value;
    if (ArrayBuffer.isView(value) || (Array.isArray(value) && typeof value[0] !== "object")) {
      return new ModelInput([{ type: "encoded_text", tokens: toTokens(value as TokensLike, field) }]);
    }
    if (typeof value === "string") {
      throw new ValidationError(
        field,
        `${field} must be tokens, got the text ${f.describe(value)}: encode it with the model's tokenizer first`,
      );
    }
    const hasChunks = typeof value === "object" && value !== null && "chunks" in value;
    const chunks: unknown = hasChunks ? value.chunks : value;
    const path = hasChunks ? f.subfield(field, "chunks") : field;
    if (!Array.isArray(chunks)) throw f.wrongValue(path, "a ModelInput, tokens or a list of chunks", chunks);
    return new ModelInput(f.list(chunkField).check(chunks, path));
  }

  /** Tokens, images and audio counted together; throws where an image does not say its `expectedTokens`. */
  get length(): number {
    let length = 0;
    for (const chunk of this.chunks) length += chunkLength(chunk);
    return length;
  }

  /** True when every chunk is text. */
  get isText(): boolean {
    return this.chunks.every((chunk) => chunk.type === "encoded_text");
  }

  toInts(): number[] {
    const tokens: number[] = [];
    for (const [index, chunk] of this.chunks.entries()) {
      if (chunk.type !== "encoded_text") {
        throw new TinkerError(`toInts needs text alone, but chunk ${index} is of type ${chunk.type}`);
      }
      for (const token of chunk.tokens) tokens.push(token);
    }
    return tokens;
  }

  append(chunk: ModelInputChunkLike): ModelInput {
    return new ModelInput([...this.chunks, chunkField.check(chunk, "chunk")]);
  }

  /** Adds one token to the last text chunk, or begins one. */
  appendInt(token: number): ModelInput {
    const added = toTokens([token], "token");
    const last = this.chunks.at(-1);
    if (last?.type !== "encoded_text")
      return new ModelInput([...this.chunks, { type: "encoded_text", tokens: added }]);
    const tokens = new Int32Array(last.tokens.length + 1);
    tokens.set(last.tokens);
    tokens[last.tokens.length] = added[0]!;
    return new ModelInput([...this.chunks.slice(0, -1), { type: "encoded_text", tokens }]);
  }
}

/** Positions of the context that a chunk takes. */
export function chunkLength(chunk: ModelInputChunk): number {
  switch (chunk.type) {
    case "encoded_text":
      return chunk.tokens.length;
    case "image":
    case "image_asset_pointer":
      if (chunk.expectedTokens === undefined) {
        throw new TinkerError(
          `the length of a chunk of type ${chunk.type} is unknown without its expectedTokens`,
        );
      }
      return chunk.expectedTokens;
    case "dmel": {
      const [length] = dmelShape(chunk.dmel);
      if (length === undefined) throw new TinkerError("the dmel container holds a tensor without dimensions");
      return length;
    }
    default:
      throw chunk satisfies never;
  }
}

/** One pass, no intermediate list: token ids are integers from 0 to 2^31 - 1. */
export function toTokens(given: unknown, field: string): Int32Array {
  const tokens = given as TokensLike;
  const wrongToken = (index: number) =>
    f.wrongValue(`${field}[${index}]`, "a token id (an integer from 0 to 2147483647)", tokens[index]);
  if (tokens instanceof Int32Array) {
    for (let index = 0; index < tokens.length; index++) if (tokens[index]! < 0) throw wrongToken(index);
    return tokens;
  }
  if (typeof tokens !== "object" || tokens === null || typeof tokens.length !== "number")
    throw f.wrongValue(field, "a list of token ids", tokens);
  const converted = new Int32Array(tokens.length);
  for (let index = 0; index < tokens.length; index++) {
    const found = tokens[index]!;
    const token = typeof found === "bigint" ? Number(found) : found;
    // False for NaN, fractions, texts and holes alike.
    if ((token | 0) !== token || token < 0) throw wrongToken(index);
    converted[index] = token;
  }
  return converted;
}

const tokens: f.Field<Int32Array> = { ...f.customField(toTokens), write: toNumbers };
const bytes: f.Field<Uint8Array> = { ...f.customField(toBytes), write: bytesToBase64 };
const format: f.Field<ImageFormat> = f.oneOf("png", "jpeg");
/** `null` counts as absent: Python writes it so. */
const expectedTokens = f.optional(
  f.customField((given, path) => (given === null ? undefined : f.nonNegativeInteger.check(given, path))),
);

function chunk(fields: f.Shape): f.Field<ModelInputChunk> {
  return f.message(fields, { closed: true }) as unknown as f.Field<ModelInputChunk>;
}

const CHUNKS = {
  encoded_text: chunk({ type: f.oneOf("encoded_text"), tokens }),
  image: chunk({ type: f.oneOf("image"), data: bytes, format, expectedTokens }),
  image_asset_pointer: chunk({
    type: f.oneOf("image_asset_pointer"),
    format,
    location: f.text,
    expectedTokens,
  }),
  dmel: chunk({ type: f.oneOf("dmel"), dmel: bytes }),
};

const chunkField = f.byType<ModelInputChunk>(CHUNKS, ({ type }, path) => {
  throw f.wrongValue(`${path}.type`, `one of ${Object.keys(CHUNKS).join(", ")}`, type);
});

const chunksMessage = f.message({
  chunks: f.list({
    ...chunkField,
    read(json, path) {
      // The oldest clients leave the type of a text chunk out.
      const isUntyped = isRecord(json) && "tokens" in json && (json["type"] ?? null) === null;
      return chunkField.read(isUntyped ? { ...json, type: "encoded_text" } : json, path);
    },
  }),
});

/** A prompt or a model input as JSON carries it. */
export const modelInputField: f.Field<ModelInput> = {
  presence: "required",
  check: (given, path) => ModelInput.from(given as ModelInputLike, path),
  read: (json, path) => ModelInput.from(chunksMessage.read(json, path), path),
  write: (modelInput) => chunksMessage.write(modelInput),
};

function toBytes(given: unknown, path: string): Uint8Array {
  if (given instanceof Uint8Array) return given;
  if (typeof given !== "string") throw f.wrongValue(path, "a Uint8Array or base64 text", given);
  try {
    return base64ToBytes(given);
  } catch (error) {
    throw new ValidationError(path, `${path} is not base64: ${(error as Error).message}`);
  }
}
