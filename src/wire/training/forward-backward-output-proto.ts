import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { TinkerError } from "../../errors.js";
import {
  type ArrayRecord,
  ArrayRecordSchema,
  type BatchedTensor,
  BatchedTensorSchema,
  ForwardBackwardOutputSchema,
} from "../gen/tinker_public_pb.js";
import { camelToSnake, snakeToCamel } from "../json-keys.js";
import { readAnswer, shortTypeName } from "../reading.js";
import { elementCount } from "../tensors/element-count.js";
import { packInt64s, packTensorValues, unpackInt64s } from "../tensors/packed.js";
import { TensorData } from "../tensors/tensor-data.js";
import { bytesPerElement, protoDtype, toSafeInteger, unpackValues } from "../tensors/tensor-proto.js";
import type { LossFnOutput } from "./losses.js";
import type { ForwardBackwardOutput } from "./training-types.js";

/** Most datums of a record without fields, whose bytes do not bound their number. */
const MAX_DATUMS = 2 ** 20;

/** Reads a result; with `inPlace` its tensors may lie in `bytes`, which must not be read again. */
export function decodeForwardBackwardOutput(
  bytes: Uint8Array,
  { inPlace = false } = {},
): ForwardBackwardOutput {
  return readAnswer("ForwardBackwardOutput", () => {
    const message = fromBinary(ForwardBackwardOutputSchema, bytes);
    return {
      lossFnOutputType: shortTypeName(message.lossFnOutputType),
      lossFnOutputs: message.lossFnOutputs.flatMap((record) => readRecord(record, inPlace)),
      metrics: message.metrics,
    };
  });
}

function readRecord(record: ArrayRecord, inPlace: boolean): LossFnOutput[] {
  const fields = Object.entries(record.fields).map(([name, batched]) => {
    return { name: snakeToCamel(name), tensors: splitBatch(batched, name, inPlace) };
  });
  // Writers before num_datums existed leave it at 0; then the fields tell.
  const datums = toSafeInteger(record.numDatums) || (fields[0]?.tensors.length ?? 0);
  if (datums > MAX_DATUMS)
    throw new TinkerError(`a record has ${datums} datums; at most ${MAX_DATUMS} are read`);
  return Array.from({ length: datums }, (_, index) => {
    const output: Record<string, TensorData> = {};
    for (const { name, tensors } of fields) {
      const tensor = tensors[index];
      if (tensor === undefined)
        throw new TinkerError(`field ${name} has ${tensors.length} tensors for ${datums} datums`);
      output[name] = tensor;
    }
    return output;
  });
}

function splitBatch(batched: BatchedTensor, name: string, inPlace: boolean): TensorData[] {
  const { dtype, data } = unpackValues(batched.data, batched.dtype, inPlace);
  const offsets = unpackInt64s(batched.offsets);
  const width = bytesPerElement(batched.dtype);
  const trailing = batched.trailingShape.map(toSafeInteger);
  const rowSize = elementCount(trailing);
  const tensors: TensorData[] = [];
  for (let index = 0; index + 1 < offsets.length; index++) {
    const [from, to] = [offsets[index]!, offsets[index + 1]!];
    const [begin, end] = [from / width, to / width];
    if (!Number.isInteger(begin) || !Number.isInteger(end) || begin < 0 || end < begin || end > data.length)
      throw new TinkerError(`field ${name} has the offsets ${from} to ${to}, out of its data`);
    const shape = [rowSize === 0 ? 0 : (end - begin) / rowSize, ...trailing];
    tensors.push(new TensorData({ dtype, data: data.subarray(begin, end), shape }, name));
  }
  return tensors;
}

export function encodeForwardBackwardOutput(output: ForwardBackwardOutput): Uint8Array {
  const typeTag = output.lossFnOutputType;
  const message = create(ForwardBackwardOutputSchema, {
    lossFnOutputType: typeTag,
    metrics: { ...output.metrics },
    lossFnOutputs: groupByLayout(output.lossFnOutputs).map((group) => writeRecord(group, typeTag)),
  });
  return toBinary(ForwardBackwardOutputSchema, message);
}

/** A batch shares dtype and row shape in each field: neighbours that do not go into records of their own. */
function groupByLayout(outputs: readonly LossFnOutput[]): LossFnOutput[][] {
  const groups: LossFnOutput[][] = [];
  let layoutBefore: string | undefined;
  for (const output of outputs) {
    const layout = JSON.stringify(
      Object.entries(output)
        .map(([name, tensor]) => [name, tensor.dtype, ...tensor.shape.slice(1)])
        .sort(),
    );
    if (layout === layoutBefore) groups.at(-1)!.push(output);
    else groups.push([output]);
    layoutBefore = layout;
  }
  return groups;
}

function writeRecord(outputs: readonly LossFnOutput[], typeTag: string): ArrayRecord {
  const fields: Record<string, BatchedTensor> = {};
  for (const name of Object.keys(outputs[0]!)) {
    fields[camelToSnake(name)] = joinBatch(outputs.map((output) => output[name]!.toDense()));
  }
  return create(ArrayRecordSchema, { typeTag, numDatums: BigInt(outputs.length), fields });
}

function joinBatch(tensors: readonly TensorData[]): BatchedTensor {
  const width = tensors[0]!.dtype === "float32" ? 4 : 8;
  const offsets = new Float64Array(tensors.length + 1);
  for (const [index, tensor] of tensors.entries())
    offsets[index + 1] = offsets[index]! + tensor.data.length * width;
  const data = new Uint8Array(offsets[tensors.length]!);
  for (const [index, tensor] of tensors.entries()) data.set(packTensorValues(tensor.data), offsets[index]!);
  return create(BatchedTensorSchema, {
    data,
    offsets: packInt64s(offsets),
    dtype: protoDtype(tensors[0]!.dtype),
    trailingShape: tensors[0]!.shape.slice(1).map(BigInt),
  });
}
