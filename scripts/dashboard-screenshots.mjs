// npm run generate:screenshots: trains a few runs on the built-in backend, opens the dashboard on them in Chromium, and
// writes pictures of every view, light and dark, into docs/images. Another folder can be given, for looking only.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { ServiceClient } from "tinkerts";
import { conversations, trainReinforcement, trainSupervised } from "tinkerts/cookbook";
import { startLocalBackend } from "tinkerts/local";
import { smallPng } from "./small-png.mjs";

const { startDashboard } = await import("../dist/dashboard/index.js");

const pictures = resolve(process.argv[2] ?? fileURLToPath(new URL("../docs/images", import.meta.url)));
const model = "tinkerts/nano";
const home = mkdtempSync(join(tmpdir(), "tinkerts-screenshots-"));
const folder = (name) => join(home, "runs", name);
mkdirSync(folder(""), { recursive: true });
mkdirSync(pictures, { recursive: true });

const backend = await startLocalBackend({ dataDir: join(home, "data") });
const service = new ServiceClient(backend);
const server = {
  address: backend.baseURL,
  rest: async () => service.createRestClient(),
  service: async () => service,
  activity: backend.activity,
};
const dashboard = await startDashboard({ folders: [folder("")], server });
const browser = await chromium.launch({
  executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium",
  args: ["--headless", "--no-sandbox", "--disable-gpu"],
});

const words =
  "stick apple river stone green quick light table music happy train cloud bread smile ocean".split(" ");
const rows = words.flatMap((word) =>
  ["", "s", "er"].map((end) => ({
    messages: [
      { role: "user", content: `Pig Latin for ${word}${end}?` },
      { role: "assistant", content: `${word.slice(1)}${end}-${word[0]}ay` },
    ],
  })),
);
const teach = (name, learningRate, epochs, { rank = 8, signal } = {}) =>
  trainSupervised({
    signal,
    ...{ service, model, learningRate, epochs, data: conversations(rows), folder: folder(name) },
    ...{ batchSize: 6, rank, evaluateEvery: 4, save: { everySteps: 20 }, loggers: [] },
  });
/** Runs with the same data and other settings, laid out as `tinkerts sweep` does. */
async function sweep(name, learningRates, ranks) {
  const runs = learningRates.flatMap((learningRate) => ranks.map((rank) => ({ learningRate, rank })));
  const listed = [];
  for (const [index, settings] of runs.entries()) {
    const { learningRate, rank } = settings;
    const run = `${String(index + 1).padStart(3, "0")}-rate-${learningRate}-rank-${rank}`;
    await teach(`${name}/${run}`, learningRate, 2, { rank });
    listed.push({ folder: run, settings, status: "finished" });
  }
  const sweepFile = { name: "rates", metric: "test/nll", direction: "min", runs: listed };
  writeFileSync(join(folder(name), "sweep.json"), JSON.stringify(sweepFile));
}
const reward = (name, learningRate, steps) =>
  trainReinforcement({
    ...{ service, model, learningRate, steps, folder: folder(name) },
    problems: ["57 + 86", "68 + 75", "79 + 46", "85 + 58"].map((sum) => ({ prompt: `What is ${sum}?` })),
    reward: ({ text }) => (/[02468]$/.test(text.trim()) ? 1 : 0),
    ...{ groupSize: 8, groupsPerBatch: 4, maxTokens: 8, rank: 8, loggers: [] },
  });

/** A conversation of two turns, and then a request that begins again with a summary: a fork. */
async function sumAgent({ problem, baseURL, apiKey }) {
  const ask = async (messages) => {
    const headers = { "content-type": "application/json", authorization: `Bearer ${apiKey}` };
    const body = JSON.stringify({ model: "any", messages, max_tokens: 8 });
    const answer = await fetch(`${baseURL}/chat/completions`, { method: "POST", headers, body });
    return [...messages, (await answer.json()).choices[0].message];
  };
  const user = (content) => ({ role: "user", content });
  const first = await ask([user(`What is ${problem.sum}?`)]);
  await ask([...first, user("And the same again?")]);
  await ask([user(`So far: ${problem.sum} was asked. What is it?`)]);
}
const rewardAgent = (name, learningRate, steps) =>
  trainReinforcement({
    ...{ service, model, learningRate, steps, agent: sumAgent, folder: folder(name) },
    problems: ["57 + 86", "68 + 75", "79 + 46", "85 + 58"].map((sum) => ({ sum })),
    reward: ({ text }) => (/[02468]$/.test(text.trim()) ? 1 : 0),
    ...{ groupSize: 8, groupsPerBatch: 4, maxTokens: 8, rank: 8, loggers: [] },
  });

