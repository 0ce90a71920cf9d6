/** Node's own modules where the runtime has them (Node, Bun, Deno), without an import that a browser would stumble over. */
const runtime = (globalThis as { process?: Partial<typeof globalThis.process> }).process;

const builtins = {
  get fs() {
    return process.getBuiltinModule("fs");
  },
  get path() {
    return process.getBuiltinModule("path");
  },
  get os() {
    return process.getBuiltinModule("os");
  },
  get url() {
    return process.getBuiltinModule("url");
  },
  get module() {
    return process.getBuiltinModule("module");
  },
  get threads() {
    return process.getBuiltinModule("worker_threads");
  },
};

/** Undefined in browsers. */
export const node: typeof builtins | undefined =
  typeof runtime?.getBuiltinModule === "function" ? builtins : undefined;

/** A file of this package, from its root; undefined where the package was taken apart by a bundler. */
export function packageFile(path: string): string | undefined {
  if (node === undefined) return undefined;
  try {
    const manifest = node.module.createRequire(import.meta.url).resolve("tinkerts/package.json");
    const file = node.path.join(node.path.dirname(manifest), path);
    return node.fs.existsSync(file) ? file : undefined;
  } catch {
    return undefined;
  }
}
