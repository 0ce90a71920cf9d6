// A run of 200,000 steps in the dashboard: how long until its curves are drawn, how soon a new line is seen, and what it
// takes in memory; and how long the page takes to follow the pointer over 8 runs of 300 metrics. With Chromium on the machine, in a real page; without, up to the answer that the page would get.
import { appendFileSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { sized } from "./shared/sized.mjs";

const { createDashboard, startDashboard } = await import("../dist/dashboard/index.js");

const STEPS = sized(200_000, 2_000);
const BARS = { openMs: 1000, followMs: 2000, hoverMs: 50 };
const COMPARED = sized(8, 2);
const COMPARED_METRICS = sized(300, 20);
const COMPARED_STEPS = 300;
const HOVERS = 40;
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

const compared = join(home, "compared");
for (let run = 0; run < COMPARED; run += 1) {
  mkdirSync(join(compared, `run-${run}`), { recursive: true });
  const names = Array.from(
    { length: COMPARED_METRICS },
    (_, metric) => `layer_${metric % 30}/norm_${metric}`,
  );
  const lines = Array.from({ length: COMPARED_STEPS }, (_, step) => {
    const values = names.map((name, metric) => [name, Math.sin(step / 20 + metric + run)]);
    return JSON.stringify({ step, time: 1.7e9 + step, ...Object.fromEntries(values) });
  });
  writeFileSync(join(compared, `run-${run}/metrics.jsonl`), `${lines.join("\n")}\n`);
}

async function measureServer() {
  globalThis.gc();
  const before = process.memoryUsage();
  const dashboard = createDashboard({ folders: [join(home, "long")] });
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
function openRun(count) {
  return new Promise((resolve) => {
    const startedMs = performance.now();
    const observer = new MutationObserver(() => {
      if (document.querySelector("canvas") === null || !document.body.textContent.includes(count)) return;
      observer.disconnect();
      requestAnimationFrame(() => resolve(performance.now() - startedMs));
    });
    observer.observe(document.body, { subtree: true, childList: true, characterData: true });
    document.querySelector("tbody a").click();
  });
}

/** Runs in the page: moves the pointer over the first panel, and says how long each move takes until it is drawn. */
async function hover(count) {
  const over = document.querySelector(".u-over");
  const { left, top, width, height } = over.getBoundingClientRect();
  const drawn = () =>
    new Promise((resolve) => {
      requestAnimationFrame(() => {
        const { port1, port2 } = new MessageChannel();
        port1.onmessage = resolve;
        port2.postMessage(0);
      });
    });
  const taken = [];
  for (let move = 0; move < count; move += 1) {
    await drawn();
    const startedMs = performance.now();
    const place = { clientX: left + (width * (move + 1)) / (count + 2), clientY: top + height / 2 };
    over.dispatchEvent(new MouseEvent("mousemove", { ...place, bubbles: true }));
    await drawn();
    taken.push(performance.now() - startedMs);
  }
  return taken;
}

/** The time that nine of ten moves of the pointer stay below, over all panels of the compared runs. */
async function measureHover(browser) {
  const dashboard = await startDashboard({ folders: [compared] });
  try {
    const page = await browser.newPage();
    await page.goto(dashboard.address);
    await page.getByText(`${COMPARED} runs`).waitFor();
    const hrefs = await page.locator(".run-link").evaluateAll((links) => links.map((link) => link.href));
    const ids = hrefs.map((href) => new URLSearchParams(href.split("?")[1]).get("run"));
    await page.evaluate((to) => location.assign(to), `#/curves?${ids.map((id) => `run=${id}`).join("&")}`);
    await page.locator("canvas").first().waitFor();
    await page.locator(".u-over").first().hover();
    await page.locator(".tooltip").waitFor();
    const taken = (await page.evaluate(hover, HOVERS)).toSorted((one, other) => one - other);
    await page.close();
    return taken[Math.floor(0.9 * taken.length)];
  } finally {
    await dashboard.close();
  }
}

async function measurePage(executablePath) {
  const { chromium } = await import("playwright-core");
  const dashboard = await startDashboard({ folders: [join(home, "long")] });
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
    const openMs = await page.evaluate(openRun, STEPS.toLocaleString("en"));
    await page.waitForTimeout(1500);
    const writtenMs = performance.now();
    appendFileSync(file, `${line(STEPS)}\n`);
    await page
      .getByRole("row", { name: new RegExp(`^train_mean_nll.*${(STEPS + 1).toLocaleString("en")}`) })
      .waitFor();
    const seenMs = performance.now();
    const pageMegabytes = await page.evaluate(() => Math.round(performance.memory.usedJSHeapSize / 1e6));
    const hoverMs = await measureHover(browser);
    return {
      openMs: rounded(openMs),
      followMs: rounded(seenMs - writtenMs),
      hoverMs: rounded(hoverMs),
      pageMegabytes,
    };
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
