/** A zstd frame of uncompressed blocks: valid zstd without a compressor. */
export function zstdRaw(content: Uint8Array): Uint8Array {
  const parts: Uint8Array[] = [Uint8Array.from([0x28, 0xb5, 0x2f, 0xfd, 0xa0])];
  const size = new Uint8Array(4);
  new DataView(size.buffer).setUint32(0, content.length, true);
  parts.push(size);
  const blockBytes = 100_000;
  for (let offset = 0; offset === 0 || offset < content.length; offset += blockBytes) {
    const block = content.subarray(offset, offset + blockBytes);
    const isLast = offset + blockBytes >= content.length;
    const header = (block.length << 3) | (isLast ? 1 : 0);
    parts.push(Uint8Array.from([header & 255, (header >> 8) & 255, header >> 16]), block);
  }
  return Buffer.concat(parts);
}
