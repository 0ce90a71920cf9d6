import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { startFake } from "./raw-client.js";

// A file in a folder's place is refused by the system like a full or a read-only disk, for every user, root included.
describe("a data folder that cannot be written", () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), "tinkerts-unwritable-"));
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  it("is named when the server starts", async () => {
    await writeFile(join(folder, "file"), "");
    const dataDir = join(folder, "file", "data");
    await expect(startFake({ dataDir })).rejects.toThrow(
      `The data folder ${dataDir} cannot be written: a part of its path is not a folder (ENOTDIR).`,
    );
    await expect(startFake({ dataDir: join(folder, "file") })).rejects.toThrow(
      `The data folder ${join(folder, "file")} cannot be written: it is a file, not a folder.`,
    );
  });

  it("is reported to clients with its reason, as not to be retried, without the server's paths", async () => {
    const { backend, client, engine } = await startFake({ dataDir: folder });
    const modelId = await client.createModel(await client.openSession(), 0);
    for (const part of ["sessions", "runs"]) {
      await rm(join(folder, part), { recursive: true });
      await writeFile(join(folder, part), "");
    }
    const refused = await client.post("/create_session", { tags: [], sdk_version: "0.36.0" });
    expect([refused.status, refused.headers.get("x-should-retry")]).toEqual([507, "false"]);
    expect(refused.body["detail"]).toMatch(/data folder cannot be written: .*ENOTDIR/);
    const saved = await client.result(
      client.ok("/save_weights", { model_id: modelId, seq_id: 1, path: "a" }),
    );
    expect(saved).toMatchObject({ category: "server", error: expect.stringMatching(/cannot be written/) });
    expect(JSON.stringify([refused.body, saved])).not.toContain(folder);
    await expect(backend.close()).rejects.toThrow(/ENOTDIR/);
    expect(engine.isClosed).toBe(true);
    await rm(join(folder, "sessions"));
    await rm(join(folder, "runs"));
    // Nothing of the first server is left that would keep a second one out.
    const { backend: next } = await startFake({ dataDir: folder });
    await next.close();
  });
});
