import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

const script = fileURLToPath(new URL("../../../../scripts/build-kernels.mjs", import.meta.url));

const COMMITTED = [
  ...["kernels-plain.wasm", "kernels-relaxed.wasm"],
  ...["../../../checkpoints/low-rank.wasm", "../../../checkpoints/gguf/k-quants.wasm"],
];

describe("the committed wasm files", () => {
  it("are what their sources compile to", () => {
    const folder = mkdtempSync(join(tmpdir(), "kernels-"));
    try {
      execFileSync(process.execPath, [script, folder]);
      for (const path of COMMITTED) {
        const committed = readFileSync(new URL(path, import.meta.url));
        const made = readFileSync(join(folder, basename(path)));
        expect(made.equals(committed), `${path}: npm run generate:kernels`).toBe(true);
      }
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
