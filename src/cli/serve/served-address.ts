import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { holderOf } from "../../files.node.js";

const addressFile = (dataDir: string) => join(dataDir, "address");

/**
 * Records where the server of a data folder listens, for other commands in the same place; returns a function that
 * removes the record.
 */
export async function announceAddress(dataDir: string, address: string): Promise<() => Promise<void>> {
  await writeFile(addressFile(dataDir), `${process.pid} ${address}\n`, { mode: 0o600 });
  return () => rm(addressFile(dataDir), { force: true });
}

/** Address of the server that uses a data folder; undefined if none does. */
export async function servedAddress(dataDir: string): Promise<string | undefined> {
  const text = await readFile(addressFile(dataDir), "utf8").catch(() => "");
  const [, processId, address] = /^(\d+) (http:\S+)\n$/.exec(text) ?? [];
  // A killed server leaves its record behind.
  return processId !== undefined && (await holderOf(dataDir)) === Number(processId) ? address : undefined;
}
