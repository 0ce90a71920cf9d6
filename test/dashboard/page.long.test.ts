import {
  appendFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { BrowserContextOptions, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { type RunningDashboard, startDashboard, type TinkerServer } from "../../src/dashboard/index.js";
import { ServiceClient } from "../../src/index.js";
import { type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { silent } from "../local/raw-client.js";
import { findChromium } from "../support/chromium.js";
import { requireBuild } from "../support/newcomer.js";
import { type BrowserPages, browserPages, go, idOf, runLink, violationsOf } from "./browser-pages.js";
import { HOSTILE, reward, teach, writeHostileRun } from "./made-runs.js";

const isMissing = findChromium() === undefined;
if (isMissing) console.warn("the tests of the dashboard's page are skipped: no Chromium on this machine");
const VIEWS = ["runs", "curves", "samples", "checkpoints", "server", "playground"] as const;

describe.skipIf(isMissing)("the dashboard's page", () => {
  let home: string;
  let backend: LocalBackend;
  let service: ServiceClient;
  let server: TinkerServer;
  let pages: BrowserPages;
  let dashboard: RunningDashboard;
  const folder = (name: string) => join(home, "runs", name);

  beforeAll(async () => {
    requireBuild();
    home = mkdtempSync(join(tmpdir(), "tinkerts-page-"));
    backend = await startLocalBackend({ dataDir: join(home, "data"), logger: silent });
    service = new ServiceClient({ ...backend, logLevel: "off" });
    server = {
      address: backend.baseURL,
      rest: async () => service.createRestClient(),
      service: async () => service,
      activity: backend.activity,
    };
    pages = await browserPages();
    await teach(service, folder("taught"), 3e-3);
    await teach(service, folder("taught-slowly"), 3e-4);
    await reward(service, folder("rewarded"));
    dashboard = await startDashboard({ folders: [folder("")], server });
  });
  afterAll(async () => {
    await pages?.[Symbol.asyncDispose]();
    await dashboard?.close();
    await service?.close();
    await backend?.close();
    rmSync(home, { recursive: true, force: true });
  });
  // Whatever a test looks at: no error of the page, nothing that its policy had to refuse.
  afterEach(() => expect(pages.complaints()).toEqual([]));

  const open = (address = dashboard.address, options: BrowserContextOptions = {}) =>
    pages.open(address, options);
  const row = (page: Page, text: string) => page.getByRole("row").filter({ hasText: text });

  it("takes the token out of the address, and asks for one where there is none", async () => {
    const page = await open();
    expect(page.url()).toMatch(/#\/runs$/);
    await page.reload();
    await runLink(page, "taught").waitFor();
    await page.close();
    const stranger = await pages.browser.newPage();
    await stranger.goto(new URL("/", dashboard.address).href);
    await stranger.getByLabel("Address or token").fill(dashboard.address);
    await stranger.getByRole("button", { name: "Open" }).click();
    await runLink(stranger, "taught").waitFor();
    await stranger.close();
    // The address of this start, opened in the tab of one that ended.
    const late = await pages.browser.newPage();
    await late.goto(new URL("/", dashboard.address).href);
    await late.getByLabel("Address or token").waitFor();
    await go(late, new URL(dashboard.address).hash);
    await runLink(late, "taught").waitFor();
    expect(late.url()).toMatch(/#\/runs$/);
    await late.close();
  });

  it("shows a run that is asked for before it is there", async () => {
    const path = folder("late");
    const begin = () => {
      mkdirSync(path);
      writeFileSync(join(path, "metrics.jsonl"), '{"step": 0, "late_loss": 1}\n');
    };
    begin();
    const page = await open();
    await runLink(page, "late").waitFor();
    const run = await idOf(page, "late");
    rmSync(path, { recursive: true });
    await runLink(page, "late").waitFor({ state: "detached" });
    await go(page, `#/curves?run=${run}`);
    await page.getByText("The run does not exist, or no longer.").waitFor();
    begin();
    await page.getByRole("heading", { name: "late_loss" }).waitFor();
    pages.complaints();
    await page.close();
    rmSync(path, { recursive: true });
  });

  it("lists runs with model, state, step and newest value; filters, sorts and compares them", async () => {
    const page = await open();
    for (const text of ["tinkerts/nano", "finished", "train_mean_nll"])
      await row(page, "taught-slowly").getByText(text).waitFor();
    await row(page, "rewarded").getByText("env/all/reward/total").waitFor();
    await page.getByLabel("Search").fill("taught");
    await page.getByText("2 of 3 runs").waitFor();
    await page.getByRole("button", { name: "Run", exact: true }).click();
    const names = ["taught", "taught-slowly"];
    await expect.poll(() => page.locator("tbody th").allTextContents()).toEqual(names);
    for (const name of names) await page.getByLabel(`Compare ${name}`, { exact: true }).check();
    await page.getByRole("button", { name: "Compare 2" }).click();
    await page.getByRole("heading", { name: "test/nll" }).waitFor();
    await expect.poll(() => page.locator(".run-keys strong").allTextContents()).toEqual(names);
    await page.getByText("Settings and log").click();
    await page.getByRole("row", { name: /^learning_rate differs 0\.003 0\.0003$/ }).waitFor();
    await page
      .getByRole("region", { name: "Log of taught-slowly" })
      .getByText(/Trained \d+ steps/)
      .waitFor();
    await page.close();
  });

  it("is used with the keyboard alone: to a run, into its curves, along their values", async () => {
    const page = await open();
    const press = async (key: string, isThere: () => Promise<boolean>) => {
      for (let count = 0; count < 80 && !(await isThere()); count += 1) await page.keyboard.press(key);
      await expect.poll(isThere).toBe(true);
    };
    const focused = (text: string) => () =>
      page.evaluate((wanted) => document.activeElement?.textContent === wanted, text);
    await press("Tab", focused("taught"));
    await page.keyboard.press("Enter");
    await page.getByRole("slider", { name: /^train_mean_nll/ }).waitFor();
    await press("Tab", () =>
      page.evaluate(
        () => document.activeElement?.getAttribute("aria-label")?.startsWith("train_mean_nll") === true,
      ),
    );
    const valueText = () => page.evaluate(() => document.activeElement?.getAttribute("aria-valuetext"));
    await expect.poll(valueText).toMatch(/^last: [\d.e-]+$/);
    await page.keyboard.press("ArrowLeft");
    await expect.poll(valueText).toMatch(/^at step \d+: [\d.e-]+$/);
    await page.getByRole("columnheader", { name: /^at step/ }).waitFor();
    await page.close();
  });

  it("follows a run in every panel, and shows what pictures would hide", async () => {
    const path = folder("growing");
    mkdirSync(path);
    const log = (step: number, more = "") =>
      appendFileSync(join(path, "metrics.jsonl"), `{"step": ${step}, "loss": ${100 - step}${more}}\n`);
    for (let step = 0; step < 30; step += 1) log(step);
    const page = await open();
    await runLink(page, "growing").click();
    const values = () => page.getByRole("row", { name: /^loss/ }).innerText();
    await page.getByRole("slider", { name: /^loss/ }).waitFor();
    await expect.poll(values).toMatch(/loss\s+71\s+71\s+100\s+30/);
    log(30, ', "test/new": 5, "__proto__": 6, "constructor": 7');
    await page.getByRole("heading", { name: "test/new" }).waitFor();
    // Metrics whose names every object has.
    for (const name of ["__proto__", "constructor"])
      await page.getByRole("heading", { name, exact: true }).waitFor();
    await expect.poll(values).toMatch(/loss\s+70\s+70\s+100\s+31/);
    appendFileSync(join(path, "metrics.jsonl"), '{"step": 31, "loss": NaN}\n');
    await page.getByText("1 value is not drawn: not a number, first at step 31").waitFor();
    // Another run in the same folder.
    writeFileSync(join(path, "other"), '{"step": 0, "loss": 7}\n');
    renameSync(join(path, "other"), join(path, "metrics.jsonl"));
    await expect.poll(values).toMatch(/loss\s+7\.?0*\s+7\.?0*\s+7\.?0*\s+1$/);
    await page.close();
    rmSync(path, { recursive: true });
  });

  it("comes back after a cut with nothing missing and nothing twice", async () => {
    const path = folder("cut");
    mkdirSync(path);
    const log = (from: number, to: number) => {
      for (let step = from; step < to; step += 1)
        appendFileSync(join(path, "metrics.jsonl"), `{"step": ${step}, "loss": ${step * step}}\n`);
    };
    log(0, 50);
    await using proxy = await cuttableProxy(Number(new URL(dashboard.address).port));
    const address = dashboard.address.replace(/:\d+/, `:${proxy.port}`);
    const page = await open(address);
    const asked: string[] = [];
    page.on("request", (request) => asked.push(request.url()));
    await runLink(page, "cut").click();
    const count = page.getByRole("row", { name: /^loss/ }).locator("td").last();
    await expect.poll(() => count.innerText()).toBe("50");
    await expect.poll(() => asked.some((url) => /events\?run=[^&]+%2C50$/.test(url))).toBe(true);
    proxy.cut();
    await page.getByText("connection lost, trying again").waitFor();
    log(50, 80);
    proxy.restore();
    await page.locator(".connection.live").waitFor();
    await expect.poll(() => count.innerText()).toBe("80");
    // It went on from the line it had, and did not load everything again.
    expect(asked.filter((url) => url.includes("/metrics?"))).toHaveLength(1);
    // Each step of the outage has its own value.
    const slider = page.getByRole("slider", { name: /^loss/ });
    await page.getByLabel("From").fill("49");
    await page.getByLabel("From").blur();
    await slider.focus();
    const seen = new Map<string, string>();
    for (let presses = 0; presses < 60; presses += 1) {
      await page.keyboard.press("ArrowLeft");
      const [, step, value] =
        /at step (\d+): ([\d,]+)$/.exec((await slider.getAttribute("aria-valuetext")) ?? "") ?? [];
      if (step !== undefined) seen.set(step, value!);
    }
    expect(seen.size).toBeGreaterThan(20);
    const isRight = ([step, value]: [string, string]) => {
      const shown = Number(value.replace(",", ""));
      // The name of a place is rounded, its value is that of the point before it.
      return shown === Number(step) ** 2 || shown === (Number(step) - 1) ** 2;
    };
    expect([...seen].filter((entry) => !isRight(entry))).toEqual([]);
    pages.complaints();
    await page.close();
    rmSync(path, { recursive: true });
  });

  it("opens 200,000 steps at once, zooms into them and saves them whole", async () => {
    const path = folder("long");
    mkdirSync(path);
    const lines = Array.from({ length: 200_000 }, (_, step) =>
      JSON.stringify({
        step,
        time: 1e9 + step,
        train_mean_nll: step === 123_456 ? 42 : 3 / (1 + step / 1e4),
        "time/total": 1,
      }),
    );
    writeFileSync(join(path, "metrics.jsonl"), `${lines.join("\n")}\n`);
    const page = await open();
    const link = runLink(page, "long");
    await link.waitFor();
    await link.click();
    await page.getByRole("row", { name: /^train_mean_nll.*200,000/ }).waitFor();
    await page.locator("canvas").first().waitFor();
    await page.getByLabel("From").fill("123400");
    await page.getByLabel("From").blur();
    await page.getByLabel("to", { exact: true }).fill("123500");
    await page.getByLabel("to", { exact: true }).blur();
    await page.getByRole("button", { name: "Show all" }).waitFor();
    await page.getByLabel("Logarithmic").check();
    await page.getByLabel("Axis").selectOption("time");
    const saving = page.waitForEvent("download");
    await page.getByRole("button", { name: "Save as CSV" }).click();
    const saved = readFileSync(await (await saving).path(), "utf8")
      .trimEnd()
      .split("\r\n");
    expect(saved[0]).toBe("step,time,train_mean_nll,time/total");
    expect(saved).toHaveLength(200_001);
    expect(saved[123_457]).toBe("123456,123456,42,1");
    const picture = page.waitForEvent("download");
    await page.getByRole("button", { name: "Save train_mean_nll as PNG" }).click();
    const png = readFileSync(await (await picture).path());
    expect(png.subarray(1, 4).toString()).toBe("PNG");
    await page.close();
    rmSync(path, { recursive: true });
  });

  it("shows episodes by reward, their conversation, and tokens with their numbers", async () => {
    const page = await open();
    await go(page, `#/samples?run=${await idOf(page, "rewarded")}&step=0`);
    await page.getByRole("heading", { name: /^Group \d, episode \d/ }).waitFor();
    const shown = page.locator(".sample-list section").first().locator(".reward");
    await expect.poll(() => shown.count()).toBe(6);
    const rewards = await shown.allTextContents();
    expect(rewards.map(Number)).toEqual(rewards.map(Number).toSorted((one, other) => other - one));
    await page
      .getByText(/What is \d+ \+ \d+\?/)
      .first()
      .waitFor();
    const token = page.locator(".turn > .tokens span").first();
    await expect.poll(() => token.getAttribute("title")).toMatch(/logprob -?[\d.]+, probability/);
    await page.getByLabel("As a table").check();
    await page.getByRole("columnheader", { name: "logprob" }).waitFor();
    await page.getByRole("button", { name: "Later step" }).click();
    await expect.poll(() => page.url()).toContain("step=1");
    await page.getByLabel("Show").selectOption("report:train");
    await page.getByText("Group Rollout").first().waitFor();
    await page.close();
  });

  it("shows what a supervised run reads, and what of it it learns", async () => {
    const page = await open();
    await go(page, `#/samples?run=${await idOf(page, "taught")}&step=0`);
    await page.getByText("What the model reads, and what it is trained on").waitFor();
    const textOf = async (kind: string) =>
      (await page.locator(`.tokens .${kind}`).allTextContents()).join("");
    await expect.poll(() => textOf("trained")).toMatch(/^\w+-\way<\|im_end\|>$/);
    await expect.poll(() => textOf("read")).toContain("Pig Latin for");
    await expect
      .poll(() => page.locator(".tokens .trained").first().getAttribute("title"))
      .toMatch(/trained on, weight/);
    await page.close();
  });

  it("joins checkpoints with the server: expiry, download, deletion by name, chat", async () => {
    const page = await open(dashboard.address, { acceptDownloads: true });
    await go(page, `#/checkpoints?run=${await idOf(page, "taught-slowly")}`);
    const training = row(page, "/weights/000004");
    await expect.poll(() => training.innerText()).toMatch(/\d KB|\d MB/);
    await training.getByLabel("Let 000004 expire").selectOption({ label: "never" });
    await expect.poll(() => training.innerText()).toContain("never");
    const saving = page.waitForEvent("download");
    await training.getByRole("button", { name: "Download" }).click();
    const archive = await saving;
    expect(archive.suggestedFilename()).toMatch(/000004\.tar$/);
    expect(readFileSync(await archive.path()).length).toBeGreaterThan(10_000);
    await training.getByRole("button", { name: "Delete" }).click();
    const dialog = page.getByRole("dialog", { name: "Delete 000004" });
    const forGood = dialog.getByRole("button", { name: "Delete for good" });
    await dialog.getByRole("textbox").fill("00000");
    await expect.poll(() => forGood.isDisabled()).toBe(true);
    await dialog.getByRole("textbox").fill("000004");
    await forGood.click();
    await expect.poll(() => training.innerText()).toContain("gone");
    await row(page, "/sampler_weights/final").getByRole("link", { name: "Chat" }).click();
    await page.getByText("taught-slowly · final").first().waitFor({ state: "attached" });
    await page.close();
  });

  it("lets two models answer the same message", async () => {
    const page = await open();
    await go(page, "#/playground");
    for (const name of ["Model 1", "Model 2"])
      await page.getByRole("combobox", { name: new RegExp(`^${name}`) }).selectOption("tinkerts/nano");
    await page.getByLabel("Message", { exact: true }).fill("What is 12 + 7?");
    await page.keyboard.press("Control+Enter");
    await page.getByText("mean logprob").nth(1).waitFor();
    const answers = await page.locator(".column .tokens").allTextContents();
    expect(answers).toHaveLength(2);
    // The same model, message and seed.
    expect(answers[0]).toBe(answers[1]);
    expect(answers[0]).not.toBe("");
    await expect
      .poll(() => page.locator(".column .tokens span").first().getAttribute("title"))
      .toMatch(/logprob/);
    await go(page, "#/server");
    await page.getByRole("heading", { name: "Models" }).waitFor();
    for (const text of ["tokens a second", "of the process", "reading prompts", "sampling"])
      await page.getByText(text).first().waitFor();
    await page.close();
  });

  it("keeps each answer with the model and the conversation that it belongs to", async () => {
    const page = await open();
    await go(page, "#/playground");
    // The first answer of the left model comes late, when another model was chosen and asked.
    let release = () => {};
    const late = new Promise<void>((resolve) => {
      release = resolve;
    });
    let asked = 0;
    await page.route("**/api/chat", async (route) => {
      asked += 1;
      const number = asked;
      if (number === 1) await late;
      const event = (body: object) => `data: ${JSON.stringify({ sample: 0, ...body })}\n\n`;
      const message = { role: "assistant", parts: [{ type: "text", text: `answer ${number}` }] };
      const ending = { tokens: [], stopReason: "stop", seconds: 1 };
      const body = event({ type: "answer", message, text: `answer ${number}`, ...ending });
      await route.fulfill({ contentType: "text/event-stream", body }).catch(() => {});
    });
    await page.getByRole("button", { name: "Remove model 2" }).click();
    await page.getByLabel("Message", { exact: true }).fill("First?");
    await page.keyboard.press("Control+Enter");
    await expect.poll(() => asked).toBe(1);
    await page.getByRole("combobox", { name: /^Model 1/ }).selectOption("tinkerts/nano");
    await page.getByLabel("Message", { exact: true }).fill("Second?");
    await page.keyboard.press("Control+Enter");
    await page.getByText("answer 2").waitFor();
    release();
    await page.getByRole("button", { name: "Regenerate" }).click();
    await page.getByText("answer 3").waitFor();
    await expect.poll(() => page.getByText("answer 1").count()).toBe(0);
    // Another try is beside the first one, and an edited question begins a branch.
    await page.getByRole("button", { name: "Sample 1", exact: true }).click();
    await page.getByText("answer 2").waitFor();
    await page.getByRole("button", { name: "Edit" }).click();
    await page.getByLabel("Edited message").fill("Third?");
    await page.getByRole("button", { name: "Ask in a new branch" }).click();
    await page.getByText("answer 4").waitFor();
    await page.getByRole("button", { name: "Save as training row" }).click();
    await page.getByText(/Row 1 of .*playground\.jsonl/).waitFor();
    const messages = [
      { role: "user", content: "Third?" },
      { role: "assistant", content: "answer 4" },
    ];
    expect(JSON.parse(readFileSync(join(folder(""), "playground.jsonl"), "utf8"))).toEqual({ messages });
    // Both conversations are there after a reload.
    await page.reload();
    await page.getByLabel("Conversation").selectOption({ label: "Second?" });
    await page.getByText("answer 2").waitFor();
    await page.close();
    rmSync(join(folder(""), "playground.jsonl"));
  });

  it("asks up to four models, several times each, from a beginning of the answer", async () => {
    const page = await open();
    await go(page, "#/playground");
    for (const _ of [3, 4]) await page.getByRole("button", { name: "Add a model" }).click();
    await expect.poll(() => page.getByRole("button", { name: "Add a model" }).count()).toBe(0);
    await page.getByLabel("Samples", { exact: true }).fill("2");
    await page.getByLabel("Alternatives").fill("3");
    await page.getByLabel("Max tokens").fill("4");
    await page.getByRole("button", { name: "Prefill and stops" }).click();
    await page.getByLabel("Prefill", { exact: true }).fill("The answer is");
    await page.getByLabel("Message", { exact: true }).fill("What is 1 + 2?");
    await page.getByRole("button", { name: "Send" }).click();
    await page.getByText("mean logprob").nth(3).waitFor();
    await page.getByLabel("Colour tokens by").selectOption("none");
    await expect
      .poll(() => page.locator(".column .assistant").allTextContents())
      .toEqual(Array(4).fill(expect.stringContaining("The answer is")));
    await page.getByLabel("As a table").check();
    await expect
      .poll(() => page.locator(".column td.mono").nth(1).textContent())
      .toMatch(/^".*" [\d.e-]+ % {2}".*" /);
    await page.close();
  });

  it("says why a server shows no models", async () => {
    const refuse = async () => {
      throw new Error("connect ECONNREFUSED 127.0.0.1:1");
    };
    const gone = { address: "http://127.0.0.1:1", rest: refuse, service: refuse };
    await using alone = await startDashboard({ folders: [folder("")], server: gone });
    const page = await open(alone.address);
    await go(page, "#/playground");
    await page.getByRole("heading", { name: "The server does not answer" }).waitFor();
    await page.getByText("ECONNREFUSED").waitFor();
    // Nor does it look like a server without sessions.
    await go(page, "#/server");
    await page.getByRole("heading", { name: gone.address }).waitFor();
    await page.getByText("ECONNREFUSED").waitFor();
    expect(await page.locator("main").innerText()).not.toMatch(/no models|no sessions|Nothing was used/);
    await page.close();
  });

  it("shares the token with other tabs, and says that one was refused", async () => {
    const context = await pages.browser.newContext();
    const first = await context.newPage();
    await first.goto(dashboard.address);
    await runLink(first, "taught").waitFor();
    const second = await context.newPage();
    await second.goto(new URL("/", dashboard.address).href);
    await runLink(second, "taught").waitFor();
    const third = await context.newPage();
    await third.goto(new URL("/#token=wrong", dashboard.address).href);
    await third.getByText(/The token was refused/).waitFor();
    await context.close();
  });

  it("shows the last state of a run whose command has ended, and how to see it again", async () => {
    const path = folder("ending");
    mkdirSync(path);
    writeFileSync(join(path, "metrics.jsonl"), '{"step": 0, "loss": 3}\n');
    const showAgain = "npx tinkerts dashboard 'my runs'";
    const alone = await startDashboard({ folders: [folder("")], showAgain });
    const page = await open(alone.address);
    await runLink(page, "ending").click();
    await page.getByRole("slider", { name: /^loss/ }).waitFor();
    const values = page.getByRole("row", { name: /^loss/ });
    appendFileSync(join(path, "metrics.jsonl"), '{"step": 1, "loss": 2}\n');
    // The page follows the run: its stream is open.
    await values.getByText("2", { exact: true }).first().waitFor();
    appendFileSync(join(path, "metrics.jsonl"), '{"step": 2, "loss": 1}');
    writeFileSync(join(path, "checkpoints.jsonl"), '{"name": "final", "final": true}\n');
    await alone.close();
    await page.getByText(showAgain).waitFor();
    const sign = await page.locator(".connection.ended").boundingBox();
    // Dot and word are in one line.
    expect(sign?.height).toBeLessThan(30);
    await page.locator(".run-keys").getByText("finished").waitFor();
    // The last line has no newline.
    await expect.poll(() => values.innerText()).toMatch(/loss\s+1\s+1\s+3\s+3/);
    pages.complaints();
    await page.close();
    rmSync(path, { recursive: true });
  });

  it("draws constants and steps where they are, and names metrics in their order", async () => {
    const path = folder("plain");
    mkdirSync(path);
    const names = ["layer/0", "layer/12", "layer/108"];
    for (let step = 0; step < 6; step += 1)
      appendFileSync(
        join(path, "metrics.jsonl"),
        `${JSON.stringify({ step, zero: 0, "layer/108": 1, "layer/12": 1, "layer/0": step })}\n`,
      );
    const page = await open();
    await runLink(page, "plain").click();
    await page.getByRole("slider", { name: /^zero/ }).waitFor();
    const headings = async () => page.getByRole("heading", { level: 3 }).allTextContents();
    await expect
      .poll(async () => (await headings()).filter((name) => name.startsWith("layer/")))
      .toEqual(names);
    await page.locator(".run-keys").getByText("6 steps").waitFor();
    // A tooltip names what is under the pointer; the view is part of the address.
    await page.locator(".panel", { hasText: "layer/0" }).locator(".u-over").hover();
    await page
      .locator(".tooltip")
      .getByText(/^at step \d/)
      .waitFor();
    await page.getByLabel("Smoothing").fill("0.9");
    await page.getByLabel("Metrics", { exact: true }).fill("layer");
    await page.getByLabel("Logarithmic").check();
    await page.reload();
    await page.getByRole("heading", { name: "layer/0" }).waitFor();
    await expect.poll(() => page.getByRole("heading", { name: "zero" }).count()).toBe(0);
    await expect.poll(() => page.getByLabel("Smoothing").inputValue()).toBe("0.9");
    await expect.poll(() => page.getByLabel("Logarithmic").isChecked()).toBe(true);
    await page.close();
    rmSync(path, { recursive: true });
  });

  it("says that a folder is gone, and that a killed run is not running", async () => {
    const place = join(home, "vanishing");
    const path = join(place, "killed");
    mkdirSync(path, { recursive: true });
    writeFileSync(join(path, "metrics.jsonl"), '{"step": 0, "loss": 3}\n');
    // No process has this number.
    writeFileSync(join(path, ".lock"), "4194999 0");
    await using alone = await startDashboard({ folders: [place] });
    const page = await open(alone.address);
    await row(page, "killed").getByText("stopped").waitFor();
    rmSync(place, { recursive: true });
    await page.getByText(/vanishing cannot be read: it was removed or renamed/).waitFor();
    await expect.poll(() => page.getByText("No runs yet").count()).toBe(0);
    await page.close();
  });

  it("shows hostile runs as text, and never obeys them", async () => {
    writeHostileRun(folder("hostile"));
    mkdirSync(folder(`<img src=x onerror=window.hacked=1>`));
    writeFileSync(join(folder(`<img src=x onerror=window.hacked=1>`), "metrics.jsonl"), "");
    const page = await open();
    const run = await idOf(page, "hostile");
    await runLink(page, "<img src=x onerror=window.hacked=1>").waitFor();
    const check = async (view: string, text: string) => {
      await page.getByText(text).first().waitFor({ state: "attached" });
      const found = await page.evaluate(() => ({
        hacked: (window as { hacked?: number }).hacked,
        made: document.querySelectorAll("main img, main script, main iframe").length,
      }));
      expect({ view, ...found }).toEqual({ view, hacked: undefined, made: 0 });
    };
    await check("runs", HOSTILE);
    await go(page, `#/curves?run=${run}`);
    await page.getByText("Texts").click();
    await page.getByText("Settings and log").click();
    await row(page, "model_name").waitFor();
    await check("curves", `loss/${HOSTILE}`);
    await page.getByText("1 unreadable line").waitFor();
    for (const name of ["loss", "huge", "tiny"])
      await page.getByRole("heading", { name, exact: true }).waitFor();
    await page.getByLabel("Logarithmic").check();
    await go(page, `#/samples?run=${run}`);
    await check("samples", HOSTILE);
    await page.getByText("⟨999999⟩").waitFor();
    await go(page, `#/samples?run=${run}&step=3&split=report:train`);
    await check("report", HOSTILE);
    await go(page, `#/checkpoints?run=${run}`);
    await check("checkpoints", HOSTILE);
    await page.close();
    for (const name of ["hostile", `<img src=x onerror=window.hacked=1>`])
      rmSync(folder(name), { recursive: true });
  });

  it.each([
    ["light", 390],
    ["dark", 1280],
    ["light", 1280],
  ] as const)("can be read by everybody: %s, %d pixels wide", async (colorScheme, width) => {
    // axe is not of the page, so its policy would keep it out.
    const page = await open(dashboard.address, {
      colorScheme,
      viewport: { width, height: 900 },
      bypassCSP: true,
    });
    const run = await idOf(page, "rewarded");
    for (const view of VIEWS) {
      await go(page, `#/${view}?run=${run}`);
      await page.getByRole("heading", { level: 1 }).waitFor({ state: "attached" });
      await page.waitForTimeout(600);
      const found = await violationsOf(page);
      expect({ view, found }).toEqual({ view, found: [] });
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      expect({ view, overflow }).toEqual({ view, overflow: 0 });
      expect({ view, broken: await page.evaluate(brokenWords) }).toEqual({ view, broken: [] });
    }
    await page.close();
  });

  it("says that there is nothing yet, and shows the first run when it comes", async () => {
    const empty = join(home, "empty");
    mkdirSync(empty);
    await using alone = await startDashboard({ folders: [empty] });
    const page = await open(alone.address);
    for (const [view, text] of [
      ["curves", "No runs yet"],
      ["samples", "No samples yet"],
      ["checkpoints", "No checkpoints yet"],
      ["server", "No server"],
      ["playground", "No server"],
      ["runs", "No runs yet"],
    ] as const) {
      await go(page, `#/${view}`);
      await page.getByRole("heading", { name: text }).waitFor();
    }
    mkdirSync(join(empty, "first"));
    writeFileSync(join(empty, "first/metrics.jsonl"), '{"step":0,"loss":1}\n');
    await runLink(page, "first").waitFor();
    await page.close();
  });
});

/** Between browser and server, to be cut. */
async function cuttableProxy(target: number) {
  const sockets = new Set<Socket>();
  let isCut = false;
  const proxy = createServer((socket) => {
    if (isCut) return socket.destroy();
    const upstream = connect(target, "127.0.0.1");
    for (const one of [socket, upstream]) {
      sockets.add(one);
      one.on("error", () => {});
      one.on("close", () => {
        sockets.delete(one);
        socket.destroy();
        upstream.destroy();
      });
    }
    return socket.pipe(upstream).pipe(socket);
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const cut = () => {
    isCut = true;
    for (const socket of sockets) socket.destroy();
  };
  return {
    port: (proxy.address() as AddressInfo).port,
    cut,
    restore: () => {
      isCut = false;
    },
    async [Symbol.asyncDispose]() {
      cut();
      await new Promise((resolve) => proxy.close(resolve));
    },
  };
}

/** Runs in the page: the cells of tables whose only word goes over two lines; long names and texts may. */
function brokenWords(): readonly string[] {
  return [...document.querySelectorAll("td:not(.text, .setting)")].flatMap((cell) => {
    const text = cell.textContent.trim();
    const range = document.createRange();
    range.selectNodeContents(cell);
    const lines = new Set([...range.getClientRects()].map(({ bottom }) => Math.round(bottom)));
    return /^[\w/]+$/.test(text) && cell.children.length === 0 && lines.size > 1 ? [text] : [];
  });
}
