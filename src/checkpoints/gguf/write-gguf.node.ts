import { open } from "node:fs/promises";
import { join } from "node:path";
import { writeFully } from "../../files.node.js";
import type { ExportWork, PreparedExport } from "../export/target.js";
import { GGML_TYPES, storedBytes } from "./ggml-types.js";
import { encodeGgufHeader, type GgufMetadata, type GgufTensor } from "./gguf-header.js";

/** Values that are converted at once. */
const CHUNK_VALUES = 1 << 21;
/** Progress is made durable when so much was written since the last time. */
const DURABLE_BYTES = 4 << 20;

/** A GGUF file that is ready to be written as `file` of a work folder; each tensor is a part. */
export function ggufFile(
  file: string,
  metadata: GgufMetadata,
  tensors: readonly GgufTensor[],
): Pick<PreparedExport, "bytes" | "write"> {
  const { header, positions, totalBytes } = encodeGgufHeader(metadata, tensors);
  return {
    bytes: totalBytes,
    async write(work) {
      const isNew = work.finishedParts === 0;
      const handle = await open(join(work.folder, file), isNew ? "w" : "r+");
      try {
        if (isNew) {
          await writeFully(handle, header, 0);
          // The padding behind the last tensor is part of the file.
          await handle.truncate(totalBytes);
        }
        work.count(header.length);
        let unsynced = 0;
        for (const [index, tensor] of tensors.entries()) {
          const bytes = storedBytes(tensor.type, tensor.rows.rowCount, tensor.rows.rowLength);
          if (index < work.finishedParts) {
            work.count(bytes);
            continue;
          }
          await writeTensor(handle, positions[index]!, tensor, work);
          unsynced += bytes;
          if (unsynced < DURABLE_BYTES) continue;
          await handle.datasync();
          await work.finish(index + 1);
          unsynced = 0;
        }
        await handle.sync();
      } finally {
        await handle.close();
      }
    },
  };
}

async function writeTensor(
  handle: Awaited<ReturnType<typeof open>>,
  position: number,
  { rows, type }: GgufTensor,
  work: ExportWork,
): Promise<void> {
  const { rowCount, rowLength } = rows;
  const step = Math.max(1, Math.floor(CHUNK_VALUES / rowLength));
  let at = position;
  for (let row = 0; row < rowCount; row += step) {
    const bytes = GGML_TYPES[type].quantize(rows.readRows(row, Math.min(step, rowCount - row)));
    await writeFully(handle, bytes, at);
    at += bytes.length;
    work.count(bytes.length);
  }
}
