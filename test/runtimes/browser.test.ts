import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { build, type Rolldown } from "vite";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startLocalBackend } from "../../src/local/index.js";
import { loadTokenizer } from "../../src/tokenizers/index.js";
import { findChromium, launchChromium } from "../support/chromium.js";
import { newcomerFolder } from "../support/newcomer.js";
import { SAMPLED_LOGPROBS, SAMPLED_TOKENS, samplingServer } from "./sampling-server.js";

/** What a page's script would be: everything it needs comes out of `tinkerts`. */
const PAGE_SCRIPT = `
import { APIError, ServiceClient } from "tinkerts";

export async function sampleOnce(baseURL) {
  const service = new ServiceClient({ baseURL, apiKey: "tml-page" });
  const sampler = await service.createSamplingClient({ baseModel: "test/tiny" });
  const { sequences } = await sampler.sample({ prompt: [1, 2, 3], samplingParams: { maxTokens: 8 } });
  const missing = await service.get("/api/v1/nothing-here").catch((error) => error);
  await service.close();
  const [{ tokens, logprobs }] = sequences;
  return {
    tokens: [...tokens],
    logprobs: [...logprobs],
    missing: missing instanceof APIError ? missing.status : String(missing),
  };
}
`;

/** For a model that no hub has. */
const TOKENIZER_SCRIPT = `
export async function encodeWith(baseURL, text) {
  const service = new ServiceClient({ baseURL, apiKey: "tml-page" });
  const tokenizer = await service.getTokenizer("tinkerts/nano", { endpoint: "http://127.0.0.1:9" });
  await service.close();
  return tokenizer.encode(text);
}
`;

const PAGE = `<!doctype html><title>tinkerts</title><script type="module">
import * as entry from "/bundle.js";
window.tinkerts = entry;
</script>`;

/** The chunks of the bundle, the entry first; parts that load when used are chunks of their own. */
async function bundleForBrowser(folder: string): Promise<Rolldown.OutputChunk[]> {
  writeFileSync(join(folder, "page.js"), PAGE_SCRIPT + TOKENIZER_SCRIPT);
  const result = await build({
    root: folder,
    configFile: false,
    logLevel: "error",
    resolve: { conditions: ["browser"] },
    build: {
      write: false,
      minify: true,
      lib: { entry: join(folder, "page.js"), formats: ["es"], fileName: () => "bundle.js" },
    },
  });
  const [bundle] = (Array.isArray(result) ? result : [result]) as Rolldown.RolldownOutput[];
  return bundle!.output.filter((output) => output.type === "chunk");
}

async function serveSite(
  chunks: readonly Rolldown.OutputChunk[],
): Promise<{ origin: string } & AsyncDisposable> {
  const files = new Map(chunks.map((chunk) => [`/${chunk.fileName}`, chunk.code]));
  const server = createServer((request, response) => {
    const script = files.get(request.url ?? "");
    const known = script !== undefined || request.url === "/";
    response.writeHead(known ? 200 : 404, {
      "content-type": script === undefined ? "text/html" : "text/javascript",
    });
    response.end(script ?? (known ? PAGE : ""));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

describe("a browser bundle", () => {
  const folder = newcomerFolder();
  let chunks: Rolldown.OutputChunk[];

  beforeAll(async () => {
    chunks = await bundleForBrowser(folder.path);
  });
  afterAll(() => folder.remove());

  it("holds nothing of Node, and imports nothing from outside", () => {
    const own = chunks.map((chunk) => chunk.fileName);
    const imported = chunks.flatMap((chunk) => [...chunk.imports, ...chunk.dynamicImports]);
    expect(imported.filter((name) => !own.includes(name))).toEqual([]);
    const modules = chunks.flatMap((chunk) => Object.keys(chunk.modules));
    expect(modules.some((id) => id.includes("/node_modules/tinkerts/dist/"))).toBe(true);
    expect(modules.filter((id) => /\bnode\/|\.node\.js|undici|__vite-browser-external/.test(id))).toEqual([]);
    for (const { code } of chunks) expect(code).not.toMatch(/["'`]node:|["'`]undici["'`]|\brequire\(/);
  });

  const skipReason = findChromium() === undefined ? "no Chromium on this machine" : undefined;
  if (skipReason !== undefined) console.warn(`the test in a real browser is skipped: ${skipReason}`);

  it.skipIf(skipReason !== undefined)(
    `samples in Chromium from a server of another origin${skipReason ? ` (${skipReason})` : ""}`,
    async () => {
      await using tinker = await samplingServer();
      await using site = await serveSite(chunks);
      await using browser = await launchChromium();
      const page = await browser.newPage();
      const pageErrors: string[] = [];
      page.on("pageerror", (error) => pageErrors.push(String(error)));
      await page.goto(site.origin);
      await page.waitForFunction("window.tinkerts !== undefined");
      const sampled = await page.evaluate(`window.tinkerts.sampleOnce(${JSON.stringify(tinker.url)})`);
      expect(sampled).toEqual({ tokens: SAMPLED_TOKENS, logprobs: SAMPLED_LOGPROBS, missing: 404 });
      expect(pageErrors).toEqual([]);

      const [sample] = tinker.requestsTo("POST /api/v1/asample");
      expect(sample?.headers.origin).toBe(site.origin);
      expect(sample?.headers["x-api-key"]).toBe("tml-page");
      expect(sample?.headers["x-stainless-runtime"]).toBe("browser");
      expect(tinker.requestsTo("POST /api/v1/sessions/*/finish")).toHaveLength(1);
    },
  );

  it.skipIf(skipReason !== undefined)(
    `has the tokenizer of tinkerts/nano from the server that runs it${skipReason ? ` (${skipReason})` : ""}`,
    async () => {
      await using backend = await startLocalBackend({ threads: 1 });
      await using site = await serveSite(chunks);
      await using browser = await launchChromium();
      const page = await browser.newPage();
      await page.goto(site.origin);
      await page.waitForFunction("window.tinkerts !== undefined");
      const text = "naïve 😀 <|im_end|>";
      const tokens = await page.evaluate(
        `window.tinkerts.encodeWith(${JSON.stringify(backend.baseURL)}, ${JSON.stringify(text)})`,
      );
      expect(tokens).toEqual((await loadTokenizer("tinkerts/nano")).encode(text));
    },
  );
});
