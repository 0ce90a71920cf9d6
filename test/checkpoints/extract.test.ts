import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { beforeEach, describe, expect, it } from "vitest";
import { extractArchive } from "../../src/checkpoints/extract.node.js";
import { ArchiveError } from "../../src/checkpoints/index.js";
import { folderForTests } from "../support/folder-for-tests.js";
import { pax, type TarMember, tar } from "./tar-writer.js";

const root = folderForTests("extract");
let folder = "";
let cases = 0;
beforeEach(() => {
  cases += 1;
  folder = join(root, String(cases), "deep", "out");
  mkdirSync(join(root, String(cases), "deep"), { recursive: true });
});

const limits = { maxUnpackedBytes: 1 << 20, maxEntries: 20 };
const unpack = (bytes: Uint8Array, changes: Partial<typeof limits> = {}) => {
  const archive = join(root, String(cases), "archive");
  writeFileSync(archive, bytes);
  return extractArchive(archive, folder, { ...limits, ...changes });
};
const listing = (path: string) => readdirSync(path, { recursive: true, encoding: "utf8" }).sort();

describe("unpacking", () => {
  it("restores files, folders and empty files, from gzip and plain, in several members of gzip too", async () => {
    const members: TarMember[] = [
      { name: "./", kind: "5" },
      { name: "./adapter_config.json", content: "{}" },
      { name: "sub/", kind: "5" },
      { name: "sub/deeper/data.bin", content: Buffer.alloc(70_000, 7) },
      { name: "empty" },
    ];
    const bytes = tar(members);
    const halves = Buffer.concat([gzipSync(bytes.subarray(0, 900)), gzipSync(bytes.subarray(900))]);
    for (const archive of [bytes, gzipSync(bytes), halves]) {
      const extracted = await unpack(archive);
      expect(extracted.files).toEqual(["adapter_config.json", "sub/deeper/data.bin", "empty"]);
      expect(extracted.bytes).toBe(70_002);
      expect(readFileSync(join(folder, "sub/deeper/data.bin"))).toEqual(Buffer.alloc(70_000, 7));
      expect(readFileSync(join(folder, "empty"), "utf8")).toBe("");
      rmSync(folder, { recursive: true });
    }
  });

  it("reads long names and large sizes as pax and GNU write them", async () => {
    const long = `${"folder-with-a-name/".repeat(12)}weights-ünï.bin`;
    const other = `${"x".repeat(150)}.json`;
    const { files } = await unpack(
      tar([
        pax({ comment: "for all", path: "ignored-because-the-next-says-more" }, "g"),
        pax({ path: long, mtime: "1.5" }),
        { name: "short", content: "pax" },
        { name: "././@LongLink", kind: "L", content: `${other}\0` },
        { name: "short", content: "gnu" },
        pax({ path: "sized", size: "5" }),
        { name: "short", content: "12345", size: 5 },
      ]),
    );
    expect(files).toEqual([long, other, "sized"]);
    expect(readFileSync(join(folder, long), "utf8")).toBe("pax");
    expect(readFileSync(join(folder, other), "utf8")).toBe("gnu");
  });

  it.each(["ustar", "pax", "gnu"])("reads what the tar program writes (%s)", async (format) => {
    const source = join(root, String(cases), "source");
    // ustar holds no component of more than 100 bytes.
    const long = join("n".repeat(90), "m".repeat(format === "ustar" ? 80 : 200));
    mkdirSync(join(source, "n".repeat(90)), { recursive: true });
    writeFileSync(join(source, long), "long");
    writeFileSync(join(source, "a.bin"), Buffer.alloc(3000, 1));
    const archive = join(root, String(cases), "by-tar.tar.gz");
    execFileSync("tar", [`--format=${format}`, "-czf", archive, "-C", source, "."]);
    const { files } = await unpack(readFileSync(archive));
    expect(files.sort()).toEqual(["a.bin", long].sort());
    expect(readFileSync(join(folder, long), "utf8")).toBe("long");
  });

  const ok: TarMember = { name: "ok", content: "ok" };
  const hostile: [string, TarMember[], RegExp][] = [
    ["an absolute path", [{ name: "/tmp/evil", content: "x" }], /"\/tmp\/evil", which is an absolute path/],
    ["..", [{ name: "../evil", content: "x" }], /leads out of its folder/],
    [".. inside", [{ name: "a/../../evil", content: "x" }], /leads out of its folder/],
    [".. as a folder", [{ name: "../", kind: "5" }], /leads out of its folder/],
    ["a backslash", [{ name: "..\\evil", content: "x" }], /holds a backslash/],
    ["a drive letter", [{ name: "C:evil", content: "x" }], /drive letter/],
    ["a line break", [{ name: "a\nb", content: "x" }], /control character/],
    [".. by pax", [pax({ path: "../../evil" }), { name: "fine", content: "x" }], /leads out of its folder/],
    [
      "an absolute path by pax",
      [pax({ path: "/evil" }, "g"), { name: "fine", content: "x" }],
      /absolute path/,
    ],
    [
      ".. by a long name",
      [
        { name: "L", kind: "L", content: "../evil\0" },
        { name: "fine", content: "x" },
      ],
      /leads out of its folder/,
    ],
    ["a symbolic link", [{ name: "link", kind: "2", link: "/etc" }], /"link", a symbolic link/],
    [
      "a file through a link",
      [
        { name: "link", kind: "2", link: ".." },
        { name: "link/evil", content: "x" },
      ],
      /symbolic link/,
    ],
    ["a hard link", [{ name: "link", kind: "1", link: "/etc/passwd" }], /"link", a hard link/],
    ["a character device", [{ name: "zero", kind: "3" }], /character device/],
    ["a block device", [{ name: "disk", kind: "4" }], /block device/],
    ["a pipe", [{ name: "pipe", kind: "6" }], /named pipe/],
    ["a sparse file", [{ name: "sparse", kind: "S" }], /sparse file/],
    ["a sparse file by pax", [pax({ "GNU.sparse.major": "1" }), { name: "sparse" }], /sparse file/],
    ["an unknown kind", [{ name: "what", kind: "Z" }], /unknown kind "Z"/],
    ["the same file twice", [ok, { name: "./ok", content: "again" }], /"ok" twice/],
    ["a file that is a folder too", [ok, { name: "ok/inside", content: "x" }], /twice/],
    ["a file without a name", [{ name: ".", content: "x" }], /twice|without a name/],
    ["a deep path", [pax({ path: "a/".repeat(40) }), { name: "x" }], /deeper than 32/],
    ["a very long path", [pax({ path: "a".repeat(5000) }), { name: "x" }], /longer than 1024/],
    ["a huge extension", [{ name: "x", kind: "x", size: 2 ** 30 }], /extension header of 1073741824 bytes/],
    ["extensions without end", Array(20).fill(pax({ a: "b" })), /belong to no file/],
    ["too many files", Array.from({ length: 21 }, (_, i) => ({ name: `f${i}` })), /more than 20 files/],
    ["too many bytes", [{ name: "zeros", content: Buffer.alloc(2 << 20) }], /more than 1048576 bytes/],
  ];
  it.each(hostile)("refuses %s, and writes nothing outside", async (_name, members, sentence) => {
    const before = listing(join(root, String(cases)));
    const error = await unpack(gzipSync(tar([{ name: "first", content: "1" }, ...members]))).catch((e) => e);
    expect(error).toBeInstanceOf(ArchiveError);
    expect(error).toMatchObject({ reason: "refused", message: expect.stringMatching(sentence) });
    const outside = listing(join(root, String(cases))).filter((path) => !path.startsWith("deep/out"));
    expect(outside).toEqual([...before, "archive"].sort());
    expect(existsSync("/tmp/evil") || existsSync("/evil")).toBe(false);
  });

  it("stops a bomb at the limit, not at its end", async () => {
    const bomb = gzipSync(tar([{ name: "zeros", content: Buffer.alloc(64 << 20) }]));
    await expect(unpack(bomb)).rejects.toThrow("unpacks to more than");
    expect(readFileSync(join(folder, "zeros")).length).toBeLessThanOrEqual(1 << 20);
  });

  it.each([
    ["a cut gzip", () => gzipSync(tar([{ name: "a", content: Buffer.alloc(9000, 3) }])).subarray(0, -10)],
    [
      "a flipped bit",
      () => {
        const bytes = gzipSync(tar([{ name: "a", content: "text that is here" }]), { level: 0 });
        bytes[10 + 5 + 512 + 3]! ^= 1;
        return bytes;
      },
    ],
    ["a cut file", () => tar([{ name: "a", content: Buffer.alloc(9000) }]).subarray(0, 4000)],
    ["a missing end", () => tar([{ name: "a", content: "x" }], { end: false })],
    ["no tar at all", () => Buffer.alloc(2048, 65)],
    ["nothing", () => Buffer.alloc(0)],
    ["a web page", () => Buffer.from("<html>not found</html>")],
    ["a bad pax header", () => tar([{ name: "x", kind: "x", content: "99 nonsense" }, { name: "a" }])],
  ])("says that %s is damaged", async (_name, bytes) => {
    await expect(unpack(bytes())).rejects.toMatchObject({ reason: "damaged" });
  });
});
