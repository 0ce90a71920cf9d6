// Compiles src/ to dist/, copies the files that tsc leaves behind, and bundles the SDK's own entry: as a hundred
// small files it takes four times as long to import.
import { execFileSync } from "node:child_process";
import { cpSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { rolldown } from "rolldown";

const root = fileURLToPath(new URL("..", import.meta.url));
const dist = join(root, "dist");
rmSync(dist, { recursive: true, force: true });
execFileSync(
  process.execPath,
  [join(root, "node_modules/typescript/bin/tsc"), "-p", join(root, "tsconfig.build.json")],
  { stdio: "inherit" },
);
for (const file of readdirSync(join(root, "src"), { recursive: true })) {
  if (file.endsWith(".wasm")) cpSync(join(root, "src", file), join(dist, file));
}
for (const [target, suffix] of [
  ["node", ".node.js"],
  ["web", ".js"],
]) {
  const bundle = await rolldown({
    input: join(dist, "index.js"),
    platform: target === "node" ? "node" : "browser",
    external: [/^node:/, "undici", "@opentelemetry/api"],
    resolve: {
      alias: {
        "#platform": join(dist, `transport/platform${suffix}`),
        "#heartbeat": join(dist, `session/heartbeat-loop${suffix}`),
      },
    },
  });
  await bundle.write({ dir: join(dist, "bundle", target), chunkFileNames: "[name].js" });
  await bundle.close();
}
