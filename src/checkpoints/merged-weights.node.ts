import { TinkerError } from "../errors.js";
import { AdapterDeltas } from "./adapter-deltas.node.js";
import { BaseFiles } from "./base-files.node.js";
import { type FamilyNames, familyNames } from "./family-names.js";
import { type MergedTensor, packedTensor, plainTensor, unpackedTensor } from "./merged-tensors.node.js";
import { type PackedWeight, packedWeights, plainConfig } from "./packed/packed-weights.js";
import { planMerge, type WeightUpdate } from "./plan-merge.js";

export type { MergedTensor };

/** Options of `MergedWeights.open`. */
export interface MergedWeightsOptions {
  /** Whether weights in packed formats (FP8, INT4, MXFP4) come as BF16 under their plain names. */
  readonly dequantize?: boolean | undefined;
}

/** The tensors of a base model with an adapter's changes in them, read from disk on demand. */
export class MergedWeights {
  /** The contents of config.json that belong to these tensors. */
  readonly config: Record<string, unknown>;
  /** In the order of the base model's files; a head that is no longer tied stands behind its embedding. */
  readonly tensors: readonly MergedTensor[];
  /** Updates of the adapter, by the weight that they change. */
  readonly updates: ReadonlyMap<string, readonly WeightUpdate[]>;
  readonly base: BaseFiles;
  /** How the files name the model's weights. */
  readonly names: FamilyNames;
  /** The adapter; undefined of a base model alone. */
  readonly adapter: AdapterDeltas | undefined;

  private constructor(
    base: BaseFiles,
    adapter: AdapterDeltas | undefined,
    plan: Pick<MergedWeights, "tensors" | "updates" | "config" | "names">,
  ) {
    this.base = base;
    this.adapter = adapter;
    this.tensors = plan.tensors;
    this.updates = plan.updates;
    this.config = plan.config;
    this.names = plan.names;
  }

  /** Opens a model folder, and an adapter that fits it; throws a `TinkerError` before anything is computed. */
  static async open(
    baseFolder: string,
    adapterFolder?: string,
    options: MergedWeightsOptions = {},
  ): Promise<MergedWeights> {
    const adapter = adapterFolder === undefined ? undefined : await AdapterDeltas.open(adapterFolder);
    let base: BaseFiles | undefined;
    try {
      base = await BaseFiles.open(baseFolder);
      return new MergedWeights(base, adapter, planTensors(base, adapter, options.dequantize === true));
    } catch (error) {
      adapter?.close();
      base?.close();
      throw error;
    }
  }

  close(): void {
    this.base.close();
    this.adapter?.close();
  }
}

function planTensors(
  base: BaseFiles,
  adapter: AdapterDeltas | undefined,
  dequantize: boolean,
): Pick<MergedWeights, "tensors" | "updates" | "config" | "names"> {
  const packed = packedWeights(base.config, base.tensors, base.folder);
  const { names, shapes } = plainWeights(base, packed);
  const head = names.moduleOf("lm_head");
  const source =
    adapter && changesHead(adapter, names.moduleOf, head) ? tiedEmbedding(base, head) : undefined;
  const headWeight = `${head}.weight`;
  if (source !== undefined) shapes.set(headWeight, base.tensors.get(source)!.shape);
  const hasOutputsFirst = (weight: string) => packed.get(weight)?.isTransposedWhenPlain === true;
  const updates =
    adapter === undefined
      ? new Map<string, WeightUpdate[]>()
      : planMerge(adapter, { names, shapes, hasOutputsFirst });
  const tensors: MergedTensor[] = [];
  const byPart = new Map<string, PackedWeight>();
  for (const weight of packed.values()) {
    for (const part of [...weight.parts, ...weight.extras]) byPart.set(part, weight);
  }
  for (const [name, entry] of base.tensors) {
    if (source !== undefined && name === headWeight) continue;
    const weight = byPart.get(name);
    const changes = weight === undefined ? updates.get(name) : updates.get(weight.name);
    const apply = adapter && changes ? { adapter, updates: changes } : undefined;
    if (weight === undefined) tensors.push(plainTensor(base, name, entry, name, apply));
    else if (!dequantize) tensors.push(packedTensor(base, weight, name, apply));
    else if (name === weight.parts[0]) tensors.push(unpackedTensor(base, weight, apply));
    if (name === source) {
      const apply = { adapter: adapter!, updates: updates.get(headWeight)! };
      tensors.push(plainTensor(base, headWeight, entry, name, apply));
    }
  }
  const plain = dequantize ? plainConfig(base.config) : base.config;
  return { tensors, updates, names, config: source === undefined ? plain : untiedConfig(plain) };
}

/** Names and shapes of all weights, packed ones as if they were plain. */
function plainWeights(base: BaseFiles, packed: ReadonlyMap<string, PackedWeight>) {
  const shapes = new Map<string, readonly number[]>();
  for (const [name, { shape }] of base.tensors) shapes.set(name, shape);
  for (const { name, shape } of packed.values()) shapes.set(name, shape);
  return { names: familyNames(base.config, shapes.keys()), shapes };
}

function changesHead(adapter: AdapterDeltas, moduleOf: (path: string) => string, head: string): boolean {
  return [...adapter.pairs.keys()].some((path) => moduleOf(path) === head);
}

/** The embedding that the model uses as its head, too; undefined if the head is a tensor of its own. */
function tiedEmbedding({ tensors, config }: BaseFiles, head: string): string | undefined {
  if (!isTied(config, tensors.has(`${head}.weight`))) return undefined;
  const found = [...tensors.keys()].filter((name) =>
    /(?:^|\.)(?:embed_tokens|embeddings|wte)\.weight$/.test(name),
  );
  if (found.length === 1) return found[0];
  throw new TinkerError(
    `The adapter changes ${head}, which is tied to the embedding, but the base has ${found.length} embeddings.`,
  );
}

/** In a wrapped model without a head, the outer config may hold the default and the inner one the real value. */
function isTied(config: Record<string, unknown>, hasHead: boolean): boolean {
  const inner = config["text_config"] as Record<string, unknown> | undefined;
  const said = [config["tie_word_embeddings"], inner?.["tie_word_embeddings"]].filter(
    (value) => typeof value === "boolean",
  );
  if (hasHead) return said[0] === true;
  return said.length === 0 || said.includes(true);
}

function untiedConfig(config: Record<string, unknown>): Record<string, unknown> {
  const changed: Record<string, unknown> = { ...config, tie_word_embeddings: false };
  const inner = config["text_config"];
  if (typeof inner === "object" && inner !== null) {
    changed["text_config"] = { ...inner, tie_word_embeddings: false };
  }
  return changed;
}
