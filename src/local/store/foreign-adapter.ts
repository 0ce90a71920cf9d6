import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { AdapterDeltas } from "../../checkpoints/adapter-deltas.node.js";
import { type LoraPair, loraScale, moduleOfTensor } from "../../checkpoints/lora.js";
import { isPlaceholder } from "../../checkpoints/plan-merge.js";
import { TinkerError } from "../../errors.js";
import { type AdapterState, LORA_ALPHA, type LoraSettings, type NamedTensor } from "../engine/engine.js";
import { initialA, loraLayout } from "../engine/model/lora.js";
import { parseModelConfig } from "../engine/model/model-config.js";
import type { TensorPlace } from "../engine/model/tensor-layout.js";
import { TRAINABLE_MODULES } from "./adapter-files.js";

/** Seed of the matrices that an adapter from elsewhere does not have. */
const SEED = 0;

/**
 * Reads a PEFT adapter that another program made as one of this engine, which has one rank, one alpha and a fixed set of
 * modules. Lower ranks are filled up and missing modules added, so that they change nothing until they are trained; each
 * module's own scale goes into its B.
 */
export async function readForeignAdapter(folder: string, modelFolder: string): Promise<AdapterState> {
  const adapter = await AdapterDeltas.open(folder);
  try {
    const pairs = [...adapter.pairs].filter(([, pair]) => !isPlaceholder(adapter, pair));
    const rankOf = ([, { a }]: [string, LoraPair]) => adapter.shapeOf(a).at(-2) ?? 0;
    const trains = (modules: readonly string[]) =>
      pairs.some(([path]) => modules.includes(path.split(".").at(-1)!));
    const lora: LoraSettings = {
      rank: Math.max(...pairs.map(rankOf)),
      seed: SEED,
      trainAttn: trains(TRAINABLE_MODULES.attention),
      trainMlp: trains(TRAINABLE_MODULES.mlp),
      trainUnembed: trains(TRAINABLE_MODULES.unembed),
    };
    return { lora, tensors: fill(adapter, new Map(pairs), lora, await placesFor(modelFolder, lora, pairs)) };
  } finally {
    adapter.close();
  }
}

async function placesFor(
  modelFolder: string,
  lora: LoraSettings,
  pairs: readonly [string, LoraPair][],
): Promise<readonly TensorPlace[]> {
  const config = parseModelConfig(
    JSON.parse(await readFile(join(modelFolder, "config.json"), "utf8")),
    modelFolder,
  );
  const hasAny = lora.trainAttn || lora.trainMlp || lora.trainUnembed;
  const places = hasAny ? loraLayout(config, lora).places : [];
  const known = new Set(places.map(({ name }) => moduleOfTensor(name)));
  const foreign = pairs.map(([path]) => path).filter((path) => !known.has(path));
  if (foreign.length === 0) return places;
  const shown = foreign.slice(0, 3).join(", ");
  throw new TinkerError(
    `The model in ${modelFolder} has no place for ${foreign.length} of the ${pairs.length} modules of the adapter: ${shown}${foreign.length > 3 ? ", ..." : ""}. The built-in backend has adapters of ${Object.values(TRAINABLE_MODULES).flat().join(", ")}.`,
  );
}

function fill(
  adapter: AdapterDeltas,
  pairs: ReadonlyMap<string, LoraPair>,
  lora: LoraSettings,
  places: readonly TensorPlace[],
): Record<string, NamedTensor> {
  const tensors: Record<string, NamedTensor> = {};
  for (const [index, place] of places.entries()) {
    const { name, shape } = place;
    const module = moduleOfTensor(name);
    const isA = name.endsWith(".lora_A.weight");
    const data = isA ? initialA(place, index, lora.seed) : new Float32Array(shape[0]! * shape[1]!);
    tensors[name] = { shape, data };
    const pair = pairs.get(module);
    if (pair === undefined) continue;
    const given = adapter.read(isA ? pair.a : pair.b);
    const rank = isA ? given.rows : given.columns;
    const own = adapter.shapeOf(pair.a);
    const expected = isA ? [own[0], shape[1]] : [shape[0], own[0]];
    if (own.length !== 2 || given.rows !== expected[0] || given.columns !== expected[1]) {
      throw new TinkerError(
        `The adapter does not fit the model: its lora_${isA ? "A" : "B"} of ${module} has shape [${adapter.shapeOf(isA ? pair.a : pair.b)}], expected [${expected}].`,
      );
    }
    if (isA) {
      data.set(given.data);
      continue;
    }
    const factor = (loraScale(adapter.settings, module) * lora.rank) / LORA_ALPHA;
    for (let i = 0; i < given.data.length; i++) {
      data[Math.floor(i / rank) * lora.rank + (i % rank)] = given.data[i]! * factor;
    }
  }
  return tensors;
}
