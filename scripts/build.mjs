// Compiles src/ to dist/ and copies the files that tsc leaves behind.
import { execFileSync } from "node:child_process";
import { cpSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
rmSync(join(root, "dist"), { recursive: true, force: true });
execFileSync(
  process.execPath,
  [join(root, "node_modules/typescript/bin/tsc"), "-p", join(root, "tsconfig.build.json")],
  {
    stdio: "inherit",
  },
);
for (const file of readdirSync(join(root, "src"), { recursive: true })) {
  if (file.endsWith(".wasm")) cpSync(join(root, "src", file), join(root, "dist", file));
}
