import { randomBytes } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import {
  type DownloadOptions,
  type DownloadProgress,
  downloadCheckpoint,
} from "../../src/checkpoints/index.js";
import { APIConnectionError, APIUserAbortError, NotFoundError, TinkerError } from "../../src/errors.js";
import { type Clock, systemClock } from "../../src/transport/index.js";
import { type FileServer, startFileServer } from "./file-server.js";
import { tar, tarGz } from "./tar-writer.js";

const PATH = "tinker://run-1/weights/final";
const EXTERNAL = "tinker://run-1/external_weights/final";
const NAME = "run-1_weights_final";

let server: FileServer;
let outputDir: string;
beforeEach(async () => {
  server = await startFileServer();
  outputDir = mkdtempSync(join(tmpdir(), "download-"));
});
afterEach(async () => {
  await server.close();
  rmSync(outputDir, { recursive: true, force: true });
});

let slept: number[] = [];
const clock: Clock = {
  ...systemClock,
  sleep: async (delayMs) => {
    slept.push(delayMs);
  },
};
const download = (options: DownloadOptions = {}, path = PATH) => {
  slept = [];
  return downloadCheckpoint(server.rest, path, { outputDir, clock, ...options });
};

/** Bytes that do not compress, so that the archive is as large as they are. */
const weights = randomBytes(3_000_000);
const archiveOf = (content: Buffer) =>
  gzipSync(
    tar([
      { name: "adapter_config.json", content: "{}" },
      { name: "adapter_model.safetensors", content },
    ]),
    { level: 0 },
  );
const archive = archiveOf(weights);
const expectWhole = (folder = join(outputDir, NAME)) => {
  expect(readFileSync(join(folder, "adapter_model.safetensors")).equals(weights)).toBe(true);
  expect(readFileSync(join(folder, "adapter_config.json"), "utf8")).toBe("{}");
  expect(readdirSync(outputDir)).toEqual([NAME]);
};
const partial = () => join(outputDir, `.${NAME}.download`, "files", "archive.tar.gz");

