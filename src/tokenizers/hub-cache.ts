import { platform } from "../transport/index.js";
import { TOKENIZER_FILES, type TokenizerFiles } from "./files.js";
import { readFolder } from "./folder.js";
import { node } from "./node-builtins.js";
import type { TokenizerReference } from "./resolve-id.js";

/** The cache that all Hugging Face libraries share; undefined where there is no file system. */
export function hubCacheFolder(): string | undefined {
  if (node === undefined) return undefined;
  const { join } = node.path;
  const direct = platform.env("HF_HUB_CACHE");
  if (direct) return direct;
  const home = platform.env("HF_HOME");
  if (home) return join(home, "hub");
  const caches = platform.env("XDG_CACHE_HOME") || join(node.os.homedir(), ".cache");
  return join(caches, "huggingface", "hub");
}

/** The folder of one repository in the cache. */
export function repositoryFolder(cacheFolder: string, { id }: TokenizerReference): string {
  return node!.path.join(cacheFolder, `models--${id.replace("/", "--")}`);
}

/** The files of a tokenizer in the cache. */
export async function readCache(
  cacheFolder: string,
  reference: TokenizerReference,
): Promise<{ folder: string; files: TokenizerFiles }> {
  const { fs, path } = node!;
  const repository = repositoryFolder(cacheFolder, reference);
  const commit = await fs.promises
    .readFile(path.join(repository, "refs", reference.revision), "utf8")
    .then((text) => text.trim())
    .catch(() => reference.revision);
  const folder = path.join(repository, "snapshots", commit);
  return { folder, files: await readFolder(folder) };
}

/** Stores files from the hub; readers see only whole files, and the branch's name last. */
export async function writeCache(
  cacheFolder: string,
  reference: TokenizerReference,
  commit: string,
  files: TokenizerFiles,
): Promise<void> {
  const { path } = node!;
  const repository = repositoryFolder(cacheFolder, reference);
  for (const name of TOKENIZER_FILES) {
    const text = files[name];
    if (text !== undefined) await writeWhole(path.join(repository, "snapshots", commit, name), text);
  }
  if (reference.revision !== commit) {
    await writeWhole(path.join(repository, "refs", reference.revision), commit);
  }
}

async function writeWhole(file: string, text: string): Promise<void> {
  const { fs, path } = node!;
  await fs.promises.mkdir(path.dirname(file), { recursive: true });
  const temporary = `${file}.${crypto.randomUUID()}.incomplete`;
  try {
    await fs.promises.writeFile(temporary, text);
    await fs.promises.rename(temporary, file);
  } catch (error) {
    await fs.promises.rm(temporary, { force: true });
    throw error;
  }
}
