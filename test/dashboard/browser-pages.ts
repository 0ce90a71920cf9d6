import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { launchChromium } from "../support/chromium.js";

/** A browser whose pages note every error and everything that their policy refused. */
export interface BrowserPages extends AsyncDisposable {
  readonly browser: Browser;
  /** What the pages complained of since it was last asked for. */
  complaints(): readonly string[];
  /** Opens a dashboard's address and waits until the page is live. */
  open(address: string, options?: BrowserContextOptions): Promise<Page>;
}

export async function browserPages(): Promise<BrowserPages> {
  const browser = await launchChromium();
  const complaints: string[] = [];
  return {
    browser,
    complaints: () => complaints.splice(0),
    open: async (address, options = {}) => {
      const page = await browser.newPage({ viewport: { width: 1280, height: 900 }, ...options });
      page.on("pageerror", (error) => complaints.push(String(error.stack)));
      page.on("console", (message) => {
        if (["error", "warning"].includes(message.type())) complaints.push(message.text());
      });
      await page.goto(address);
      await page.locator(".connection.live").waitFor();
      return page;
    },
    [Symbol.asyncDispose]: () => browser.close(),
  };
}

/** Goes to a place of the page. */
export const go = (page: Page, hash: string) => page.evaluate((to) => location.assign(to), hash);

export const runLink = (page: Page, name: string) => page.getByRole("link", { name, exact: true });

/** The id of a run, which addresses have. */
export async function idOf(page: Page, name: string): Promise<string> {
  await go(page, "#/runs");
  return /run=([^&]+)/.exec((await runLink(page, name).getAttribute("href")) ?? "")![1]!;
}

const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** What axe finds wrong with a page, which must have been opened with `bypassCSP`: axe is not of the page. */
export async function violationsOf(page: Page): Promise<readonly string[]> {
  await page.evaluate(axeSource);
  return page.evaluate(async () => {
    const { axe } = window as unknown as {
      axe: { run(): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }> };
    };
    const { violations } = await axe.run();
    return violations.map(
      ({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 120)).join(" | ")}`,
    );
  });
}
