// Packs the package, installs the tarball into an empty folder and uses it there as a newcomer would: imported,
// required, type-checked by the TypeScript of today and by an older one, and without a file it should not carry.
// With --publish it also asks for what only a published package needs.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const MAX_PACKED_MEGABYTES = 10;
/** The last TypeScript that knows `moduleResolution: node10`. */
const OLDER_TYPESCRIPT = "typescript@5.9";
/** There is no public address yet. These three fields of package.json are filled in when there is one. */
const ADDRESSES = ["repository", "homepage", "bugs"];
const root = fileURLToPath(new URL("..", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "tinkerts-package-"));
const run = (command, args, cwd = folder) =>
  execFileSync(command, args, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
const fail = (message) => {
  console.error(`package check failed: ${message}`);
  process.exit(1);
};

const [packed] = JSON.parse(run("npm", ["pack", "--json", "--pack-destination", folder], root));
const megabytes = packed.size / 1e6;
if (megabytes > MAX_PACKED_MEGABYTES)
  fail(`${megabytes.toFixed(1)} MB packed, at most ${MAX_PACKED_MEGABYTES} allowed`);
const paths = packed.files.map((file) => file.path);
const stray = paths.filter((path) =>
  /\.test\.|(^|\/)(test|bench|scripts|src(?!\/cli\/(?:quickstart|recipes)\/))\//.test(path),
);
if (stray.length > 0) fail(`it carries ${stray.join(", ")}`);
const links = readFileSync(join(root, "README.md"), "utf8").matchAll(/\]\((?![a-z]+:|#)([^)#\s]+)/g);
const missing = [
  "dist/bundle/index.js",
  "dist/bundle/sdk.js.map",
  "dist/index.d.ts",
  "docs/api/README.md",
  "dist/page/page.js",
  "THIRD-PARTY-NOTICES.txt",
].filter((path) => !paths.includes(path));
if (missing.length > 0) fail(`it does not carry ${missing.join(", ")}`);
const dead = [...links].map(([, path]) => path).filter((path) => !paths.includes(path));
if (dead.length > 0) fail(`its README links to what it does not carry: ${dead.join(", ")}`);

writeFileSync(join(folder, "package.json"), JSON.stringify({ name: "newcomer", private: true }));
const tarball = join(folder, packed.filename);
run("npm", [
  "install",
  "--no-audit",
  "--no-fund",
  "--prefer-offline",
  tarball,
  OLDER_TYPESCRIPT,
  "@types/node@20",
]);
run(process.execPath, [join(root, "node_modules/publint/src/cli.js"), "--strict", tarball], root);
const installed = JSON.parse(readFileSync(join(folder, "node_modules/tinkerts/package.json"), "utf8"));
const unaddressed = ADDRESSES.filter((field) => installed[field] === undefined);
if (process.argv.includes("--publish") && unaddressed.length > 0)
  fail(`fill in ${unaddressed.join(", ")} in package.json before publishing`);
checkNotices(join(folder, "node_modules/tinkerts"));
const entries = Object.keys(installed.exports).filter((entry) => !/\.(?:json|wasm)$/.test(entry));

// Node loads ES modules through require() from 20.19 on; before that, behind a flag.
const [major, minor] = process.versions.node.split(".").map(Number);
const requireFlags = major === 20 && minor < 19 ? ["--experimental-require-module"] : [];
for (const entry of entries) {
  const name = entry.replace(".", "tinkerts");
  const check = `if (Object.keys(entry).length === 0) throw new Error("${name} exports nothing")`;
  run(process.execPath, ["--input-type=module", "-e", `const entry = await import("${name}"); ${check}`]);
  run(process.execPath, [...requireFlags, "-e", `const entry = require("${name}"); ${check}`]);
}
const lines = entries.map(
  (entry, index) =>
    `import * as entry${index} from "${entry.replace(".", "tinkerts")}"; console.log(entry${index});`,
);
writeFileSync(join(folder, "use.mts"), `${lines.join("\n")}\n`);
const compileWith = (typescript, file, ...flags) =>
  run(process.execPath, [
    join(typescript, "node_modules/typescript/bin/tsc"),
    ...["--noEmit", "--strict", "--target", "es2022", ...flags, file],
  ]);
for (const extension of ["cts", "ts"])
  writeFileSync(join(folder, `use.${extension}`), `${lines.join("\n")}\n`);
for (const typescript of [root, folder]) {
  compileWith(typescript, "use.mts", "--module", "nodenext", "--types", "node");
  compileWith(typescript, "use.cts", "--module", "nodenext", "--types", "node");
}
const node10 = [
  "--module",
  "commonjs",
  "--moduleResolution",
  "node10",
  "--esModuleInterop",
  "--types",
  "node",
];
compileWith(folder, "use.ts", ...node10);
// A page has neither Node's types nor the newest library.
writeFileSync(
  join(folder, "page.ts"),
  'import { ServiceClient } from "tinkerts"; import { createEngine } from "tinkerts/engine"; console.log(ServiceClient, createEngine);\n',
);
const browser = ["--module", "esnext", "--moduleResolution", "bundler", "--lib", "es2022,dom,dom.iterable"];
compileWith(root, "page.ts", ...browser, "--typeRoots", join(folder, "none"));
rmSync(folder, { recursive: true, force: true });
console.log(
  `package ok: ${megabytes.toFixed(2)} MB packed, ${packed.entryCount} files, entries ${entries.join(" ")}`,
);
if (unaddressed.length > 0) console.log(`before publishing, fill in package.json: ${unaddressed.join(", ")}`);

/** Fails unless the notices have a license text for every package that source maps or the two files without one name. */
function checkNotices(at) {
  const notices = readFileSync(join(at, "THIRD-PARTY-NOTICES.txt"), "utf8");
  const sections = new Map(
    notices.split(/^-{80}$/m).map((section) => {
      const [, name, text] = /^\s*(\S+) \S+, [^\n]+\n(.*)$/s.exec(section) ?? [];
      return [name, text];
    }),
  );
  const bundle = join(at, "dist/bundle");
  const maps = readdirSync(bundle).filter((file) => file.endsWith(".js.map"));
  const sources = maps.flatMap((file) => JSON.parse(readFileSync(join(bundle, file), "utf8")).sources);
  const inlined = sources.map((source) => /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(source)?.[1]);
  // The dashboard's page and the reader of TypeScript are minified, without source maps.
  for (const name of new Set([...inlined.filter(Boolean), "preact", "uplot", "sucrase"])) {
    const text = sections.get(name) ?? "";
    if (!/copyright/i.test(text) || text.length < 200)
      fail(`THIRD-PARTY-NOTICES.txt has no license of ${name}`);
  }
}
