import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { downloadCheckpoint, mergeAdapter } from "../../src/checkpoints/index.js";
import { RestClient } from "../../src/index.js";
import { startEngine } from "../../src/local/engine/start-engine.node.js";
import { type FakeHub, startFakeHub } from "../checkpoints/fake-hub.js";
import { fixture } from "../engine/golden.js";
import { type CliServer, startCliServer } from "./server.js";

const base = fixture("qwen3");

describe("checkpoints that leave the server", () => {
  let server: CliServer;
  let hub: FakeHub;
  let path: string;
  let runId: string;
  const hubEnv = () => ({ HF_ENDPOINT: hub.url, HF_TOKEN: "hf_good" });
  beforeAll(async () => {
    const model = { name: "test/tiny", path: base };
    const engine = await startEngine({ models: [model], threads: 1, inThread: true });
    [server, hub] = await Promise.all([startCliServer({ engine, baseModel: model.name }), startFakeHub()]);
    const training = await server.train();
    runId = training.modelId;
    ({ path } = await training.saveState("final"));
  });
  afterAll(async () => {
    await server[Symbol.asyncDispose]();
    await hub.close();
  });

  it("are pushed to the Hub, private and under a name of their own by default", async () => {
    const { code, stdout, stderr } = await server.cli(["checkpoint", "push-hf", path], hubEnv());
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    const { repo, branch, files } = hub.commits.at(-1)!;
    expect(stdout).toMatch(
      new RegExp(
        `^Repository +${repo}\nRevision +${branch}\nAddress +${hub.url}/${repo}/tree/${branch}\nCommit +\\w+\nPull request +none\n$`,
      ),
    );
    expect(repo).toContain(`tinker-tiny-${runId.replaceAll(":", "-")}`);
    expect(branch).toBe("weights-final");
    expect(files.sort()).toEqual(["README.md", "adapter_config.json", "adapter_model.safetensors"]);
    expect(hub.repos.get(repo)?.visibility).toBe("private");
  });

  it("are pushed as the options say", async () => {
    const { code, stdout } = await server.cli(
      [
        ...["checkpoint", "push-hf", path, "--repo", "me/adapter", "--public", "--revision", "v1"],
        ...["--commit-message", "The first", "--no-model-card", "--json"],
        ...[
          "--allow-pattern",
          "*.json",
          "--allow-pattern",
          "*.safetensors",
          "--ignore-pattern",
          "optimizer*",
        ],
      ],
      hubEnv(),
    );
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ tinkerPath: path, repo: "me/adapter", revision: "v1" });
    expect(hub.commits.at(-1)).toMatchObject({
      repo: "me/adapter",
      branch: "v1",
      summary: "The first",
      pullRequest: false,
      files: ["adapter_config.json", "adapter_model.safetensors"],
    });
    expect(hub.repos.get("me/adapter")?.visibility).toBe("public");

    await server.cli(
      ["checkpoint", "push-hf", path, "-r", "me/adapter", "--public", "--create-pr"],
      hubEnv(),
    );
    expect(hub.commits.at(-1)).toMatchObject({ repo: "me/adapter", branch: "main", pullRequest: true });
  });

  it("are not pushed by accident", async () => {
    hub.addRepo("me/open", "public");
    const [open, noToken, unknown] = await Promise.all([
      server.cli(["checkpoint", "push-hf", path, "--repo", "me/open"], hubEnv()),
      server.cli(["checkpoint", "push-hf", path], { ...hubEnv(), HF_TOKEN: "" }),
      server.cli(["checkpoint", "push-hf", `${path}-2`, "--repo", "me/nothing"], hubEnv()),
    ]);
    expect(open).toEqual({
      code: 1,
      stdout: "",
      stderr: "error: the repository is public: give --public to push to it all the same\n",
    });
    expect(noToken).toEqual({
      code: 1,
      stdout: "",
      stderr: "error: a Hugging Face token is needed: set HF_TOKEN, or run `hf auth login`\n",
    });
    expect(unknown).toMatchObject({ code: 1, stderr: expect.stringMatching(/has no checkpoint .*final-2/) });
  });

  it("are merged into their base model, from the server or from a folder", async () => {
    const { folder } = await downloadCheckpoint(new RestClient({ baseURL: server.url }), path, {
      outputDir: server.folder,
    });
    const expected = join(server.folder, "expected");
    await mergeAdapter(base, folder, expected);
    const weights = readFileSync(join(expected, "model.safetensors"));

    const fromServer = await server.cli(["checkpoint", "merge", path, "--base", base, "-o", "merged"]);
    const merged = join(server.folder, "merged");
    expect(fromServer).toEqual({
      code: 0,
      stdout: "",
      stderr: `${merged} holds qwen3 with the adapter in it\n`,
    });
    expect(readFileSync(join(merged, "model.safetensors")).equals(weights)).toBe(true);

    const card = readFileSync(join(merged, "README.md"), "utf8");
    expect(card).toContain(`- Base model: qwen3\n- Adapter: ${path}\n- LoRA rank 4, alpha 32;`);

    // The adapter itself says what it belongs to.
    const configFile = join(folder, "adapter_config.json");
    const config = JSON.parse(readFileSync(configFile, "utf8")) as object;
    writeFileSync(configFile, JSON.stringify({ ...config, base_model_name_or_path: base }));
    expect(await server.json(["checkpoint", "merge", folder, "--output", "again"])).toEqual({
      folder: join(server.folder, "again"),
      baseModel: "qwen3",
    });
    expect(readFileSync(join(server.folder, "again", "model.safetensors")).equals(weights)).toBe(true);

    const refused = await Promise.all([
      server.cli(["checkpoint", "merge", folder, "--output", "merged"]),
      server.cli(["checkpoint", "merge", "nowhere", "--output", "other"]),
      server.cli(["checkpoint", "merge", folder, "--base", "no model", "--output", "other"]),
      server.cli(["checkpoint", "merge", folder]),
    ]);
    expect(refused.map(({ code }) => code)).toEqual([1, 1, 1, 2]);
    expect(refused[0]!.stderr).toBe(`error: ${merged} exists already: give another --output\n`);
    expect(refused[1]!.stderr).toMatch(/nowhere is not a PEFT adapter/);
    expect(refused[2]!.stderr).toMatch(/"no model" is neither a folder .* nor a Hugging Face id/);
    expect(refused[3]!.stderr).toMatch(/required option '-o, --output <folder>' not specified/);
  });
});
