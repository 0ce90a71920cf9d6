import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { build, type Rolldown } from "vite";
import { expect, it } from "vitest";
import { fixture, goldenCall, readGolden, readPeftAdapter, relativeError } from "../engine/golden.js";
import { findChromium, launchGpuChromium } from "../support/chromium.js";

const PAGE = `<!doctype html><title>tinkerts</title><script type="module">
import { goldenPass } from "/page.js";
const floats = (values) => values && Float32Array.from(values);
const ints = (values) => Int32Array.from(values);
window.run = async (lora, call) => {
  const data = call.data.map((datum) => ({
    ...datum,
    tokens: ints(datum.tokens),
    targetTokens: ints(datum.targetTokens),
    weights: floats(datum.weights),
  }));
  const { gradients, ...result } = await goldenPass(lora, { ...call, data });
  const plain = Object.entries(gradients).map(([name, values]) => [name, [...values]]);
  return { ...result, gradients: Object.fromEntries(plain) };
};
</script>`;

async function pageScript(): Promise<string> {
  const entry = fileURLToPath(new URL("browser-golden-page.ts", import.meta.url));
  const result = await build({
    configFile: false,
    logLevel: "error",
    build: { write: false, lib: { entry, formats: ["es"] } },
  });
  const [bundle] = (Array.isArray(result) ? result : [result]) as Rolldown.RolldownOutput[];
  const chunks = bundle!.output.filter((output) => output.type === "chunk");
  expect(chunks).toHaveLength(1);
  return chunks[0]!.code;
}

const isMissing = findChromium() === undefined;
if (isMissing) console.warn("the golden vectors in a page are skipped: no Chromium on this machine");

it.skipIf(isMissing)(
  "computes loss and gradients of transformers and PEFT in a tab of Chromium",
  async () => {
    const script = await pageScript();
    const server = createServer((request, response) => {
      const path = request.url ?? "/";
      if (path === "/") response.setHeader("content-type", "text/html").end(PAGE);
      else if (path === "/page.js") response.setHeader("content-type", "text/javascript").end(script);
      else if (path.startsWith("/model/"))
        response.end(readFileSync(fixture(path.replace("/model", "qwen3"))));
      else response.writeHead(404).end();
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    await using browser = await launchGpuChromium();
    const page = await browser.newPage();
    await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
    await page.waitForFunction("window.run !== undefined");

    const golden = readGolden("qwen3");
    const call = goldenCall(golden, "cross_entropy");
    const plainCall = JSON.stringify(call, (_, value: unknown) =>
      ArrayBuffer.isView(value) ? [...(value as Float32Array)] : value,
    );
    const lora = JSON.stringify(readPeftAdapter("qwen3").lora);
    const result = (await page.evaluate(`window.run(${lora}, ${plainCall})`)) as {
      metrics: Record<string, number>;
      gradients: Record<string, number[]>;
    };
    server.close();

    const expectedLoss = golden.tensors["loss.cross_entropy"]!.data[0]!;
    expect(Math.abs(result.metrics["loss:sum"]! - expectedLoss)).toBeLessThan(1e-4 * Math.abs(expectedLoss));
    const names = Object.keys(readPeftAdapter("qwen3").tensors);
    expect(Object.keys(result.gradients).sort()).toEqual(names.sort());
    for (const [name, gradient] of Object.entries(result.gradients)) {
      const expected = golden.tensors[`gradient.cross_entropy.${name}`]!.data;
      expect(relativeError(Float32Array.from(gradient), expected), name).toBeLessThan(1e-3);
    }
  },
);
