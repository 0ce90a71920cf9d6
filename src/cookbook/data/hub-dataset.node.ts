import { join } from "node:path";
import { hubOf } from "../../checkpoints/hub-model.node.js";
import { type HubFile, HubSnapshot } from "../../checkpoints/hub-snapshot.node.js";
import { TinkerError } from "../../errors.js";
import { HubNotFoundError } from "../../tokenizers/hub.js";

/** Where the Hub itself keeps each data set as Parquet: CONFIG/SPLIT/0000.parquet. */
const CONVERTED = "refs/convert/parquet";
const MAX_BYTES = 64 * 2 ** 30;

/** A data set of the Hub as a user names it. */
interface HubDataset {
  readonly name: string;
  readonly revision: string | undefined;
  readonly config: string | undefined;
  readonly split: string;
}

/** A file with rows, and what it belongs to. */
interface DataFile {
  readonly file: HubFile;
  readonly config: string;
  readonly split: string;
}

/**
 * The files of a data set, `OWNER/NAME[@REVISION][/CONFIG][:SPLIT]`, in the cache that all Hugging Face libraries share.
 * They are downloaded if they are not there; the network is asked for nothing else.
 */
export async function hubFiles(text: string): Promise<readonly string[]> {
  const dataset = parseName(text);
  const { name, revision } = dataset;
  const revisions = revision === undefined ? [CONVERTED, "main"] : [revision];
  const snapshots = revisions.map(
    (each) => new HubSnapshot({ kind: "data set", name, revision: each }, hubOf({})),
  );
  for (const snapshot of snapshots) {
    const files = await cachedFiles(snapshot, dataset);
    if (files !== undefined) return files;
  }
  if (process.env["HF_HUB_OFFLINE"])
    throw new TinkerError(
      `hf:${text} is not in the Hugging Face cache, and HF_HUB_OFFLINE forbids to download it.`,
    );
  for (const [index, snapshot] of snapshots.entries()) {
    const files = await download(snapshot, dataset, index < snapshots.length - 1);
    if (files !== undefined) return files;
  }
  throw new TinkerError(`hf:${text} has no file with rows (.parquet, .jsonl, .json, .csv or .tsv).`);
}

const NAME = /^([\w-][\w.-]*\/[\w-][\w.-]*)(?:@([^/:@]+))?(?:\/([^/:@]+))?(?::([^/:@]+))?$/;

function parseName(text: string): HubDataset {
  const [, name, encoded, config, split = "train"] = NAME.exec(text) ?? [];
  // A slash of a revision is written as the Hugging Face libraries do: refs%2Fpr%2F1.
  const revision = encoded?.replaceAll(/%2f/gi, "/");
  if (name === undefined || revision?.includes("..") || revision?.startsWith("/"))
    throw new TinkerError(
      `hf:${text} is not the name of a data set: expected hf:OWNER/NAME, and behind it @REVISION, /CONFIG and :SPLIT where needed.`,
    );
  return { name, revision, config, split };
}

/** The data set's files if all of them are in the cache. */
async function cachedFiles(
  snapshot: HubSnapshot,
  dataset: HubDataset,
): Promise<readonly string[] | undefined> {
  const commit = await snapshot.cachedCommit();
  const all = commit === undefined ? undefined : await snapshot.cachedFiles(commit);
  if (commit === undefined || all === undefined || dataFiles(all).length === 0) return undefined;
  let chosen: readonly HubFile[];
  try {
    chosen = choose(dataFiles(all), dataset);
  } catch {
    // The hub may know more by now; if not, it is the same error.
    return undefined;
  }
  return (await snapshot.has(commit, chosen)) ? pathsOf(snapshot, commit, chosen) : undefined;
}

