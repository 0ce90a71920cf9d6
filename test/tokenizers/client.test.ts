import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ServiceClient } from "../../src/index.js";
import { startLocalBackend } from "../../src/local/index.js";
import { FakeEngine, fakeModel } from "../local/fake-engine.js";
import { silent } from "../local/raw-client.js";
import { readFiles, writeFolder } from "./fixtures.js";

describe("getTokenizer of a sampling client", () => {
  let cacheFolder: string;
  beforeAll(() => {
    cacheFolder = mkdtempSync(join(tmpdir(), "tinkerts-cache-"));
    const repository = join(cacheFolder, `models--${fakeModel.name.replace("/", "--")}`);
    writeFolder(readFiles("nano"), join(repository, "snapshots", "a".repeat(40)));
    mkdirSync(join(repository, "refs"));
    writeFileSync(join(repository, "refs/main"), "a".repeat(40));
  });
  afterAll(() => rmSync(cacheFolder, { recursive: true }));

  it("loads that of the base model, once", async () => {
    await using backend = await startLocalBackend({
      engine: new FakeEngine(),
      logger: silent,
      listen: false,
    });
    await using service = new ServiceClient(backend);
    const sampler = await service.createSamplingClient({ baseModel: fakeModel.name });
    const tokenizer = await sampler.getTokenizer({ cacheFolder, offline: true });
    expect(tokenizer.name).toBe(fakeModel.name);
    expect(tokenizer.decode(tokenizer.encode("2+2=4 ✓"))).toBe("2+2=4 ✓");
    expect(await sampler.getTokenizer({ cacheFolder, offline: true })).toBe(tokenizer);
    const missing = sampler.getTokenizer({ cacheFolder: join(cacheFolder, "none"), offline: true });
    await expect(missing).rejects.toThrow(/fake\/tiny is needed, but this is offline mode/);
  });
});
