import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { findChromium, launchChromium } from "../support/chromium.js";
import { longTest } from "../support/long.js";
import { askPage, lossesInNode, servePigLatinPage, trainPage, visit } from "../support/pig-latin-page.js";

const isMissing = findChromium() === undefined;
if (isMissing) console.warn("the tests of the engine in a page are skipped: no Chromium on this machine");
const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const STEPS = 12;
const BATCH_SIZE = 8;

describe.skipIf(isMissing)("the engine in a page, on WebAssembly", () => {
  let site: Awaited<ReturnType<typeof servePigLatinPage>>;
  let browser: Browser;
  beforeAll(async () => {
    site = await servePigLatinPage();
    browser = await launchChromium();
  });
  afterAll(async () => {
    await browser?.close();
    await site?.[Symbol.asyncDispose]();
  });

  longTest("learns what it learns in Node, and says where it computes", async () => {
    const address = `${site.origin}/?steps=${STEPS}&batchSize=${BATCH_SIZE}&words=8`;
    const { page, complaints } = await visit(browser, address);
    const shown = await trainPage(page, 100_000);
    expect(shown).toMatchObject({
      status: "Trained.",
      device: "Computes on the CPU (WebAssembly) (the browser shows no GPU)",
      step: `${STEPS} of ${STEPS}`,
      loss: (await lossesInNode(STEPS, BATCH_SIZE)).at(-1)!.toFixed(3),
    });
    expect(shown.losses.last).toBeLessThan(shown.losses.first / 3);
    expect(Number(shown.speed.replace(",", ""))).toBeGreaterThan(0);
    expect(shown.answers).toHaveLength(8);
    for (const { before, after } of shown.answers) expect(after).not.toBe(before);
    expect(await askPage(page, "smile")).toMatch(/^[✓✗] \S+/);
    expect(complaints).toEqual([]);
  });

  it("stops on request, keeps its training, and starts again", async () => {
    const { page, complaints } = await visit(browser, `${site.origin}/?steps=10000&batchSize=2&words=1`);
    const firstLosses: unknown[] = [];
    for (let run = 0; run < 2; run += 1) {
      await page.locator("#train:enabled").click();
      await page.locator("#step", { hasText: /^\d+ of 10000$/ }).waitFor();
      await page.locator("#stop").click();
      await page.locator("#status", { hasText: "Stopped. It keeps what it has learned so far." }).waitFor();
      expect(await askPage(page, "smile")).toMatch(/^[✓✗] /);
      const label = await page.locator("#chart").getAttribute("aria-label");
      firstLosses.push(/from ([\d.]+) to/.exec(label!)?.[1]);
    }
    expect(firstLosses[0]).toBeDefined();
    expect(firstLosses[1]).toBe(firstLosses[0]);
    expect(complaints).toEqual([]);
  });

  it("says what is wrong", async () => {
    const unknown = await visit(browser, `${site.origin}/?device=tpu`);
    await unknown.page.getByText("This did not work: device must be auto, cpu or gpu, got tpu").waitFor();
    const gpu = await visit(browser, `${site.origin}/?device=gpu`);
    await gpu.page.getByText("This did not work: no GPU can be used: the browser shows no").waitFor();
    for (const { page } of [unknown, gpu])
      await expect.poll(() => page.locator("button:enabled").count()).toBe(0);
  });

  it.each(["light", "dark"] as const)("can be read and used by everybody (%s)", async (colorScheme) => {
    const { page } = await visit(browser, `${site.origin}/?steps=1&batchSize=1&words=1`, colorScheme);
    await trainPage(page, 60_000);
    await page.evaluate(axeSource);
    const violations = await page.evaluate(
      "axe.run().then((result) => result.violations.map(({ id }) => id))",
    );
    expect(violations).toEqual([]);
  });
});
