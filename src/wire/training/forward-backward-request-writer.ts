import { TinkerError, ValidationError } from "../../errors.js";
import { camelToSnake } from "../json-keys.js";
import { fieldSize, ProtoWriter, type Sizes, utf8, varintSize } from "../proto-writer.js";
import type { ModelInputChunk } from "../sampling/model-input.js";
import type { TensorData } from "../tensors/tensor-data.js";
import type { Datum, ProvenanceSpan } from "./datum.js";
import type { ForwardBackwardRequest } from "./training-types.js";

// The one message that is large on the way out. The generic writer copies every nested message once per level; this
// one measures first and then writes each byte once, into a buffer of the exact size. Each `size…` function has a
// `write…` twin that visits the same fields in the same order; sizes of nested messages are handed over in that order.

const DOUBLE_FIELD_SIZE = 9;
// Values of the DType enum; the generated code, and the library behind it, would be loaded for these two alone.
const DTYPE_FLOAT32 = 1;
const DTYPE_INT64 = 2;

export function encodeForwardBackwardRequest(request: ForwardBackwardRequest): Uint8Array {
  return new RequestEncoding(request).encode();
}

class RequestEncoding {
  readonly #request: ForwardBackwardRequest;
  readonly #config: readonly (readonly [key: Uint8Array, value: number | Uint8Array])[];
  /** The same few keys return in every datum. */
  readonly #keys = new Map<string, Uint8Array>();
  readonly #sizes: Sizes = [];
  #nextSize = 0;

  constructor(request: ForwardBackwardRequest) {
    this.#request = request;
    this.#config = Object.entries(request.lossFnConfig ?? {}).map(([key, value]) => {
      return [utf8(camelToSnake(key)), typeof value === "string" ? utf8(value) : value] as const;
    });
  }

  encode(): Uint8Array {
    const { modelId, seqId, data, lossFn, forwardOnly } = this.#request;
    if ((seqId | 0) !== seqId || seqId < 0) {
      throw new ValidationError("seqId", `seqId must be an integer from 0 to 2147483647, got ${seqId}`);
    }
    const modelIdBytes = utf8(modelId);
    const lossFnBytes = utf8(lossFn);
    let size = 0;
    if (modelIdBytes.length > 0) size += fieldSize(modelIdBytes.length);
    if (seqId !== 0) size += 1 + varintSize(seqId);
    for (const [index, datum] of data.entries()) size += fieldSize(this.#sizeDatum(datum, `data[${index}]`));
    if (lossFnBytes.length > 0) size += fieldSize(lossFnBytes.length);
    for (const [key, value] of this.#config) size += configSize(key, value);
    if (forwardOnly) size += 2;

    const writer = new ProtoWriter(size);
    if (modelIdBytes.length > 0) writer.bytesField(1, modelIdBytes);
    if (seqId !== 0) writer.varintField(2, seqId);
    for (const datum of data) this.#writeDatum(writer, datum);
    if (lossFnBytes.length > 0) writer.bytesField(4, lossFnBytes);
    // Numbers go into both maps: servers that know the newer one prefer it, the others read the older one.
    for (const [key, value] of this.#config) {
      if (typeof value === "number") writeNumberEntry(writer, key, value);
    }
    if (forwardOnly) writer.varintField(6, 1);
    for (const [key, value] of this.#config) writeValueEntry(writer, key, value);
    if (!writer.isFull)
      throw new TinkerError("the request was measured wrongly; please report this as a bug");
    return writer.bytes;
  }

  #key(name: string): Uint8Array {
    let bytes = this.#keys.get(name);
    if (bytes === undefined) {
      bytes = utf8(camelToSnake(name));
      this.#keys.set(name, bytes);
    }
    return bytes;
  }

  /** Keeps a place, so that a message's size comes before the sizes of what it holds. */
  #measure(measure: () => number): number {
    const place = this.#sizes.push(0) - 1;
    const size = measure();
    this.#sizes[place] = size;
    return size;
  }

  #begin(writer: ProtoWriter, field: number): number {
    const size = this.#sizes[this.#nextSize++]!;
    writer.begin(field, size);
    return size;
  }

  #sizeDatum(datum: Datum, field: string): number {
    return this.#measure(() => {
      let size = 0;
      for (const [index, chunk] of datum.modelInput.chunks.entries()) {
        size += fieldSize(this.#sizeChunk(chunk, `${field}.modelInput.chunks[${index}]`));
      }
      for (const [name, tensor] of Object.entries(datum.lossFnInputs)) {
        const entry = this.#measure(() => {
          return fieldSize(this.#key(name).length) + fieldSize(this.#sizeTensor(tensor));
        });
        size += fieldSize(entry);
      }
      for (const span of datum.modelInputSpans ?? []) size += fieldSize(this.#sizeSpan(span));
      for (const span of datum.lossFnInputSpans ?? []) size += fieldSize(this.#sizeSpan(span));
      return size;
    });
  }

  #writeDatum(writer: ProtoWriter, datum: Datum): void {
    this.#begin(writer, 3);
    for (const chunk of datum.modelInput.chunks) this.#writeChunk(writer, chunk);
    for (const [name, tensor] of Object.entries(datum.lossFnInputs)) {
      this.#begin(writer, 2);
      writer.bytesField(1, this.#key(name));
      this.#writeTensor(writer, tensor);
    }
    for (const span of datum.modelInputSpans ?? []) this.#writeSpan(writer, 3, span);
    for (const span of datum.lossFnInputSpans ?? []) this.#writeSpan(writer, 4, span);
  }

  #sizeChunk(chunk: ModelInputChunk, field: string): number {
    return this.#measure(() => fieldSize(this.#measure(() => chunkPayloadSize(chunk, field))));
  }

  #writeChunk(writer: ProtoWriter, chunk: ModelInputChunk): void {
    this.#begin(writer, 1);
    switch (chunk.type) {
      case "encoded_text":
        this.#begin(writer, 1);
        if (chunk.tokens.length > 0) writer.wordsField(1, chunk.tokens);
        return;
      case "image":
        this.#begin(writer, 2);
        if (chunk.data.length > 0) writer.bytesField(1, chunk.data);
        writer.bytesField(2, utf8(chunk.format));
        if (chunk.expectedTokens !== undefined) writer.varintField(3, chunk.expectedTokens);
        return;
      case "dmel":
        this.#begin(writer, 3);
        if (chunk.dmel.length > 0) writer.bytesField(1, chunk.dmel);
        return;
      case "image_asset_pointer":
        throw new TinkerError("an image_asset_pointer cannot be written");
      default:
        throw chunk satisfies never;
    }
  }

  #sizeTensor(tensor: TensorData): number {
    return this.#measure(() => {
      const valueBytes = tensor.data.length * (tensor.dtype === "float32" ? 4 : 8);
      let size = 0;
      if (tensor.sparseCrowIndices !== undefined && tensor.sparseColIndices !== undefined) {
        const { sparseCrowIndices, sparseColIndices } = tensor;
        const csr = this.#measure(
          () =>
            optionalSize(valueBytes) +
            optionalSize(sparseCrowIndices.length * 8) +
            optionalSize(sparseColIndices.length * 8),
        );
        size += fieldSize(csr);
      } else {
        size += fieldSize(valueBytes);
      }
      size += 2;
      return size + optionalSize(shapeSize(tensor.shape));
    });
  }

  #writeTensor(writer: ProtoWriter, tensor: TensorData): void {
    this.#begin(writer, 2);
    const { data, shape, sparseCrowIndices, sparseColIndices } = tensor;
    if (sparseCrowIndices !== undefined && sparseColIndices !== undefined) {
      this.#begin(writer, 2);
      if (data.length > 0) writeValues(writer, data);
      if (sparseCrowIndices.length > 0) writer.int64sField(2, sparseCrowIndices);
      if (sparseColIndices.length > 0) writer.int64sField(3, sparseColIndices);
    } else {
      writeValues(writer, data);
    }
    writer.varintField(3, tensor.dtype === "float32" ? DTYPE_FLOAT32 : DTYPE_INT64);
    if (shape.length > 0) {
      writer.begin(4, shapeSize(shape));
      for (const size of shape) writer.varint(size);
    }
  }

  #sizeSpan(span: ProvenanceSpan): number {
    return this.#measure(() =>
      fieldSize(
        this.#measure(() => {
          let size = fieldSize(utf8(span.sequenceId).length);
          if (span.offset) size += 1 + varintSize(span.offset);
          if (span.length > 0) size += 1 + varintSize(span.length);
          return size;
        }),
      ),
    );
  }

  #writeSpan(writer: ProtoWriter, field: number, span: ProvenanceSpan): void {
    this.#begin(writer, field);
    this.#begin(writer, span.type === "prompt" ? 1 : 2);
    writer.bytesField(1, utf8(span.sequenceId));
    if (span.offset) writer.varintField(2, span.offset);
    if (span.length > 0) writer.varintField(3, span.length);
  }
}

