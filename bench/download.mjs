// 2 GB through downloadCheckpoint, from a server in another process that makes the archive as it sends it and cuts the
// connection twice, to disk and unpacked. Needs a build: npm run build.
// Bar: resident memory grows by less than 64 MB, from before the call to its highest point. A download of 1 MB comes
// first, so that loading the code does not count; growthWithCodeMegabytes counts it.
import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { open } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { crc32 } from "node:zlib";
import { sized } from "./shared/sized.mjs";

const MEGABYTE = 1e6;
const FILE_BYTES = sized(2_000, 20) * MEGABYTE;
const SMALL_FILE_BYTES = MEGABYTE;
const CUTS_AT = [0.35 * FILE_BYTES, 0.7 * FILE_BYTES];
const GROWTH_BAR_MB = 64;
const STORED_BYTES = 32_768;
/** A block in the middle that is read back. */
const PROBED_BLOCK = Math.floor((0.65 * FILE_BYTES) / STORED_BYTES);
const GZIP_HEADER = Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff]);

// ---- the archive: one file, stored without compression, so that any byte of it can be made at once

function tarHeader(fileBytes) {
  const block = Buffer.alloc(512);
  block.write("adapter_model.safetensors");
  block.write("0000644\0", 100);
  block.write(`${fileBytes.toString(8).padStart(11, "0")}\0`, 124);
  block.write("        ", 148);
  block.write("0", 156);
  block.write("ustar\x0000", 257);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return block;
}

function makeArchive(fileBytes) {
  const header = tarHeader(fileBytes);
  const tarBytes = 512 + Math.ceil(fileBytes / 512) * 512 + 1024;
  const blocks = Math.ceil(tarBytes / STORED_BYTES);

  /** Every 64 bytes hold their own position, so that none can stand in for another. */
  const tarBlock = (index) => {
    const start = index * STORED_BYTES;
    const bytes = Buffer.alloc(Math.min(STORED_BYTES, tarBytes - start));
    for (let at = 0; at < bytes.length; at += 64) bytes.writeDoubleLE(Math.sin(start + at), at);
    if (index === 0) header.copy(bytes);
    const end = 512 + fileBytes - start;
    if (end < bytes.length) bytes.fill(0, Math.max(end, 0));
    return bytes;
  };
  let checksum = 0;
  for (let index = 0; index < blocks; index++) checksum = crc32(tarBlock(index), checksum);

  function* from(offset) {
    let position = 0;
    const part = (bytes) => {
      const skipped = Math.min(Math.max(0, offset - position), bytes.length);
      position += bytes.length;
      return bytes.subarray(skipped);
    };
    const first = Math.max(
      0,
      Math.min(blocks, Math.floor((offset - GZIP_HEADER.length) / (STORED_BYTES + 5))),
    );
    yield part(GZIP_HEADER);
    position += first * (STORED_BYTES + 5);
    for (let index = first; index < blocks; index++) {
      const bytes = tarBlock(index);
      const prefix = Buffer.from([index === blocks - 1 ? 1 : 0, 0, 0, 0, 0]);
      prefix.writeUInt16LE(bytes.length, 1);
      prefix.writeUInt16LE(bytes.length ^ 0xffff, 3);
      yield part(Buffer.concat([prefix, bytes]));
    }
    const trailer = Buffer.alloc(8);
    trailer.writeUInt32LE(checksum, 0);
    trailer.writeUInt32LE(tarBytes % 2 ** 32, 4);
    yield part(trailer);
  }
  return { bytes: GZIP_HEADER.length + blocks * 5 + tarBytes + 8, from };
}

function serve() {
  const archives = { "/small": makeArchive(SMALL_FILE_BYTES), "/large": makeArchive(FILE_BYTES) };
  const cuts = { "/small": [], "/large": [...CUTS_AT] };
  const server = createServer((request, response) => {
    const archive = archives[request.url];
    const offset = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? "")?.[1] ?? 0);
    response.writeHead(offset > 0 ? 206 : 200, {
      etag: '"bench"',
      "content-length": archive.bytes - offset,
      ...(offset > 0 ? { "content-range": `bytes ${offset}-${archive.bytes - 1}/${archive.bytes}` } : {}),
    });
    const cutAt = cuts[request.url].shift();
    let sent = offset;
    const body = Readable.from(archive.from(offset), { objectMode: true, highWaterMark: 4 });
    body.on("data", (bytes) => {
      sent += bytes.length;
      if (cutAt !== undefined && sent >= cutAt) response.destroy();
    });
    response.on("close", () => body.destroy());
    body.pipe(response);
  });
  server.listen(0, "127.0.0.1", () => process.send({ port: server.address().port }));
  process.on("disconnect", () => process.exit());
}

async function measure() {
  const { downloadCheckpoint } = await import("tinkerts/checkpoints");
  const server = fork(fileURLToPath(import.meta.url), ["serve"]);
  const folder = mkdtempSync(join(tmpdir(), "bench-download-"));
  try {
    const [{ port }] = await once(server, "message");
    const expires = new Date(Date.now() + 3_600_000).toISOString();
    const urlOf = (path) => `http://127.0.0.1:${port}/${path.split("/").at(-1)}`;
    const rest = { getCheckpointArchiveUrl: async (path) => ({ url: urlOf(path), expires }) };
    globalThis.gc?.();
    const beforeCode = process.memoryUsage.rss();
    await downloadCheckpoint(rest, "tinker://bench/weights/small", { outputDir: folder });
    globalThis.gc?.();
    const before = process.memoryUsage.rss();
    let highest = before;
    const look = () => {
      highest = Math.max(highest, process.memoryUsage.rss());
    };
    const timer = setInterval(look, 10);
    const begin = performance.now();
    let restarts = 0;
    let last = 0;
    const result = await downloadCheckpoint(rest, "tinker://bench/weights/large", {
      outputDir: folder,
      onProgress: ({ bytes }) => {
        if (bytes === 0 && last > 0) restarts += 1;
        last = bytes;
        look();
      },
    });
    const seconds = (performance.now() - begin) / 1000;
    clearInterval(timer);
    const file = join(result.folder, "adapter_model.safetensors");
    const handle = await open(file);
    const { buffer } = await handle.read(Buffer.alloc(8), 0, 8, STORED_BYTES * PROBED_BLOCK - 512);
    await handle.close();
    const isWhole =
      statSync(file).size === FILE_BYTES && buffer.readDoubleLE() === Math.sin(STORED_BYTES * PROBED_BLOCK);
    const growthMegabytes = Number(((highest - before) / MEGABYTE).toFixed(1));
    const pass = isWhole && restarts === 0 && growthMegabytes < GROWTH_BAR_MB;
    console.log(
      JSON.stringify({
        bench: "download",
        fileBytes: FILE_BYTES,
        cutConnections: CUTS_AT.length,
        seconds: Number(seconds.toFixed(1)),
        megabytesPerSecond: Math.round(FILE_BYTES / MEGABYTE / seconds),
        residentBeforeMegabytes: Number((before / MEGABYTE).toFixed(1)),
        growthMegabytes,
        growthWithCodeMegabytes: Number(((highest - beforeCode) / MEGABYTE).toFixed(1)),
        isWhole,
        pass,
      }),
    );
    process.exitCode = pass ? 0 : 1;
  } finally {
    if (server.connected) server.disconnect();
    rmSync(folder, { recursive: true, force: true });
  }
}

if (process.argv[2] === "serve") serve();
else await measure();
