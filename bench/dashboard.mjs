// A run of 200,000 steps in the dashboard: how long until its curves are drawn, how soon a new line is seen, and what it
// takes in memory. With Chromium on the machine, in a real page; without, up to the answer that the page would get.
import { appendFileSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { performance } from "node:perf_hooks";

const { createDashboard, startDashboard } = await import("../dist/dashboard/index.js");

const STEPS = 200_000;
const BARS = { openMs: 1000, followMs: 2000 };
const home = mkdtempSync(join(tmpdir(), "tinkerts-bench-dashboard-"));
const file = join(home, "long/metrics.jsonl");
const megabytes = (bytes) => Math.round(bytes / 1e6);
const rounded = (milliseconds) => Math.round(milliseconds);

/** A line as a supervised run writes it. */
function line(step) {
  const noise = ((step * 7919) % 1000) / 1000;
  return JSON.stringify({
    ...{ step, time: 1.7e9 + step * 1.37, epoch: Math.floor(step / 1000), progress: step / STEPS },
    ...{ learning_rate: 1e-4 * (1 - step / STEPS), num_sequences: 32, num_tokens: 4096 },
    ...{ num_loss_tokens: 2000 + (step % 99), train_mean_nll: 3 * Math.exp(-step / 5e4) + 0.3 * noise },
    ...{ train_mean_bpb: 1.2 * Math.exp(-step / 5e4) + 0.1 * noise },
    ...{ "time/get_batch": noise / 100, "time/step": noise, "time/total": noise * 1.01 },
  });
}

mkdirSync(join(home, "long"));
const content = `${Array.from({ length: STEPS }, (_, step) => line(step)).join("\n")}\n`;
writeFileSync(file, content);

async function measureServer() {
  globalThis.gc();
  const before = process.memoryUsage();
  const dashboard = createDashboard({ folders: [home] });
  const ask = async (path) => {
    const headers = { authorization: `Bearer ${dashboard.token}` };
    const response = await dashboard.fetch(new Request(`http://127.0.0.1/api/${path}`, { headers }));
    return response.text();
  };
  const startedMs = performance.now();
  const [{ id }] = JSON.parse(await ask("runs")).runs;
  const listedMs = performance.now();
  const cpu = process.cpuUsage();
  const answer = await ask(`runs/${id}/metrics`);
  const readMs = performance.now();
  const { user, system } = process.cpuUsage(cpu);
  await ask(`runs/${id}/metrics?from=1000&to=2000`);
  const zoomedMs = performance.now();
  globalThis.gc();
  const after = process.memoryUsage();
  dashboard.close();
  return {
    listMs: rounded(listedMs - startedMs),
    readMs: rounded(readMs - listedMs),
    readCpuMs: rounded((user + system) / 1000),
    zoomMs: rounded(zoomedMs - readMs),
    answerMegabytes: megabytes(answer.length),
    keptMegabytes: megabytes(after.heapUsed + after.arrayBuffers - before.heapUsed - before.arrayBuffers),
  };
}

/** Runs in the page: from the click on the run to its curves and the count of its values. */
function openRun() {
  return new Promise((resolve) => {
    const startedMs = performance.now();
    const observer = new MutationObserver(() => {
      if (document.querySelector("canvas") === null || !document.body.textContent.includes("200,000")) return;
      observer.disconnect();
      requestAnimationFrame(() => resolve(performance.now() - startedMs));
    });
    observer.observe(document.body, { subtree: true, childList: true, characterData: true });
    document.querySelector("tbody a").click();
  });
}

async function measurePage(executablePath) {
  const { chromium } = await import("playwright-core");
  const dashboard = await startDashboard({ folders: [home] });
  const browser = await chromium.launch({
    executablePath,
    args: ["--headless", "--no-sandbox", "--disable-gpu"],
  });
  try {
    const page = await browser.newPage();
    await page.goto(dashboard.address);
    const link = page.getByRole("link", { name: "long", exact: true });
    await link.waitFor();
    // Within the page: a driver that looks now and then would be measured too.
    const openMs = await page.evaluate(openRun);
    await page.waitForTimeout(1500);
    const writtenMs = performance.now();
    appendFileSync(file, `${line(STEPS)}\n`);
    await page.getByRole("row", { name: /^train_mean_nll.*200,001/ }).waitFor();
    const seenMs = performance.now();
    const pageMegabytes = await page.evaluate(() => Math.round(performance.memory.usedJSHeapSize / 1e6));
    return { openMs: rounded(openMs), followMs: rounded(seenMs - writtenMs), pageMegabytes };
  } finally {
    await browser.close();
    await dashboard.close();
  }
}

try {
  const chromium = ["/usr/bin/chromium", "/usr/bin/google-chrome"].find((path) => existsSync(path));
  const server = await measureServer();
  const page = chromium === undefined ? { openMs: server.readMs } : await measurePage(chromium);
  const bars = Object.fromEntries(
    Object.entries(BARS)
      .filter(([name]) => page[name] !== undefined)
      .map(([name, most]) => [`${name} at most ${most}`, page[name] <= most]),
  );
  const fileMegabytes = megabytes(content.length);
  const pass = Object.values(bars).every(Boolean);
  console.log(
    JSON.stringify({ bench: "dashboard", lines: STEPS, fileMegabytes, ...server, ...page, bars, pass }),
  );
} finally {
  rmSync(home, { recursive: true, force: true });
}
