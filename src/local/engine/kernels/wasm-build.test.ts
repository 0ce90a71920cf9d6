import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

const script = fileURLToPath(new URL("../../../../scripts/build-kernels.mjs", import.meta.url));

describe("the committed wasm files", () => {
  it("are what their sources compile to", { timeout: 120_000 }, () => {
    const folder = mkdtempSync(join(tmpdir(), "kernels-"));
    try {
      execFileSync(process.execPath, [script, folder]);
      for (const name of ["kernels-plain.wasm", "kernels-relaxed.wasm"]) {
        const committed = readFileSync(new URL(name, import.meta.url));
        expect(readFileSync(join(folder, name)).equals(committed), `${name}: npm run generate:kernels`).toBe(
          true,
        );
      }
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
