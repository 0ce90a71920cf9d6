/**
 * The model and the number of a `ForwardBackwardRequest`, read without decoding the rest: they are needed to
 * answer for a request whose data turns out to be wrong.
 */
export function peekRequest(bytes: Uint8Array): { modelId: string | undefined; seqId: number | undefined } {
  let modelId: string | undefined;
  let seqId: number | undefined;
  let offset = 0;
  const varint = (): number => {
    let value = 0;
    for (let shift = 0; shift < 70 && offset < bytes.length; shift += 7) {
      const byte = bytes[offset++]!;
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) break;
    }
    return value;
  };
  while (offset < bytes.length && (modelId === undefined || seqId === undefined)) {
    const tag = varint();
    const field = Math.floor(tag / 8);
    switch (tag % 8) {
      case 0: {
        const value = varint();
        if (field === 2) seqId = value;
        break;
      }
      case 1:
        offset += 8;
        break;
      case 2: {
        const length = varint();
        if (field === 1) modelId = new TextDecoder().decode(bytes.subarray(offset, offset + length));
        offset += length;
        break;
      }
      case 5:
        offset += 4;
        break;
      default:
        return { modelId, seqId };
    }
  }
  return { modelId, seqId };
}
