// Compiles src/ to dist/, copies the files that tsc leaves behind, and bundles the SDK's own entry and the command
// line: as a hundred small files the SDK takes four times as long to import, and `tinkerts --help` a third longer.
import { execFileSync } from "node:child_process";
import { cpSync, readdirSync, rmSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
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

// The command line: what every call needs in one file, commander included, and each command in one of its own. What
// they use of the SDK stays where it is. `main.js` is not part of it: a command that imported from the file that awaits
// the command would wait forever.
const cli = join(dist, "cli");
const everyCall =
  /\/commander\/|\/(?:clients|context|global-options|help|option-values|output\/text|program|dist\/version|commands\/index)\.js$/;
const bundle = await rolldown({
  input: join(cli, "run.js"),
  platform: "node",
  external: (id, importer) => {
    if (id === "commander" || id.includes("/commander/")) return false;
    const path = /^[./]/.test(id) ? resolve(dirname(importer ?? cli), id) : "";
    return !path.startsWith(cli) && path !== join(dist, "version.js") && !importer?.includes("/commander/");
  },
});
await bundle.write({
  dir: cli,
  chunkFileNames: "bundle/[name].js",
  codeSplitting: { groups: [{ name: "frame", test: everyCall }] },
  banner: ({ name }) =>
    name === "frame" ? "/* With commander, (c) 2011 TJ Holowaychuk and contributors, MIT license. */" : "",
});
await bundle.close();