const SIZE = { width: 1080, height: 680 };
const idOf = async (page, name) => {
  const link = page.getByRole("link", { name, exact: true });
  return new URLSearchParams((await link.getAttribute("href")).split("?")[1]).get("run");
};

/** The browser knows how to read its own pictures. */
async function pixelsOf(png) {
  const page = await browser.newPage();
  const { width, height, text } = await page.evaluate(async (base64) => {
    const blob = await (await fetch(`data:image/png;base64,${base64}`)).blob();
    const image = await createImageBitmap(blob);
    const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
    context.drawImage(image, 0, 0);
    const { data } = context.getImageData(0, 0, image.width, image.height);
    let text = "";
    for (let at = 0; at < data.length; at += 8192)
      text += String.fromCharCode(...data.subarray(at, at + 8192));
    return { width: image.width, height: image.height, text: btoa(text) };
  }, png.toString("base64"));
  await page.close();
  return { width, height, pixels: Buffer.from(text, "base64") };
}

async function take(scheme) {
  const page = await browser.newPage({ colorScheme: scheme, viewport: SIZE });
  page.on("console", (message) => message.type() === "error" && console.error(message.text()));
  const shoot = async (name) => {
    await page.waitForTimeout(700);
    const file = join(pictures, `dashboard-${name}-${scheme}.png`);
    writeFileSync(file, smallPng(await pixelsOf(await page.screenshot())));
  };
  const go = (hash) => page.evaluate((to) => location.assign(to), hash);
  await page.goto(dashboard.address);
  await page.getByRole("table").waitFor();
  await shoot("runs");
  await go("#/runs?search=sweep&show=parallel");
  await page.locator(".plot").waitFor();
  await shoot("sweep");
  await go("#/runs");
  const [fast, slow, even, agent] = await Promise.all(
    ["pig-latin-fast", "pig-latin-slow", "even-numbers", "sum-agent"].map((name) => idOf(page, name)),
  );
  await go(`#/curves?run=${fast}&run=${slow}`);
  await page.locator("canvas").first().waitFor();
  await page.locator(".u-over").nth(1).hover();
  await shoot("curves");
  await page.mouse.move(0, 0);
  await go(`#/samples?run=${even}&step=0`);
  // The group in the middle has different rewards, so that it is trained on.
  await page.locator(".sample-list section").nth(1).getByRole("button").first().click();
  await page.locator(".turn > .tokens").first().waitFor();
  await shoot("samples");
  await go(`#/samples?run=${agent}&step=0`);
  await page.locator(".sample-list section").nth(1).getByRole("button").first().click();
  await page.locator(".turn > .tokens").first().waitFor();
  await page.getByText("fork", { exact: true }).first().scrollIntoViewIfNeeded();
  await shoot("agent");
  await go(`#/curves?run=${agent}`);
  await page.locator("canvas").first().waitFor();
  await shoot("agent-curves");
  await go(`#/samples?run=${fast}&step=0`);
  await page.locator(".turn > .tokens").first().waitFor();
  await shoot("examples");
  await go(`#/samples?run=${fast}&run=${slow}&split=eval_answers`);
  await page.getByRole("button", { name: "This prompt in all steps" }).click();
  await page.getByRole("table").waitFor();
  await shoot("prompt");
  await go(`#/checkpoints?run=${fast}`);
  await page.getByRole("table").waitFor();
  await shoot("checkpoints");
  await page.setViewportSize({ ...SIZE, height: 980 });
  await go("#/playground");
  await page.getByLabel("Message", { exact: true }).fill("Pig Latin for stone?");
  await page.getByRole("button", { name: "Send" }).click();
  await page.getByText("mean logprob").nth(1).waitFor();
  await shoot("playground");
  await page.setViewportSize(SIZE);
  await go("#/server");
  await page.getByRole("heading", { name: "Models" }).waitFor();
  await shoot("server");
  await page.close();
}

/** A run that is shown while it runs, and ends before the backend does. */
const stopping = new AbortController();
let running;

try {
  await sweep("sweep-rates", [5e-4, 2e-3, 5e-3], [4, 16]);
  await reward("even-numbers", 6e-3, 8);
  await rewardAgent("sum-agent", 6e-3, 16);
  await teach("pig-latin-slow", 5e-4, 6);
  await teach("pig-latin-fast", 4e-3, 6);
  running = teach("pig-latin-longer", 2e-3, 80, { signal: stopping.signal }).catch((error) => {
    if (!stopping.signal.aborted) throw error;
  });
  for (const scheme of ["light", "dark"]) await take(scheme);
} finally {
  await browser.close();
  await dashboard.close();
  stopping.abort();
  await running;
  await service.close("interrupted");
  await backend.close();
  rmSync(home, { recursive: true, force: true, maxRetries: 5 });
}
