import { stat } from "node:fs/promises";
import { TinkerError } from "../../errors.js";
import { openFile } from "./files.node.js";
import { filesMatching, isPattern } from "./glob.node.js";
import { checkWeights, interleaveRows } from "./interleave.js";
import { chainRows, type OpenRows, openAll } from "./rows.js";

/** Prefix of data sets of the Hugging Face Hub. */
const HUB = "hf:";

/** A file, a pattern or a data set of the Hub, with its weight. */
interface NamedSource {
  readonly name: string;
  readonly weight: number | undefined;
}

/**
 * The rows of files that a user named: behind one another or, with weights (`chats.jsonl=3`), mixed in these shares. Each
 * row is the UTF-8 text of a JSON object.
 */
export async function openFiles(
  names: readonly string[],
  columns: readonly string[] = [],
): Promise<OpenRows<Uint8Array>> {
  const sources = await Promise.all(names.map(weighted));
  const weights = checkedWeights(sources);
  const parts = await openAll(sources.map(({ name }) => ({ open: () => openNamed(name, columns) })));
  return weights === undefined ? chainRows(parts) : interleaveRows(parts, weights);
}

async function openNamed(name: string, columns: readonly string[]): Promise<OpenRows<Uint8Array>> {
  const files = await filesOf(name);
  return chainRows(await openAll(files.map((path) => ({ open: () => openFile(path, columns) }))));
}

async function filesOf(name: string): Promise<readonly string[]> {
  if (name.startsWith(HUB)) {
    const { hubFiles } = await import("./hub-dataset.node.js");
    return await hubFiles(name.slice(HUB.length));
  }
  return isPattern(name) && !(await exists(name)) ? await filesMatching(name) : [name];
}

/** A file whose name ends like a weight is that file. */
async function weighted(given: string): Promise<NamedSource> {
  const [, name, weight] = /^(.+)=(\d*\.?\d+)$/.exec(given) ?? [];
  if (name === undefined || (await exists(given))) return { name: given, weight: undefined };
  return { name, weight: Number(weight) };
}

function checkedWeights(sources: readonly NamedSource[]): readonly number[] | undefined {
  const bare = sources.find(({ weight }) => weight === undefined);
  const heavy = sources.find(({ weight }) => weight !== undefined);
  if (bare !== undefined && heavy !== undefined)
    throw new TinkerError(
      `${heavy.name} has a weight and ${bare.name} has none: give each one (${bare.name}=1), or leave them out.`,
    );
  const zero = sources.find(({ weight }) => weight === 0);
  if (zero !== undefined)
    throw new TinkerError(`The weight of ${zero.name} must be a number above 0, got 0.`);
  return checkWeights(sources.map(({ weight }) => weight));
}

async function exists(path: string): Promise<boolean> {
  return await stat(path).then(
    () => true,
    () => false,
  );
}