/** Downloads the data set's files; undefined if this revision has none. */
async function download(
  snapshot: HubSnapshot,
  dataset: HubDataset,
  hasAnother: boolean,
): Promise<readonly string[] | undefined> {
  const listed = await snapshot.list().catch((error: unknown) => {
    if (hasAnother && error instanceof HubNotFoundError) return undefined;
    throw error;
  });
  const found = dataFiles(listed?.files ?? []);
  if (listed === undefined || found.length === 0) return undefined;
  const chosen = choose(found, dataset);
  const bytes = chosen.reduce((sum, { size = 0 }) => sum + size, 0);
  if (bytes > MAX_BYTES)
    throw new TinkerError(
      `${dataset.name} has ${Math.round(bytes / 2 ** 30)} GiB in its split ${dataset.split}, more than ${MAX_BYTES / 2 ** 30} GiB: download a part of it, and give those files.`,
    );
  await snapshot.download(listed.commit, chosen, { all: listed.files });
  return pathsOf(snapshot, listed.commit, chosen);
}

function pathsOf(snapshot: HubSnapshot, commit: string, files: readonly HubFile[]): readonly string[] {
  return files.map(({ path }) => join(snapshot.folderOf(commit), path));
}

/** The endings of files with rows; of a data set that has several of them, the first counts. */
const ENDINGS = [
  /\.parquet$/i,
  /\.(?:jsonl|ndjson)(?:\.gz)?$/i,
  /\.json(?:\.gz)?$/i,
  /\.(?:csv|tsv)(?:\.gz)?$/i,
];
const SPLITS: readonly (readonly [name: string, words: RegExp])[] = [
  ["validation", /(?:^|[/_.-])(?:validation|valid|val|dev)(?=[/_. -])/i],
  ["test", /(?:^|[/_.-])(?:test|testing|eval|evaluation)(?=[/_. -])/i],
];

function dataFiles(all: readonly HubFile[]): readonly DataFile[] {
  const isAbout = ({ path }: HubFile) => /(?:^|\/)(?:dataset_infos?|.*config|state)\.json$/i.test(path);
  const files = all.filter((file) => !isAbout(file));
  const ending = ENDINGS.find((each) => files.some(({ path }) => each.test(path)));
  return (
    files
      .filter(({ path }) => ending?.test(path))
      .sort((one, other) => one.path.localeCompare(other.path, "en", { numeric: true }))
      .map(placed)
      // The Hub converts only the first gigabytes of the largest data sets.
      .filter(({ split }) => !split.startsWith("partial-"))
  );
}

function placed(file: HubFile): DataFile {
  const [, config, split] = /^([^/]+)\/([^/]+)\/\d+\.parquet$/.exec(file.path) ?? [];
  if (config !== undefined && split !== undefined) return { file, config, split };
  const named = SPLITS.find(([, words]) => words.test(file.path))?.[0] ?? "train";
  const [folder = "", ...rest] = file.path.split("/");
  const isConfig =
    rest.length > 0 &&
    folder !== "data" &&
    !/^(?:train|training|validation|valid|val|dev|test|testing|eval)$/i.test(folder);
  return { file, config: isConfig ? folder : "default", split: named };
}

function choose(files: readonly DataFile[], { name, config, split }: HubDataset): readonly HubFile[] {
  const configs = [...new Set(files.map((each) => each.config))];
  const chosen =
    config ?? (configs.includes("default") ? "default" : configs.length === 1 ? configs[0] : undefined);
  if (chosen === undefined)
    throw new TinkerError(
      `${name} has the configs ${listed(configs)}: say which, as hf:${name}/${configs[0]}.`,
    );
  if (!configs.includes(chosen))
    throw new TinkerError(`${name} has no config ${chosen}, only ${listed(configs)}.`);
  const own = files.filter((each) => each.config === chosen);
  const found = own.filter((each) => each.split === split).map(({ file }) => file);
  if (found.length > 0) return found;
  const splits = [...new Set(own.map((each) => each.split))];
  const place = config === undefined ? name : `${name}/${config}`;
  throw new TinkerError(
    `${name} has no split ${split}, only ${listed(splits)}: say which, as hf:${place}:${splits[0]}.`,
  );
}

const listed = (names: readonly string[]) =>
  names.length > 20 ? `${names.slice(0, 20).join(", ")}, …` : names.join(", ");
