import { TinkerError } from "../errors.js";
import type { AdapterDeltas } from "./adapter-deltas.node.js";
import { expertModule, type FamilyNames } from "./family-names.js";
import { type LoraPair, loraScale, peftNames } from "./lora.js";
import { isPlaceholder } from "./plan-merge.js";
import { fromFloat32, isFloatDtype, type SafetensorsDtype } from "./safetensors.js";

/** A tensor of an adapter that is to be written. */
export interface ServedTensor {
  readonly name: string;
  readonly dtype: SafetensorsDtype;
  readonly shape: readonly number[];
  read(): Uint8Array;
}

/** An adapter as vLLM and SGLang take it. */
export interface ServedAdapter {
  readonly tensors: readonly ServedTensor[];
  /** Contents of adapter_config.json. */
  readonly config: Readonly<Record<string, unknown>>;
  /** The highest rank of a module. */
  readonly rank: number;
  readonly hasExperts: boolean;
}

/** The last part of the head's path. */
export const HEAD_MODULE = "lm_head";

interface Module {
  readonly path: string;
  readonly pair: LoraPair;
  readonly served: string;
}

/**
 * Renames an adapter's modules as the served model names them and gives every expert matrices of its own. All modules
 * have one scale, which is all that vLLM knows; the difference to a module's own scale goes into its B.
 */
export function servedAdapter(
  adapter: AdapterDeltas,
  names: FamilyNames,
  options: { readonly baseModel: string; readonly dropHead: boolean; outputsOf(module: string): number },
): ServedAdapter {
  const { settings, pairs } = adapter;
  const modules = [...pairs]
    .filter(([, pair]) => !isPlaceholder(adapter, pair))
    .map(([path, pair]): Module => ({ path, pair, served: names.servedModuleOf(path) }))
    .filter(({ served }) => !(options.dropHead && served === HEAD_MODULE));
  if (modules.length === 0)
    throw new TinkerError("The adapter changes only the head, which was to be left out.");
  const scale = settings.alpha / settings.rank;
  const tensors: ServedTensor[] = [];
  const ranks = new Map<string, number>();
  const add = (module: string, a: Omit<ServedTensor, "name">, b: Omit<ServedTensor, "name">) => {
    const to = peftNames(module);
    tensors.push({ name: to.a, ...a }, { name: to.b, ...b });
    ranks.set(module, a.shape[0]!);
  };
  const fused = new Map<string, Module[]>();
  let hasExperts = false;
  for (const module of modules) {
    const { path, pair, served } = module;
    const factor = loraScale(settings, path) / scale;
    const experts = expertModule(served);
    const whole = wholeOf(served, names);
    if (experts !== undefined) {
      hasExperts = true;
      const count = Math.max(adapter.shapeOf(pair.a)[0]!, adapter.shapeOf(pair.b)[0]!);
      for (let expert = 0; expert < count; expert++) {
        const name = `${experts.experts}.${expert}.${names.experts[experts.projection]}`;
        add(name, matrix(adapter, pair.a, 1, expert), matrix(adapter, pair.b, factor, expert));
      }
    } else if (whole !== undefined) fused.set(whole, [...(fused.get(whole) ?? []), module]);
    else add(served, matrix(adapter, pair.a, 1), matrix(adapter, pair.b, factor));
  }
  for (const [whole, parts] of fused) {
    const { a, b } = joined(adapter, orderedParts(whole, parts, names), options.outputsOf(whole), scale);
    add(whole, a, b);
  }
  const rank = Math.max(...ranks.values());
  const config = peftConfig(settings, options.baseModel, ranks);
  return { tensors, config, rank, hasExperts };
}

/** The projection that contains one which the served model does not have alone: Mamba's `in_proj`. */
function wholeOf(served: string, { family, fused }: FamilyNames): string | undefined {
  // vLLM itself joins the parts of Qwen3.5's `in_proj_qkv`.
  if (family !== "nemotron_h") return undefined;
  const at = served.lastIndexOf(".") + 1;
  const found = Object.entries(fused).find(([, parts]) => parts.includes(served.slice(at)));
  return found && served.slice(0, at) + found[0];
}

