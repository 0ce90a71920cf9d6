import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

const generator = fileURLToPath(new URL("../../scripts/proto.mjs", import.meta.url));
const committed = fileURLToPath(new URL("../../src/wire/gen", import.meta.url));

describe("the generated protobuf code", () => {
  it("is what the .proto file says; if not: npm run generate:protobuf", (context) => {
    const folder = mkdtempSync(join(tmpdir(), "tinkerts-protobuf-"));
    try {
      const { status, stderr } = spawnSync(process.execPath, [generator, folder], { encoding: "utf8" });
      if (stderr.includes("No protobuf compiler found")) return context.skip(stderr.trim());
      expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
      for (const file of readdirSync(folder))
        expect(readFileSync(join(folder, file), "utf8")).toBe(readFileSync(join(committed, file), "utf8"));
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
