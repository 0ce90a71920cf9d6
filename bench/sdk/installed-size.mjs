// What an installation weighs, dependencies included.
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));

function bytesBelow(path) {
  const stat = statSync(path);
  if (!stat.isDirectory()) return stat.size;
  return readdirSync(path).reduce((sum, name) => sum + bytesBelow(join(path, name)), 0);
}

/** The files of the package, and each of its dependencies once. */
function ofTinkerts() {
  const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const seen = new Set();
  const visit = (name) => {
    if (seen.has(name)) return;
    seen.add(name);
    const dependency = JSON.parse(readFileSync(join(root, "node_modules", name, "package.json"), "utf8"));
    for (const next of Object.keys(dependency.dependencies ?? {})) visit(next);
  };
  for (const name of Object.keys(manifest.dependencies)) visit(name);
  const packing = ["pack", "--dry-run", "--json", "--ignore-scripts"];
  const [{ unpackedSize }] = JSON.parse(execFileSync("npm", packing, { cwd: root, encoding: "utf8" }));
  return [...seen].reduce((sum, name) => sum + bytesBelow(join(root, "node_modules", name)), unpackedSize);
}

const CLOSURE = `
import importlib.metadata as metadata, os, re
seen, total = set(), 0
def visit(name):
    global total
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in seen: return
    try: distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError: return
    seen.add(key)
    for file in distribution.files or []:
        path = distribution.locate_file(file)
        if os.path.isfile(path): total += os.path.getsize(path)
    for requirement in distribution.requires or []:
        if "extra ==" not in requirement: visit(re.match(r"[A-Za-z0-9._-]+", requirement).group())
visit("tinker")
print(total)
`;

function ofPython(python) {
  return Number(execFileSync(python, ["-c", CLOSURE], { encoding: "utf8" }));
}

export const installedBytes = { ofTinkerts, ofPython };
