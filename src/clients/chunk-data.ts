import { type Datum, estimateDatumProtoBytes } from "../wire/index.js";

export interface DataChunk {
  data: readonly Datum[];
  bytes: number;
}

/** Cuts a batch into requests that each stay below the server's limits; one datum is never cut. */
export function chunkData(
  data: readonly Datum[],
  limits: { maxDatums: number; maxBytes: number },
): DataChunk[] {
  const chunks: DataChunk[] = [];
  let current: Datum[] = [];
  let currentBytes = 0;
  for (const datum of data) {
    const bytes = estimateDatumProtoBytes(datum);
    const full = current.length === limits.maxDatums || currentBytes + bytes > limits.maxBytes;
    if (full && current.length > 0) {
      chunks.push({ data: current, bytes: currentBytes });
      current = [];
      currentBytes = 0;
    }
    current.push(datum);
    currentBytes += bytes;
  }
  if (current.length > 0) chunks.push({ data: current, bytes: currentBytes });
  return chunks;
}
