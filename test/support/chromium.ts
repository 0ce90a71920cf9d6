import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { type Browser, chromium } from "playwright-core";

const PATIENCE_MS = 120_000;

const BROWSER_FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

const WEBGPU_FLAGS = [
  "--enable-unsafe-webgpu",
  "--use-webgpu-adapter=swiftshader",
  "--enable-features=Vulkan",
];

/** Where Chromium is on this machine. */
export function findChromium(): string | undefined {
  if (existsSync("/usr/bin/chromium")) return "/usr/bin/chromium";
  for (const name of ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]) {
    try {
      return execFileSync("sh", ["-c", `command -v ${name}`], { encoding: "utf8" }).trim();
    } catch {
      // Not this one.
    }
  }
  return undefined;
}

/** Starts it, without a window. */
export const launchChromium = (): Promise<Browser> => launch(BROWSER_FLAGS);

/** Starts it with WebGPU, which SwiftShader computes: the same on every machine. */
export function launchGpuChromium(): Promise<Browser> {
  const flags = BROWSER_FLAGS.filter((flag) => flag !== "--disable-gpu");
  return launch([...flags, ...WEBGPU_FLAGS]);
}

/** Its pages wait as long as the other tests do (patience.ts). */
async function launch(args: string[]): Promise<Browser> {
  const browser = await chromium.launch({ executablePath: findChromium()!, args, timeout: PATIENCE_MS });
  const newPage = browser.newPage.bind(browser);
  browser.newPage = async (options) => {
    const page = await newPage(options);
    page.setDefaultTimeout(PATIENCE_MS);
    return page;
  };
  return browser;
}