describe("downloading an archive", () => {
  beforeEach(() => server.files.set("/archive", archive));

  it("unpacks it into a folder named for the checkpoint, and says how far it is", async () => {
    const progress: DownloadProgress[] = [];
    const result = await download({ onProgress: (event) => progress.push(event) });
    expect(result).toEqual({
      folder: join(outputDir, NAME),
      files: ["adapter_config.json", "adapter_model.safetensors"],
      bytes: weights.length + 2,
    });
    expectWhole();
    expect(progress[0]).toEqual({ bytes: 0, totalBytes: archive.length, file: `${NAME}.tar.gz` });
    expect(progress.at(-1)).toEqual({
      bytes: archive.length,
      totalBytes: archive.length,
      file: `${NAME}.tar.gz`,
    });
    expect(progress.length).toBeGreaterThan(3);
    expect(server.requests).toEqual(["/archive"]);
  });

  it("goes on where a connection was cut, again and again, with a pause before each attempt", async () => {
    server.cuts = [100_000, 1_000_000, 500_000, 1, 0];
    await download();
    expectWhole();
    expect(server.requests).toHaveLength(6);
    // No byte that came before a cut is asked for again.
    expect(server.requests.slice(1)).toEqual(
      [100_000, 1_100_000, 1_600_000, 1_600_001, 1_600_001].map((bytes) => `/archive bytes=${bytes}-`),
    );
    expect(slept).toHaveLength(5);
    expect(server.signed).toBe(1);
  });

  it("gives up after six failures without progress, and a later call goes on from there", async () => {
    server.cuts = [2_000_000, 0, 0, 0, 0, 0, 0];
    const error = await download().catch((e) => e);
    expect(error).toBeInstanceOf(APIConnectionError);
    expect(error.message).toMatch(/stopped at byte \d+ of \d+ after 6 failures in a row.*Call again/);
    expect(existsSync(join(outputDir, NAME))).toBe(false);
    const kept = readFileSync(partial()).length;
    expect(kept).toBeGreaterThan(1_000_000);

    server.cuts = [];
    server.requests = [];
    await download();
    expectWhole();
    expect(server.requests).toEqual([`/archive bytes=${kept}-`]);
  });

  it("starts again when the archive was rebuilt in between", async () => {
    server.cuts = [2_000_000, 0, 0, 0, 0, 0, 0];
    await expect(download()).rejects.toThrow("failures in a row");
    const other = tarGz([{ name: "new.bin", content: randomBytes(2_500_000) }]);
    server.files.set("/archive", other);
    server.cuts = [];
    expect((await download()).files).toEqual(["new.bin"]);
  });

  it("starts again when it was rebuilt and the server cannot tell", async () => {
    server.etags = false;
    server.cuts = [2_000_000, 0, 0, 0, 0, 0, 0];
    await expect(download()).rejects.toThrow("failures in a row");
    const content = randomBytes(weights.length);
    server.files.set("/archive", archiveOf(content));
    server.cuts = [];
    server.requests = [];
    const { folder } = await download();
    // Same size, other bytes: only the archive's own checksum tells, and the second time it is fetched whole.
    expect(server.requests).toEqual([expect.stringMatching(/^\/archive bytes=/), "/archive"]);
    expect(readFileSync(join(folder, "adapter_model.safetensors")).equals(content)).toBe(true);
  });

  it("starts again at a server without ranges, and trusts a clean end at one without lengths", async () => {
    server.ranges = false;
    server.lengths = false;
    server.cuts = [1_500_000, 2_500_000];
    const progress: DownloadProgress[] = [];
    await download({ onProgress: (event) => progress.push(event) });
    expectWhole();
    expect(server.requests).toHaveLength(3);
    expect(progress[0]).toMatchObject({ bytes: 0, totalBytes: undefined });
    expect(progress.at(-1)).toMatchObject({ bytes: archive.length, totalBytes: archive.length });
  });

  it("takes a server at its word about the length", async () => {
    server.instead = [
      (_, response) => {
        response.writeHead(200, { "content-length": archive.length }).write(archive.subarray(0, 999));
        setTimeout(() => response.socket?.end(), 50);
      },
    ];
    await download();
    expectWhole();
    expect(server.requests).toHaveLength(2);
  });

  it("asks for a new URL when the old one has expired in the middle", async () => {
    server.cuts = [1_000_000];
    const onProgress = () => {
      server.validFrom = Math.max(server.validFrom, 2);
    };
    server.validFrom = 1;
    await download({ onProgress });
    expectWhole();
    expect(server.signed).toBe(2);
    expect(server.requests).toHaveLength(3);
  });

  it("asks for a new URL before it expires", async () => {
    server.cuts = [1_000_000];
    server.expires = new Date(Date.now() + 30_000).toISOString();
    await download();
    expectWhole();
    expect(server.signed).toBe(2);
  });

  it("reports what the server says when new URLs do not help either", async () => {
    server.files.clear();
    const error = await download().catch((e) => e);
    expect(error).toBeInstanceOf(NotFoundError);
    expect(error.message).toBe(`GET ${NAME}.tar.gz answered 404.`);
    expect(server.requests).toHaveLength(3);
    expect(server.signed).toBe(3);
    // Nothing came, so there is nothing to go on from.
    expect(readdirSync(outputDir)).toEqual([]);
  });

  it("waits and asks again when the store is busy, as long as it says", async () => {
    const busy = (status: number) => (_: unknown, response: import("node:http").ServerResponse) =>
      void response.writeHead(status, { "retry-after": "7" }).end();
    server.instead = [busy(503), busy(429)];
    await download();
    expectWhole();
    expect(slept).toEqual([7000, 7000]);
  });

  it("counts a connection on which nothing comes as broken", async () => {
    let fire: (() => void) | undefined;
    let now = 0;
    const stalling: Clock = {
      ...clock,
      now: () => now,
      setTimer: (callback) => {
        fire ??= callback;
        return () => {};
      },
    };
    server.instead = [
      async (_, response) => {
        response.writeHead(200, { "content-length": archive.length }).write(archive.subarray(0, 1000));
        await vi.waitUntil(() => fire !== undefined);
        now = 1_000_000;
        fire!();
      },
    ];
    await download({ clock: stalling });
    expectWhole();
    expect(server.requests).toHaveLength(2);
  });

  it("stops at once when its signal aborts, and keeps what it has for the next time", async () => {
    const controller = new AbortController();
    const onProgress = ({ bytes }: DownloadProgress) => {
      if (bytes > 1_000_000) controller.abort(new Error("enough"));
    };
    const error = await download({ signal: controller.signal, onProgress }).catch((e) => e);
    expect(error).toBeInstanceOf(APIUserAbortError);
    expect(readFileSync(partial()).length).toBeGreaterThan(1_000_000);
    await download();
    expectWhole();
    expect(server.requests[1]).toMatch(/bytes=\d{7}-/);
  });

  it("leaves nothing with resume: false, and uses nothing", async () => {
    server.cuts = [2_000_000, 0, 0, 0, 0, 0, 0];
    await expect(download({ resume: false })).rejects.toThrow("failures in a row");
    expect(readdirSync(outputDir)).toEqual([]);
    server.cuts = [2_000_000, 0, 0, 0, 0, 0, 0];
    await expect(download()).rejects.toThrow("failures in a row");
    server.cuts = [];
    server.requests = [];
    await download({ resume: false });
    expect(server.requests).toEqual(["/archive"]);
    expectWhole();
  });

  it("does not touch a folder that exists, and with force replaces it when the new one is whole", async () => {
    mkdirSync(join(outputDir, NAME));
    writeFileSync(join(outputDir, NAME, "mine"), "mine");
    await expect(download()).rejects.toThrow(/exists already; pass force: true/);
    server.files.set("/archive", archive.subarray(0, -5));
    await expect(download({ force: true })).rejects.toThrow("damaged");
    expect(readdirSync(join(outputDir, NAME))).toEqual(["mine"]);
    server.files.set("/archive", archive);
    await download({ force: true });
    expectWhole();
    expect(readdirSync(join(outputDir, NAME))).not.toContain("mine");
  });

  it("takes a link that leads nowhere for a folder that exists, and a file for no folder", async () => {
    symlinkSync(join(outputDir, "nowhere"), join(outputDir, NAME));
    await expect(download()).rejects.toThrow(/exists already; pass force: true/);
    await download({ force: true });
    expectWhole();
    const file = join(outputDir, NAME, "adapter_config.json");
    const error = await download({ outputDir: file }).catch((e) => e);
    expect(error).toBeInstanceOf(TinkerError);
    expect(error.message).toContain(`${join(file, NAME)} could not be written: ENOTDIR`);
  });

  it("leaves nothing of an archive that it refuses", async () => {
    server.files.set(
      "/archive",
      tarGz([
        { name: "fine", content: "x" },
        { name: "../evil", content: "x" },
      ]),
    );
    await expect(download({ outputDir: join(outputDir, "in") })).rejects.toThrow("leads out of its folder");
    expect(readdirSync(outputDir, { recursive: true })).toEqual(["in"]);
  });

  it("bounds what an archive may unpack to by its size", async () => {
    server.files.set("/archive", tarGz([{ name: "zeros", content: Buffer.alloc(80 << 20) }]));
    await expect(download()).rejects.toThrow("unpacks to more than 67108864 bytes; raise maxUnpackedBytes");
    const { bytes } = await download({ maxUnpackedBytes: 100 << 20 });
    expect(bytes).toBe(80 << 20);
  });

  it("refuses the same download twice at the same time", async () => {
    const first = download();
    await expect(download()).rejects.toThrow("already being downloaded");
    await first;
    expectWhole();
  });

  it("passes on what the caller's own function throws, and what the disk says, without trying again", async () => {
    const mine = new Error("mine");
    const onProgress = () => {
      throw mine;
    };
    await expect(download({ onProgress })).rejects.toBe(mine);
    expect(server.requests).toHaveLength(1);
    rmSync(partial());
    mkdirSync(partial());
    await expect(download()).rejects.toMatchObject({ cause: { code: "EISDIR" } });
    expect(server.requests).toHaveLength(1);
  });

  it("keeps signed URLs out of its errors", async () => {
    server.instead = Array(3).fill((_: unknown, response: import("node:http").ServerResponse) =>
      response.writeHead(403).end("see http://x/?X-Amz-Signature=topsecret"),
    );
    const error = await download().catch((e) => e);
    expect(JSON.stringify([error.message, error.body])).not.toContain("topsecret");
  });
});

