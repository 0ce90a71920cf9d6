import { TinkerError } from "../../errors.js";

// Header of the container: an optional marker for constant tensors, a dtype byte, then the number of dimensions
// and each dimension as a varint.
const CONSTANT_MARKER = 254;
const LAST_DTYPE = 7;
const MOST_DIMENSIONS = 64;

/** Shape of the tensor in a dmel container, read from its header alone. */
export function dmelShape(container: Uint8Array): number[] {
  let offset = container[0] === CONSTANT_MARKER ? 1 : 0;
  const dtype = container[offset++];
  if (dtype === undefined) throw new TinkerError("the dmel container ends within its header");
  if (dtype > LAST_DTYPE) throw new TinkerError(`the dmel container has the unknown dtype byte ${dtype}`);

  const readVarint = (): number => {
    let value = 0;
    for (let factor = 1; factor <= 2 ** 63; factor *= 128) {
      const byte = container[offset++];
      if (byte === undefined) throw new TinkerError("the dmel container ends within its header");
      value += (byte & 127) * factor;
      if (byte < 128) {
        if (Number.isSafeInteger(value)) return value;
        break;
      }
    }
    throw new TinkerError("the dmel container has a varint that is too large");
  };

  const dimensions = readVarint();
  if (dimensions > MOST_DIMENSIONS)
    throw new TinkerError(`the dmel container claims ${dimensions} dimensions`);
  return Array.from({ length: dimensions }, readVarint);
}
