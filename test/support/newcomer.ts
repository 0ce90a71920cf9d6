import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The package's own folder; what ships must have been built. */
export const packageFolder = fileURLToPath(new URL("../..", import.meta.url));

export function requireBuild(): void {
  if (existsSync(join(packageFolder, "dist/bundle/index.js"))) return;
  throw new Error("dist/ is missing: these tests use the built package. Run `npm run build` first.");
}

/** An empty folder in which the packed package is installed, without asking a registry for its dependencies. */
export function newcomerFolder(): { path: string; remove: () => void } {
  requireBuild();
  const path = realpathSync(mkdtempSync(join(tmpdir(), "tinkerts-newcomer-")));
  const pack = ["pack", "--json", "--ignore-scripts", "--pack-destination", path];
  const [{ filename }] = JSON.parse(
    execFileSync("npm", pack, { cwd: packageFolder, encoding: "utf8", stdio: "pipe" }),
  );
  const installed = join(path, "node_modules/tinkerts");
  mkdirSync(installed, { recursive: true });
  execFileSync("tar", ["-xzf", join(path, filename), "--strip-components=1", "-C", installed]);
  const { dependencies } = JSON.parse(readFileSync(join(installed, "package.json"), "utf8"));
  for (const dependency of Object.keys(dependencies)) {
    const link = join(path, "node_modules", dependency);
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(join(packageFolder, "node_modules", dependency), link, "dir");
  }
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}
