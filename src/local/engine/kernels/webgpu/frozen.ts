import {
  DTYPE_BYTES,
  type FloatDtype,
  type SafetensorsDtype,
  toFloat32,
} from "../../../../checkpoints/safetensors.js";
import type { Frozen, StoredTensor } from "../kernels.js";
import type { CommandQueue } from "./command-queue.js";
import type { OnDevice } from "./device-memory.js";

/** [outputs, stride] row by row, as files have it, in the file's own two or four bytes; what is beyond `inputs` is zero. */
export interface GpuFrozen extends Frozen, OnDevice {
  readonly dtype: FloatDtype;
  /** `inputs`, rounded up so that every row begins at a multiple of 16 bytes. */
  readonly stride: number;
}

/** Bytes written at a time before waiting for the device. */
const WRITE_BYTES = 64 << 20;

/** How a matrix whose parts have this type in their file is stored. */
export function frozenLayout(inputs: number, outputs: number, stored: SafetensorsDtype) {
  const dtype: FloatDtype = stored === "F16" || stored === "BF16" ? stored : "F32";
  const stride = Math.ceil(inputs / 8) * 8;
  return { dtype, stride, bytes: outputs * stride * DTYPE_BYTES[dtype] };
}

/** Writes some outputs of a matrix, a piece at a time: the process never holds more than the tensor and a piece. */
export async function fillFrozen(
  queue: CommandQueue,
  matrix: GpuFrozen,
  firstOutput: number,
  tensor: StoredTensor,
): Promise<void> {
  const { inputs, outputs, stride, dtype, block } = matrix;
  const [rows = 0, columns] = tensor.shape;
  if (firstOutput + rows > outputs || columns !== inputs) {
    throw new RangeError(`a tensor of [${tensor.shape}] at output ${firstOutput} of [${outputs}, ${inputs}]`);
  }
  const bytes = tensor.dtype === dtype ? tensor.bytes : converted(tensor, dtype);
  const rowBytes = inputs * DTYPE_BYTES[dtype];
  const strideBytes = stride * DTYPE_BYTES[dtype];
  const pieceRows = Math.max(1, Math.floor(WRITE_BYTES / strideBytes));
  queue.flush();
  for (let row = 0; row < rows; row += pieceRows) {
    const count = Math.min(pieceRows, rows - row);
    const source = bytes.subarray(row * rowBytes, (row + count) * rowBytes);
    const piece = stride === inputs ? source : spaced(source, rowBytes, strideBytes);
    const start = (firstOutput + row) * strideBytes;
    queue.device.queue.writeBuffer(
      block.buffer,
      start,
      piece.buffer as ArrayBuffer,
      piece.byteOffset,
      piece.byteLength,
    );
    await queue.done();
  }
}

function spaced(bytes: Uint8Array, rowBytes: number, strideBytes: number): Uint8Array {
  const rows = bytes.byteLength / rowBytes;
  const out = new Uint8Array(rows * strideBytes);
  for (let row = 0; row < rows; row++) {
    out.set(bytes.subarray(row * rowBytes, (row + 1) * rowBytes), row * strideBytes);
  }
  return out;
}

/** Only to float32: nothing is lost on the way. */
function converted(tensor: StoredTensor, dtype: FloatDtype): Uint8Array {
  if (dtype !== "F32") throw new Error(`a tensor of ${tensor.dtype} in a matrix of ${dtype}`);
  const values = toFloat32(tensor.bytes, tensor.dtype, "a weight");
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}
