import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { FolderLock, writeFileAtomic } from "./files.node.js";

let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "files-"));
});

afterEach(() => rm(folder, { recursive: true }));

describe("a folder's lock", () => {
  const take = () => FolderLock.take(folder, "test folder");
  const lockFile = () => join(folder, ".lock");

  it("keeps out a second owner of the same process until it is released", async () => {
    const lock = await take();
    await expect(take()).rejects.toThrow(`The test folder ${folder} is in use by this process; close it`);
    await lock.release();
    await (await take()).release();
    expect(await readdir(folder)).toEqual([]);
  });

  it("keeps out other processes, and is free once its process has ended", async () => {
    await writeFile(lockFile(), String(process.ppid));
    await expect(take()).rejects.toThrow(`in use by process ${process.ppid};`);
    await writeFile(lockFile(), "999999999");
    await (await take()).release();
  });

  it.runIf(process.platform === "linux")(
    "is not held by a killed process that its parent has not waited for (a container without init never does)",
    async () => {
      // The shell becomes a program that knows nothing of its child, which ends after that.
      const whileShell = "while grep -q '^sh$' /proc/$$/comm; do sleep 0.01; done";
      const parent = spawn("sh", ["-c", `(${whileShell}) & echo $!; exec sleep 100`], {
        stdio: ["ignore", "pipe", "ignore"],
      });
      try {
        const [id] = (await once(parent.stdout, "data")) as [Buffer];
        const child = Number(String(id));
        await vi.waitFor(async () => expect(await readFile(`/proc/${child}/stat`, "utf8")).toMatch(/\) Z /));
        await writeFile(lockFile(), String(child));
        await (await take()).release();
      } finally {
        parent.kill();
      }
    },
  );

  it.runIf(process.platform === "linux")(
    "is not held by a process that has the id by chance (only Linux says when a process began)",
    async () => {
      const lock = await take();
      const content = await readFile(lockFile(), "utf8");
      await lock.release();
      // This process began when it did, but did not take that lock here: another thread of it must have.
      await writeFile(lockFile(), content);
      await expect(take()).rejects.toThrow("in use by another thread of this process;");
      // The same id, but begun at another time: as after a restart of the machine.
      await writeFile(lockFile(), content.replace(/\d+$/, "7"));
      await (await take()).release();
      await writeFile(lockFile(), `${process.ppid} ${content.split(" ")[1]}`);
      await (await take()).release();
    },
  );
});

describe("a file written in one step", () => {
  it("replaces the old one, and a failure leaves nothing behind", async () => {
    const file = join(folder, "a.txt");
    await writeFileAtomic(file, "one");
    await writeFileAtomic(file, "two");
    expect(await readFile(file, "utf8")).toBe("two");
    await expect(writeFileAtomic(folder, "a folder is in the way")).rejects.toThrow();
    expect(await readdir(folder)).toEqual(["a.txt"]);
  });
});
