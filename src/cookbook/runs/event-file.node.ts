import { type FileHandle, mkdir, open } from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";

/** Makes a new event file in a folder, named so that TensorBoard finds it and no other process has the same. */
export async function createEventFile(folder: string): Promise<FileHandle> {
  await mkdir(folder, { recursive: true });
  const seconds = String(Math.floor(Date.now() / 1000)).padStart(10, "0");
  const name = `events.out.tfevents.${seconds}.${hostname()}.${process.pid}.${performance.now().toFixed(0)}`;
  return open(join(folder, name), "wx");
}