function orderedParts(whole: string, given: readonly Module[], { fused }: FamilyNames): Module[] {
  const at = whole.lastIndexOf(".") + 1;
  return fused[whole.slice(at)]!.map((part) => {
    const found = given.find(({ served }) => served === whole.slice(0, at) + part);
    if (found !== undefined) return found;
    throw new TinkerError(`The adapter changes a part of ${whole}, but not its ${part}: both are needed.`);
  });
}

function matrix(
  adapter: AdapterDeltas,
  tensor: string,
  factor: number,
  expert?: number,
): Omit<ServedTensor, "name"> {
  const dtype = adapter.dtypeOf(tensor);
  const shape = adapter.shapeOf(tensor).slice(-2);
  if (factor === 1) return { dtype, shape, read: () => adapter.readBytes(tensor, expert) };
  const read = () =>
    fromFloat32(
      adapter.read(tensor, expert).data.map((value) => value * factor),
      floatDtype(dtype),
    );
  return { dtype: floatDtype(dtype), shape, read };
}

/** One pair for several parts: A one above the other, B of each part in its own rows and columns. */
function joined(adapter: AdapterDeltas, parts: readonly Module[], outputs: number, scale: number) {
  const a = parts.map(({ pair }) => adapter.read(pair.a));
  const rank = a.reduce((sum, { rows }) => sum + rows, 0);
  const inputs = a[0]!.columns;
  const dtype = floatDtype(adapter.dtypeOf(parts[0]!.pair.a));
  const readA = () => {
    const out = new Float32Array(rank * inputs);
    let at = 0;
    for (const { data } of a) {
      out.set(data, at);
      at += data.length;
    }
    return fromFloat32(out, dtype);
  };
  const readB = () => {
    const out = new Float32Array(outputs * rank);
    let [row, column] = [0, 0];
    for (const { path, pair } of parts) {
      const { data, rows, columns } = adapter.read(pair.b);
      const factor = loraScale(adapter.settings, path) / scale;
      for (let i = 0; i < data.length; i++) {
        out[(row + Math.floor(i / columns)) * rank + column + (i % columns)] = data[i]! * factor;
      }
      row += rows;
      column += columns;
    }
    return fromFloat32(out, dtype);
  };
  return {
    a: { dtype, shape: [rank, inputs], read: readA },
    b: { dtype, shape: [outputs, rank], read: readB },
  };
}

function floatDtype(dtype: SafetensorsDtype) {
  return isFloatDtype(dtype) ? dtype : "F32";
}

function peftConfig(
  settings: AdapterDeltas["settings"],
  baseModel: string,
  ranks: ReadonlyMap<string, number>,
): Record<string, unknown> {
  const { rank, alpha } = settings;
  // Only where modules of one name differ does the whole path have to be named.
  const leafRanks = new Map<string, Set<number>>();
  for (const [module, own] of ranks) {
    const leaf = leafOf(module);
    leafRanks.set(leaf, (leafRanks.get(leaf) ?? new Set()).add(own));
  }
  const rankPattern: Record<string, number> = {};
  for (const [module, own] of ranks) {
    const key = leafRanks.get(leafOf(module))!.size === 1 ? leafOf(module) : module;
    if (own !== rank) rankPattern[key] = own;
  }
  const alphaPattern = Object.entries(rankPattern).map(([key, own]) => [key, (alpha * own) / rank]);
  return {
    peft_type: "LORA",
    auto_mapping: null,
    base_model_name_or_path: baseModel,
    bias: "none",
    fan_in_fan_out: false,
    inference_mode: true,
    init_lora_weights: true,
    lora_alpha: alpha,
    lora_dropout: 0,
    modules_to_save: null,
    r: rank,
    rank_pattern: rankPattern,
    alpha_pattern: Object.fromEntries(alphaPattern),
    target_modules: [...leafRanks.keys()].sort(),
    task_type: "CAUSAL_LM",
  };
}

function leafOf(module: string): string {
  return module.slice(module.lastIndexOf(".") + 1);
}
