import { expect, it } from "vitest";
import { findChromium, launchGpuChromium } from "../support/chromium.js";
import { lossesInNode, servePigLatinPage, trainPage, visit } from "../support/pig-latin-page.js";

const isMissing = findChromium() === undefined;
if (isMissing) console.warn("the test of WebGPU in a page is skipped: no Chromium on this machine");
const [STEPS, BATCH_SIZE] = [3, 1];

it.skipIf(isMissing)(
  "learns in a page on WebGPU what it learns on the CPU",
  { timeout: 240_000 },
  async () => {
    await using site = await servePigLatinPage();
    await using browser = await launchGpuChromium();
    const address = `${site.origin}/?device=gpu&steps=${STEPS}&batchSize=${BATCH_SIZE}&words=1`;
    const { page, complaints } = await visit(browser, address);
    const shown = await trainPage(page, 220_000);
    expect(shown.status).toBe("Trained.");
    expect(shown.device).toMatch(
      /Swiftshader \(WebGPU\) \(it is a program that computes on the CPU, slowly\)$/,
    );
    const expected = await lossesInNode(STEPS, BATCH_SIZE);
    expect(Math.abs(shown.losses.first - expected[0]!)).toBeLessThan(0.01);
    expect(Math.abs(Number(shown.loss) - expected.at(-1)!)).toBeLessThan(0.05);
    expect(expected.at(-1)!).toBeLessThan(expected[0]! - 1);
    expect(shown.answers[0]!.after).not.toBe(shown.answers[0]!.before);
    expect(complaints).toEqual([]);
  },
);