function optionalSize(payload: number): number {
  return payload === 0 ? 0 : fieldSize(payload);
}

function shapeSize(shape: readonly number[]): number {
  let size = 0;
  for (const length of shape) size += varintSize(length);
  return size;
}

function writeValues(writer: ProtoWriter, values: TensorData["data"]): void {
  if (values instanceof Float32Array) writer.wordsField(1, values);
  else writer.int64sField(1, values);
}

function chunkPayloadSize(chunk: ModelInputChunk, field: string): number {
  switch (chunk.type) {
    case "encoded_text":
      return optionalSize(chunk.tokens.byteLength);
    case "image": {
      const size = optionalSize(chunk.data.length) + fieldSize(chunk.format.length);
      return chunk.expectedTokens === undefined ? size : size + 1 + varintSize(chunk.expectedTokens);
    }
    case "dmel":
      return optionalSize(chunk.dmel.length);
    case "image_asset_pointer":
      throw new ValidationError(
        field,
        `${field} is an image_asset_pointer, which training requests cannot carry; give the image's bytes instead`,
      );
    default:
      throw chunk satisfies never;
  }
}

function configSize(key: Uint8Array, value: number | Uint8Array): number {
  const keySize = fieldSize(key.length);
  if (typeof value !== "number") return fieldSize(keySize + fieldSize(fieldSize(value.length)));
  return fieldSize(keySize + DOUBLE_FIELD_SIZE) + fieldSize(keySize + fieldSize(DOUBLE_FIELD_SIZE));
}

function writeNumberEntry(writer: ProtoWriter, key: Uint8Array, value: number): void {
  writer.begin(5, fieldSize(key.length) + DOUBLE_FIELD_SIZE);
  writer.bytesField(1, key);
  writer.doubleField(2, value);
}

function writeValueEntry(writer: ProtoWriter, key: Uint8Array, value: number | Uint8Array): void {
  const valueSize = typeof value === "number" ? DOUBLE_FIELD_SIZE : fieldSize(value.length);
  writer.begin(7, fieldSize(key.length) + fieldSize(valueSize));
  writer.bytesField(1, key);
  writer.begin(2, valueSize);
  if (typeof value === "number") writer.doubleField(1, value);
  else writer.bytesField(2, value);
}
