import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { DashboardInfo, RunList, ServerAnswer } from "../../src/dashboard/api.js";
import { run, start } from "./command.js";

const ADDRESS = /http:\/\/127\.0\.0\.1:\d+\/(?:dashboard\/)?#token=[\w-]+/;

/** Asks a dashboard as its page does. */
async function ask<T>(address: string, path: string): Promise<T> {
  const { origin, pathname, hash } = new URL(address);
  const headers = { authorization: `Bearer ${hash.slice("#token=".length)}` };
  const response = await fetch(`${origin}${pathname}api/${path}`, { headers });
  expect(response.status).toBe(200);
  return (await response.json()) as T;
}

describe("the dashboard's addresses", () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "tinkerts-cli-dashboard-"));
    mkdirSync(join(folder, "runs/one"), { recursive: true });
    writeFileSync(join(folder, "runs/one/metrics.jsonl"), '{"step":0,"loss":1}\n');
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));
  const env = { TINKER_API_KEY: "", TINKER_BASE_URL: "" };

  it("tinkerts dashboard prints one, and serves the runs of a folder until Ctrl-C", async () => {
    // Stands for the browser: notes what everybody sees of it, and what only its user can read.
    const browser = `#!/bin/sh\necho "$@" > "$0.arguments"; cat "$1" > "$0.page"; stat -c %a "$1" >> "$0.page"; touch "$0.done"\n`;
    writeFileSync(join(folder, "xdg-open"), browser, { mode: 0o755 });
    const command = start(["dashboard", "runs", "--port", "0", "--read-only", "--open"], {
      cwd: folder,
      env: { ...env, PATH: `${folder}:${process.env["PATH"]}` },
    });
    const [address] = await command.seen(ADDRESS);
    if (process.platform === "linux") {
      await vi.waitUntil(() => existsSync(join(folder, "xdg-open.done")));
      expect(readFileSync(join(folder, "xdg-open.arguments"), "utf8")).not.toContain("token");
      const page = readFileSync(join(folder, "xdg-open.page"), "utf8");
      expect(page).toContain(`url=${address}"`);
      expect(page).toMatch(/\n600\n$/);
    }
    const { runs } = await ask<RunList>(address, "runs");
    expect(runs.map(({ name }) => name)).toEqual(["one"]);
    expect(await ask<DashboardInfo>(address, "info")).toMatchObject({ isReadOnly: true });
    const page = await fetch(new URL("/", address));
    expect(await page.text()).toContain("<title>tinkerts</title>");
    command.child.kill("SIGINT");
    const { code, stdout, stderr } = await command.finished;
    expect({ code, stdout }).toEqual({ code: 0, stdout: `${address}\n` });
    expect(stderr).toContain("for this machine alone");
  });

  it("tinkerts dashboard names a folder that is not there", async () => {
    const { code, stderr } = await run(["dashboard", "nowhere"], { cwd: folder, env });
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr: "error: nowhere is not a folder that can be read\n",
    });
  });

  it("tinkerts serve has the page too, beside its API and with its state", async () => {
    const serve = start(["serve", "--port", "0", "--threads", "1", "--api-key", "tml-secret-of-the-server"], {
      cwd: folder,
      env,
    });
    const [, baseURL] = await serve.seen(/TINKER_BASE_URL=(\S+)/);
    await serve.seen(/TINKER_API_KEY/);
    serve.child.kill("SIGINT");
    const { stderr } = await serve.finished;
    const [address] = ADDRESS.exec(stderr)!;
    expect(address.startsWith(`${baseURL}/dashboard/#token=`)).toBe(true);
    const again = start(["serve", "--port", "0", "--threads", "1", "--api-key", "tml-secret-of-the-server"], {
      cwd: folder,
      env,
    });
    let said = "";
    again.child.stderr?.on("data", (text: string) => {
      said += text;
    });
    await again.seen(/TINKER_API_KEY/);
    const [second] = ADDRESS.exec(said)!;
    // A token is good for one start.
    expect(second.split("#")[1]).not.toBe(address.split("#")[1]);
    const answer = await ask<ServerAnswer>(second, "server");
    expect(answer).toMatchObject({
      models: [{ name: "tinkerts/nano" }],
      activity: { runs: [], sequences: 0 },
    });
    expect(JSON.stringify(answer)).not.toContain("tml-secret");
    expect((await ask<RunList>(second, "runs")).runs.map(({ name }) => name)).toEqual(["runs/one"]);
    const bare = await fetch(new URL("/dashboard", second), { redirect: "manual" });
    expect(bare.headers.get("location")).toBe("/dashboard/");
    expect((await fetch(new URL("/dashboard/api/runs", second))).status).toBe(401);
    // The API is as it was.
    expect((await fetch(new URL("/api/v1/healthz", second))).status).toBe(200);
    again.child.kill("SIGINT");
    expect((await again.finished).code).toBe(0);
  });

  it("tinkerts train serves its run while it trains, and can leave that out", async () => {
    const rows = Array.from({ length: 8 }, (_, index) => ({
      messages: [
        { role: "user", content: `Say ${index}` },
        { role: "assistant", content: `${index}!` },
      ],
    }));
    writeFileSync(join(folder, "chats.jsonl"), rows.map((row) => JSON.stringify(row)).join("\n"));
    const train = ["train", "sft", "chats.jsonl", "--epochs", "4000", "--batch-size", "2", "--rank", "2"];
    const command = start(train, { cwd: folder, env });
    const address = await new Promise<string>((resolve, reject) => {
      let said = "";
      command.child.stderr?.on("data", (text: string) => {
        said += text;
        const found = ADDRESS.exec(said);
        if (found !== null) resolve(found[0]);
      });
      command.finished.then(({ stderr }) => reject(new Error(stderr)), reject);
    });
    await expect
      .poll(
        async () =>
          (await ask<RunList>(address, "runs")).runs.find(({ name }) => name === "chats-nano")?.step,
      )
      .toBeGreaterThan(0);
    const { activity } = await ask<ServerAnswer>(address, "server");
    expect(activity?.runs).toMatchObject([{ name: "chats-nano", baseModel: "tinkerts/nano" }]);
    command.child.kill("SIGINT");
    await command.finished;
    await expect(fetch(address)).rejects.toThrow();
    const quiet = await run([...train, "--no-dashboard", "--max-steps", "1", "--folder", "other"], {
      cwd: folder,
      env,
    });
    expect(quiet.code).toBe(0);
    expect(quiet.stderr).not.toContain("#token=");
  });
});
