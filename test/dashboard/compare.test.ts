import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { type RunningDashboard, startDashboard } from "../../src/dashboard/index.js";
import { findChromium } from "../support/chromium.js";
import { someOf } from "../support/long.js";
import { requireBuild } from "../support/newcomer.js";
import { pngSize } from "../support/png-header.js";
import { type BrowserPages, browserPages, go, idOf, runLink, violationsOf } from "./browser-pages.js";
import { writeEpisodes, writeSweep, writeSweptRun } from "./written-runs.js";

const isMissing = findChromium() === undefined;
if (isMissing) console.warn("the tests of compared runs are skipped: no Chromium on this machine");

const WARNING = { step: 12, kind: "loss_rising", metric: "train_mean_nll", message: "The loss rises." };

describe.skipIf(isMissing)("runs beside each other", () => {
  let home: string;
  let pages: BrowserPages;
  let dashboard: RunningDashboard;
  const run = (name: string) => join(home, "runs", name);
  const best = "rates/003-rate-0.001-rank-4";
  const other = "rates/001-rate-0.0001-rank-4";

  beforeAll(async () => {
    requireBuild();
    home = mkdtempSync(join(tmpdir(), "tinkerts-compare-"));
    writeSweep(run("rates"));
    writeSweptRun(run("alone"), { rate: 5e-4, rank: 8, best: 1.75 });
    writeEpisodes(run("geography"), (_, index) => `answer ${index}`);
    writeEpisodes(run("colours"), (step, index) => (index === 2 ? `after ${step} steps` : "none"));
    const lines = [
      WARNING,
      { ...WARNING, kind: "kl", metric: "absent", proposal: "Lower the learning rate." },
    ];
    writeFileSync(join(run(best), "warnings.jsonl"), lines.map((line) => JSON.stringify(line)).join("\n"));
    pages = await browserPages();
    dashboard = await startDashboard({ folders: [run("")] });
  });
  afterAll(async () => {
    await pages?.[Symbol.asyncDispose]();
    await dashboard?.close();
    rmSync(home, { recursive: true, force: true });
  });
  afterEach(() => expect(pages.complaints()).toEqual([]));
  const row = (page: Page, name: string) => page.getByRole("row").filter({ has: runLink(page, name) });
  const names = (page: Page) => page.locator("tbody .run-link").allTextContents();

  it("stand in a table with curve, progress, best evaluation, duration, cost and settings", async () => {
    const page = await pages.open(dashboard.address);
    const text = await row(page, best).innerText();
    for (const part of [
      "20 of 40 steps",
      "1.250",
      "test/nll at step 9",
      "1 min",
      "$0.8000",
      "0.001",
      "2 warnings",
    ])
      expect(text).toContain(part);
    await expect.poll(() => row(page, best).locator(".small-curve polyline").count()).toBe(1);
    // Runs of a sweep are one group, whose best is that of its best run.
    await page.getByRole("rowheader", { name: /sweep rates.*4 runs, best test\/nll 1\.25/s }).waitFor();
    await page.getByRole("button", { name: "Best", exact: true }).click();
    await page.getByRole("button", { name: "Best", exact: true }).click();
    expect((await names(page))[0]).toBe(best);
    await page.close();
  });

  it("are found by words and conditions, grouped, and shown with chosen settings after a reload", async () => {
    const page = await pages.open(dashboard.address);
    await page.getByLabel("Search").fill("rank=4 best<1.9");
    await page.getByText("1 of 7 runs").waitFor();
    await page.getByLabel("Search").fill("rates learningrate>=0.001");
    await page.getByText("2 of 7 runs").waitFor();
    await page.getByLabel("Search").fill("lora_rank=16");
    await page.getByLabel("Group by").selectOption("learning_rate");
    await page.getByRole("rowheader", { name: /learning_rate 0\.0001/ }).waitFor();
    await page.getByText("Settings as columns").click();
    await page.getByRole("button", { name: "Only those that differ" }).click();
    await page.getByRole("checkbox", { name: "seed" }).check();
    await page.reload();
    await page.getByText("2 of 7 runs").waitFor();
    await page.getByRole("columnheader", { name: "seed" }).waitFor();
    const heads = (await page.getByRole("columnheader").allTextContents()).map((head) => head.trim());
    for (const name of ["learning_rate", "learningRate", "seed"]) expect(heads).toContain(name);
    expect(heads).not.toContain("lora_rank");
    await page.getByRole("rowheader", { name: /learning_rate 0\.0001/ }).waitFor();
    await page.close();
  });

  it("have tags and a note in their folders", async () => {
    const page = await pages.open(dashboard.address);
    await page.getByRole("button", { name: "Add note: alone" }).click();
    const dialog = page.getByRole("dialog", { name: "Tags and note of alone" });
    await dialog.getByLabel("Tags").fill("baseline, good, good");
    await dialog.getByLabel("Note", { exact: true }).fill("<b>Keep</b> this one.");
    await dialog.getByRole("button", { name: "Save" }).click();
    await row(page, "alone").getByText("<b>Keep</b> this one.").waitFor();
    const notes = { tags: ["baseline", "good"], note: "<b>Keep</b> this one." };
    expect(JSON.parse(readFileSync(join(run("alone"), "notes.json"), "utf8"))).toEqual(notes);
    await page.getByLabel("Search").fill("tag=good");
    await page.getByText("1 of 7 runs").waitFor();
    await page.getByLabel("Group by").selectOption("tag");
    await page.getByRole("rowheader", { name: /^▾? ?baseline 1 run/ }).waitFor();
    await page.close();
    await using readOnly = await startDashboard({ folders: [run("")], readOnly: true });
    const locked = await pages.open(readOnly.address);
    await row(locked, "alone").getByText("good").waitFor();
    await expect.poll(() => locked.getByRole("button", { name: /note/ }).count()).toBe(0);
    await locked.close();
    rmSync(join(run("alone"), "notes.json"));
  });

  it("are points of a scatter plot and lines of parallel coordinates, which lead to their curves", async () => {
    const page = await pages.open(dashboard.address);
    await page.getByLabel("Show").selectOption("scatter");
    const plot = page.getByRole("region", { name: "Scatter plot" });
    await plot.getByText("4 of 7 runs have both").waitFor();
    await plot.getByLabel("Across").selectOption("duration");
    await plot.getByLabel("Up").selectOption("cost");
    await plot.getByText("5 of 7 runs have both").waitFor();
    await expect.poll(() => plot.locator("circle").count()).toBe(5);
    await page.getByLabel("Show").selectOption("parallel");
    const lines = page.getByRole("region", { name: "Parallel coordinates" }).getByRole("link");
    await expect.poll(() => lines.count()).toBe(4);
    await lines
      .and(page.getByRole("link", { name: new RegExp(`^${best}: learningRate 0.001, rank 4, Best 1.25`) }))
      .focus();
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "test/nll" }).waitFor();
    await page.close();
  });

  it("show only the settings that differ, their warnings at the curve, and what a step spends its time on", async () => {
    const page = await pages.open(dashboard.address);
    const ids = [await idOf(page, best), await idOf(page, other)];
    await go(page, `#/curves?run=${ids[0]}&run=${ids[1]}`);
    const warnings = page.getByRole("region", { name: "Warnings" });
    await warnings.getByText("Lower the learning rate.").waitFor();
    await expect.poll(() => warnings.getByRole("listitem").count()).toBe(2);
    const panel = page.getByRole("region", { name: "train_mean_nll", exact: true });
    await panel.getByText("Step 12: The loss rises.").waitFor();
    await page.locator(".run-keys").getByText("$0.8000").first().waitFor();
    const times = page.getByRole("region", { name: /^Time per step of .*rate-0\.001/ });
    await times.getByRole("img", { name: "Last step: sampling 1 s, train_step 2 s" }).waitFor();
    await page.getByText("Settings and log").click();
    const setting = (name: string) => page.getByRole("row", { name: new RegExp(`^${name}`) });
    await setting("learning_rate").waitFor();
    await expect.poll(() => setting("seed").count()).toBe(0);
    await page.getByLabel("Only settings that differ").uncheck();
    await setting("seed").waitFor();
    // The picture is twice as large, and has a line for each run below it.
    const shown = await panel
      .locator(".chart")
      .evaluate(({ clientWidth, clientHeight }) => ({ clientWidth, clientHeight }));
    const saving = page.waitForEvent("download");
    await page.getByRole("button", { name: "Save train_mean_nll as PNG" }).click();
    const { width, height } = pngSize(readFileSync(await (await saving).path()));
    expect(width).toBeGreaterThanOrEqual(2 * shown.clientWidth);
    expect(height).toBeGreaterThanOrEqual(2 * (shown.clientHeight + 2 * 20));
    await page.close();
  });

  it("have samples that are searched, sorted, filtered and gone through with keys", async () => {
    const page = await pages.open(dashboard.address);
    await go(page, `#/samples?run=${await idOf(page, "geography")}&step=0`);
    const list = page.getByRole("navigation", { name: "Samples" });
    await list.getByText("6 samples").waitFor();
    await list.getByText("Which rivers flow north?").first().waitFor();
    await page.getByRole("img", { name: /^Rewards: -1 to 1, mean 0\b.*\(6 samples\)/ }).waitFor();
    await page.getByRole("img", { name: /^Tokens: 10 to 30, mean 20\b.*\(6 samples\)/ }).waitFor();
    await page.getByLabel("Sort").selectOption("shortest");
    const answers = () => list.locator(".sample-line .words").allTextContents();
    await expect
      .poll(answers)
      .toEqual(["answer 0", "answer 3", "answer 1", "answer 4", "answer 2", "answer 5"]);
    await page.getByLabel("Stop reason").selectOption("stop");
    await page.getByLabel("Reward from").fill("0");
    await page.getByLabel("Reward from").blur();
    await list.getByText("2 of 6 samples").waitFor();
    await expect.poll(answers).toEqual(["answer 1", "answer 4"]);
    await page.locator(".conversation").getByText("answer 1").waitFor();
    await page.keyboard.press("j");
    await page.locator(".conversation").getByText("answer 4").waitFor();
    await page.keyboard.press("k");
    await page.locator(".conversation").getByText("answer 1").waitFor();
    await page.getByLabel("As a table").check();
    await page.getByRole("columnheader", { name: "likeliest tokens" }).waitFor();
    await page.getByLabel("Search").fill("colour answer");
    await page.getByLabel("Search").blur();
    await list.getByText("1 of 3 samples").waitFor({ state: "detached" });
    await list.getByText("1 of 6 samples").waitFor();
    await expect.poll(answers).toEqual(["answer 4"]);
    // What is searched for stays from step to step.
    await page.getByRole("button", { name: "Later step" }).click();
    await expect.poll(() => page.url()).toContain("step=5");
    await list.getByText("1 of 6 samples").waitFor();
    await page.close();
  });

  it("answer the same prompt in all steps, side by side", async () => {
    const page = await pages.open(dashboard.address);
    await go(page, `#/samples?run=${await idOf(page, "geography")}&step=0`);
    await page.getByRole("button", { name: "This prompt in all steps" }).click();
    await page.getByLabel("Compare with").selectOption({ label: "colours" });
    const table = page.getByRole("table", { name: "Answers by step and run" });
    await table.getByRole("columnheader", { name: /colours/ }).waitFor();
    await expect.poll(() => table.locator("tbody tr th").allTextContents()).toEqual(["0", "5", "10"]);
    await expect.poll(() => table.locator("tbody tr").nth(1).innerText()).toMatch(/answer 2.*after 5 steps/s);
    await table.getByText("2 more, mean reward 0").first().waitFor();
    // The prompt and the runs are part of the address.
    await page.reload();
    await table.getByText("after 10 steps").waitFor();
    await table.locator("tbody tr").nth(2).locator("td").nth(1).getByRole("button").first().click();
    await page.locator(".conversation").getByText("after 10 steps").waitFor();
    await page.close();
  });

  it.each(
    someOf(
      [
        ["dark", 390],
        ["light", 1440],
        ["light", 390],
        ["dark", 1440],
      ] as const,
      2,
    ),
  )("can be read by everybody: %s, %d pixels wide", async (colorScheme, width) => {
    const viewport = { width, height: 900 };
    const page = await pages.open(dashboard.address, { colorScheme, viewport, bypassCSP: true });
    const [warned, episodes] = [await idOf(page, best), await idOf(page, "geography")];
    const views = [
      ["#/runs?show=scatter&columns=learning_rate,seed", "Scatter plot"],
      ["#/runs?show=parallel&group=", "Parallel coordinates"],
      [`#/curves?run=${warned}&run=${await idOf(page, other)}`, "Warnings"],
      [`#/samples?run=${episodes}&sort=longest`, "Samples"],
    ] as const;
    for (const [view, name] of views) {
      await go(page, view);
      await page.getByLabel(name, { exact: true }).first().waitFor();
      if (name === "Samples") {
        await page.getByRole("button", { name: "This prompt in all steps" }).click();
        await page.getByRole("table").waitFor();
      }
      expect({ view, found: await violationsOf(page) }).toEqual({ view, found: [] });
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      expect({ view, overflow }).toEqual({ view, overflow: 0 });
    }
    await page.close();
  });
});