describe("downloading external weights", () => {
  const folder = () => join(outputDir, "run-1_external_weights_final");
  beforeEach(() => {
    server.files.set("/adapter_config.json", Buffer.from("{}"));
    server.files.set("/adapter_model.safetensors", weights);
    server.files.set("/nested/extra.json", Buffer.from("[]"));
  });

  it("fetches each file from its own URL", async () => {
    const progress: DownloadProgress[] = [];
    const result = await download({ onProgress: (event) => progress.push(event) }, EXTERNAL);
    expect(result.files).toEqual(["adapter_config.json", "adapter_model.safetensors", "nested/extra.json"]);
    expect(result.bytes).toBe(weights.length + 4);
    expect(readFileSync(join(folder(), "adapter_model.safetensors")).equals(weights)).toBe(true);
    expect(readFileSync(join(folder(), "nested/extra.json"), "utf8")).toBe("[]");
    expect(new Set(progress.map(({ file }) => file)).size).toBe(3);
    expect(server.signed).toBe(1);
    expect(readdirSync(outputDir)).toEqual(["run-1_external_weights_final"]);
  });

  it("goes on in the file where it stopped, without those that are there", async () => {
    server.cuts = [2, 2_000_000, 0, 0, 0, 0, 0, 0];
    await expect(download({}, EXTERNAL)).rejects.toThrow("adapter_model.safetensors stopped at byte");
    server.cuts = [];
    server.requests = [];
    await download({}, EXTERNAL);
    expect(server.requests).toEqual([expect.stringMatching(/safetensors bytes=\d+-/), "/nested/extra.json"]);
    expect(readFileSync(join(folder(), "adapter_model.safetensors")).equals(weights)).toBe(true);
  });

  it.each(["../evil", "/evil", "a/../../evil", ".."])(
    "refuses a file called %s before fetching any",
    async (name) => {
      const urls = { "adapter_config.json": "http://127.0.0.1:1/", [name]: "http://127.0.0.1:1/" };
      server.rest.getExternalWeightsUrls = async () => ({ urls, expires: server.expires });
      await expect(download({}, EXTERNAL)).rejects.toMatchObject({ reason: "refused" });
      expect(readdirSync(outputDir)).toEqual([]);
      expect(server.requests).toEqual([]);
    },
  );

  it("says so when there are no files", async () => {
    server.files.clear();
    await expect(download({}, EXTERNAL)).rejects.toThrow(`The server names no files of ${EXTERNAL}.`);
  });
});

it("refuses other values than a checkpoint's path", async () => {
  await expect(download({}, "run-1/weights/x")).rejects.toThrow("path must look like tinker://");
});
