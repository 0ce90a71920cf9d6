import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { build, type InlineConfig } from "vite";
import { PigLatin } from "../../examples/browser/pig-latin.js";
import { defaultModel } from "../../src/local/default-model.js";
import { folderModel } from "../../src/local/engine/folder-model.node.js";
import { createEngineCore } from "../../src/local/engine/start-engine.node.js";
import { readTokenizer } from "../../src/local/tokenizer.js";
import { requireBuild } from "./newcomer.js";

const CONTENT_TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".css": "text/css",
};

/** The files of examples/browser, built and handed out by a server that knows nothing of them. */
export async function servePigLatinPage(): Promise<{ origin: string } & AsyncDisposable> {
  requireBuild();
  const script = new URL("../../examples/browser/site.mjs", import.meta.url).href;
  const { siteConfig } = (await import(script)) as { siteConfig(outDir: string): InlineConfig };
  const folder = mkdtempSync(join(tmpdir(), "pig-latin-page-"));
  await build(siteConfig(folder));
  const server = createServer(({ url = "/" }, response) => {
    const path = new URL(url, "http://localhost").pathname.replace(/\/$/, "/index.html");
    try {
      const body = readFileSync(join(folder, path));
      const type = CONTENT_TYPES[extname(path)] ?? "application/octet-stream";
      response.writeHead(200, { "content-type": type }).end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** What the page should show: the losses of the same training in this process, on the CPU. */
export async function lossesInNode(steps: number, batchSize: number): Promise<number[]> {
  const engine = await createEngineCore({ models: [defaultModel], device: "cpu", threads: 2 });
  const { encode, decode } = readTokenizer(defaultModel.path)!;
  const model = folderModel(defaultModel);
  const pigLatin = new PigLatin(engine, { ...model, tokenizer: { ...model.tokenizer!, encode, decode } });
  const losses: number[] = [];
  for await (const { lossPerWord } of pigLatin.train({ device: "cpu", steps, batchSize, words: 1 }))
    losses.push(lossPerWord);
  await engine.close();
  return losses;
}

/** A visit, and what the browser had to say about the page. */
export async function visit(
  browser: Browser,
  address: string,
  colorScheme: "light" | "dark" = "light",
): Promise<{ page: Page; complaints: string[] }> {
  const page = await browser.newPage({ colorScheme });
  const complaints: string[] = [];
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(message.text());
  });
  await page.goto(address);
  return { page, complaints };
}

/** Presses Train and waits for the end; what the page then shows. */
export async function trainPage(page: Page, timeout: number) {
  await page.locator("#train:enabled").click({ timeout });
  await page.locator("#status", { hasText: /^(Trained|Stopped|This did not work)/ }).waitFor({ timeout });
  const text = (selector: string) => page.locator(selector).innerText();
  const rows = await page.locator("#answers tr").all();
  const answers = await Promise.all(rows.map((row) => row.locator("td").allInnerTexts()));
  const label = (await page.locator("#chart").getAttribute("aria-label")) ?? "";
  const [, first, last] = /from ([\d.]+) to ([\d.]+)/.exec(label) ?? [];
  return {
    status: await text("#status"),
    device: await text("#device"),
    step: await text("#step"),
    loss: await text("#loss"),
    speed: await text("#speed"),
    losses: { first: Number(first), last: Number(last) },
    answers: answers.map(([before, after]) => ({ before, after })),
  };
}

/** A word that the visitor types. */
export async function askPage(page: Page, word: string): Promise<string> {
  await page.locator("#word").fill(word);
  await page.locator("#ask-button").click();
  await page.locator("#answer:not(:empty)").waitFor();
  return page.locator("#answer").innerText();
}
