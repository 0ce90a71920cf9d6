// Builds the page and hands out its files, as any web server could: `npm run example -- browser`.
import { fileURLToPath } from "node:url";
import { build, preview } from "vite";

/** The page's files, in `outDir`, with the model in nano/ beside them. */
export function siteConfig(outDir) {
  return {
    root: fileURLToPath(new URL(".", import.meta.url)),
    // A page may lie in any folder of its server.
    base: "./",
    publicDir: fileURLToPath(new URL("../../models", import.meta.url)),
    configFile: false,
    logLevel: "error",
    worker: { format: "es" },
    build: { outDir, emptyOutDir: true, target: "es2022" },
  };
}

/** Until it is interrupted. */
export async function showSite(outDir) {
  await build(siteConfig(outDir));
  const server = await preview({ ...siteConfig(outDir), preview: { host: "127.0.0.1", port: 8080 } });
  console.log(`Open ${server.resolvedUrls.local[0]} (Ctrl-C ends)`);
}
