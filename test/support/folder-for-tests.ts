import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";

/** A folder for the tests of a file or of a `describe`, gone when they are over. */
export function folderForTests(name: string): string {
  const folder = mkdtempSync(join(tmpdir(), `tinkerts-${name}-`));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}
