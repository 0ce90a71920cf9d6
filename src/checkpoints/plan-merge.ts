import { TinkerError } from "../errors.js";
import { expertModule, type FamilyNames, fusedPart } from "./family-names.js";
import { type AdapterSettings, type LoraPair, loraScale } from "./lora.js";

/** Update of a weight by one pair of an adapter's matrices: scale * B A, or its transpose. */
export interface WeightUpdate {
  readonly pair: LoraPair;
  readonly scale: number;
  /** Index of the expert in a pair for all experts; undefined if each matrix of the weight has its own. */
  readonly expert?: number | undefined;
  /** Whether the weight has its inputs as rows. */
  readonly isTransposed: boolean;
  /** Which rows and columns of the weight are changed. */
  readonly firstRow: number;
  readonly rowStep: number;
  readonly firstColumn: number;
  readonly columnStep: number;
}

/** The adapter's part of a plan. */
export interface PlannedAdapter {
  readonly settings: AdapterSettings;
  /** By path of the module, as the adapter names it. */
  readonly pairs: ReadonlyMap<string, LoraPair>;
  shapeOf(tensor: string): readonly number[];
}

/** The base model's part: shapes of its weights, packed ones under their plain names. */
export interface PlannedBase {
  readonly names: FamilyNames;
  readonly shapes: ReadonlyMap<string, readonly number[]>;
  /** Whether a tensor of all experts has outputs as rows where the plain files have inputs. */
  hasOutputsFirst(weight: string): boolean;
}

const WHOLE = { isTransposed: false, firstRow: 0, rowStep: 1, firstColumn: 0, columnStep: 1 };

/** Decides which weights an adapter changes, and how; throws if it belongs to another model. */
export function planMerge(adapter: PlannedAdapter, base: PlannedBase): Map<string, WeightUpdate[]> {
  const updates = new Map<string, WeightUpdate[]>();
  const homeless: string[] = [];
  const add = (weight: string, update: WeightUpdate) =>
    updates.set(weight, [...(updates.get(weight) ?? []), update]);
  for (const [path, pair] of adapter.pairs) {
    if (isPlaceholder(adapter, pair)) continue;
    const module = base.shapes.has(`${path}.weight`) ? path : base.names.moduleOf(path);
    const experts = expertModule(module);
    const isHome =
      experts === undefined
        ? planModule(module, path, pair, adapter, base, add)
        : planExperts(experts, path, pair, adapter, base, add);
    if (!isHome) homeless.push(module);
  }
  if (homeless.length > 0) {
    const shown = homeless.slice(0, 3).join(", ");
    throw new TinkerError(
      `The base model has no weight for ${homeless.length} of the ${adapter.pairs.size} modules of the adapter: ${shown}${homeless.length > 3 ? ", ..." : ""}.`,
    );
  }
  return updates;
}

/** Whether a module's matrices are empty: the place of a projection that the family does not have. */
export function isPlaceholder(adapter: Pick<PlannedAdapter, "shapeOf">, { a, b }: LoraPair): boolean {
  return adapter.shapeOf(a).includes(0) && adapter.shapeOf(b).includes(0);
}

type AddUpdate = (weight: string, update: WeightUpdate) => void;

function planModule(
  module: string,
  path: string,
  pair: LoraPair,
  adapter: PlannedAdapter,
  { names, shapes }: PlannedBase,
  add: AddUpdate,
): boolean {
  const update = { pair, scale: loraScale(adapter.settings, path), ...WHOLE };
  const [a, b] = [adapter.shapeOf(pair.a), adapter.shapeOf(pair.b)];
  const weight = `${module}.weight`;
  const shape = shapes.get(weight);
  if (shape !== undefined) {
    if (!isLinear(a, b) || shape.length !== 2 || a[1] !== shape[1] || b[0] !== shape[0]) {
      throw misfit(weight, shape, a, b);
    }
    add(weight, update);
    return true;
  }
  const part = fusedPart(module, names);
  const whole = part && shapes.get(`${part.whole}.weight`);
  if (part === undefined || whole === undefined) return false;
  // The sizes of the parts are nowhere but in the adapter.
  let firstRow = 0;
  for (const before of part.before) {
    const sibling = [...adapter.pairs].find(([other]) => names.moduleOf(other) === before);
    if (sibling === undefined) {
      throw new TinkerError(
        `The adapter changes ${module} but not ${before}, which comes before it in ${part.whole}: its place is unknown.`,
      );
    }
    firstRow += adapter.shapeOf(sibling[1].b)[0] ?? 0;
  }
  if (!isLinear(a, b) || whole.length !== 2 || a[1] !== whole[1] || firstRow + b[0]! > whole[0]!) {
    throw misfit(`${part.whole}.weight`, whole, a, b);
  }
  add(`${part.whole}.weight`, { ...update, firstRow });
  return true;
}

function planExperts(
  { experts, projection }: { experts: string; projection: string },
  path: string,
  pair: LoraPair,
  adapter: PlannedAdapter,
  base: PlannedBase,
  add: AddUpdate,
): boolean {
  const { names, shapes } = base;
  const name = names.experts[projection];
  if (name === undefined) return false;
  const [a, b] = [adapter.shapeOf(pair.a), adapter.shapeOf(pair.b)];
  const count = expertCount(path, a, b);
  const update = { pair, scale: loraScale(adapter.settings, path), ...WHOLE };
  if (names.expertLayout === "separate") {
    for (let expert = 0; expert < count; expert++) {
      const weight = `${experts}.${expert}.${name}.weight`;
      const shape = shapes.get(weight);
      if (shape === undefined) return false;
      if (shape.length !== 2 || shape[0] !== b[1] || shape[1] !== a[2]) throw misfit(weight, shape, a, b);
      add(weight, { ...update, expert });
    }
    return true;
  }
  const isDown = name === "down_proj";
  const weight = `${experts}.${isDown ? "down_proj" : "gate_up_proj"}`;
  const shape = shapes.get(weight);
  if (shape === undefined) return false;
  const [inputs, outputs] = [a[2]!, b[1]!];
  if (shape.length !== 3 || shape[0] !== count) throw misfit(weight, shape, a, b);
  const [, rows, columns] = shape as readonly [number, number, number];
  const outputsFirst = base.hasOutputsFirst(weight);
  if (isDown) {
    const canBeNatural = rows === outputs && columns === inputs;
    const canBeTransposed = rows === inputs && columns === outputs && !outputsFirst;
    if (!canBeNatural && !canBeTransposed) throw misfit(weight, shape, a, b);
    const isTransposed =
      canBeTransposed && !(canBeNatural && hasGateAboveUp(shapes.get(`${experts}.gate_up_proj`)));
    add(weight, { ...update, isTransposed });
    return true;
  }
  const index = name === "gate_proj" ? 0 : 1;
  const isInterleaved = names.expertLayout === "interleaved";
  const first = isInterleaved ? index : index * outputs;
  const step = isInterleaved ? 2 : 1;
  if (rows === inputs && columns === 2 * outputs && !outputsFirst) {
    add(weight, { ...update, isTransposed: true, firstColumn: first, columnStep: step });
  } else if (columns === inputs && rows === 2 * outputs && (outputsFirst || !isInterleaved)) {
    add(weight, { ...update, firstRow: first, rowStep: step });
  } else throw misfit(weight, shape, a, b);
  return true;
}

/** Whether gate and up share the rows of their tensor: then the tensors beside it have outputs as rows, too. */
function hasGateAboveUp(shape: readonly number[] | undefined): boolean {
  return shape?.length === 3 && shape[1] === 2 * shape[2]!;
}

/** One matrix may be shared by all experts: then its first dimension is 1. */
function expertCount(path: string, a: readonly number[], b: readonly number[]): number {
  const isFitting =
    a.length === 3 &&
    b.length === 3 &&
    a[1] === b[2] &&
    (a[0] === b[0] ? a[0]! > 1 : a[0] === 1 || b[0] === 1);
  if (!isFitting) {
    throw new TinkerError(
      `The adapter's matrices of ${path} must be [experts, rank, inputs] and [experts, outputs, rank], of as many experts or one for all; got [${a}] and [${b}].`,
    );
  }
  return Math.max(a[0]!, b[0]!);
}

function isLinear(a: readonly number[], b: readonly number[]): boolean {
  return a.length === 2 && b.length === 2 && a[0] === b[1];
}

function misfit(name: string, shape: readonly number[], a: readonly number[], b: readonly number[]) {
  return new TinkerError(
    `The adapter does not fit ${name} of shape [${shape}]: its lora_A has [${a}], its lora_B [${b}].`,
  );
}
