import { elementCount } from "../../wire/tensors/element-count.js";
import { reshape, stopGradient, Tensor } from "../autograd/index.js";
import { pick } from "../autograd/pick.js";
import { aroundAxis, broadcastIndices, broadcastShape } from "../autograd/shape.js";
import {
  anyArgument,
  booleanArgument,
  charged,
  type GraphOperation,
  graphOperation,
  integerArgument,
  orNone,
  tensorArgument,
  type WorkMeter,
} from "./operation.js";
import { dimensionOf, indicesOf, placesOfView, rowMajor, withTensor } from "./places.js";
import {
  describeGraphValue,
  ELLIPSIS,
  GraphDict,
  GraphSlice,
  GraphTensor,
  GraphTuple,
  type GraphValue,
  graphError,
} from "./values.js";

/** Part of an index that one or more dimensions of the tensor go into. */
type IndexPart =
  | { readonly kind: "slice"; readonly slice: GraphSlice }
  | { readonly kind: "new" }
  | { readonly kind: "pick"; readonly indices: GraphTensor };

const ALL = new GraphSlice(null, null, null);

/** How many dimensions of the tensor an index stands for. */
const dimensionsOf = (index: GraphValue): number => {
  if (index === null || index === ELLIPSIS) return 0;
  return index instanceof GraphTensor && index.dtype === "bool" ? index.shape.length : 1;
};

/** `input[index]` as NumPy and torch have it: integers, slices, None, ..., masks and tensors of indices. */
function indexTensor(meter: WorkMeter, input: GraphTensor, index: GraphValue): GraphTensor {
  const given = index instanceof GraphTuple ? index.items : [index];
  const parts = partsOf(meter, input, given);
  const { shape } = input;
  const strides = rowMajor(shape);
  const picks = parts.flatMap((part) => (part.kind === "pick" ? [part.indices] : []));
  const pickedShape =
    picks.length === 0
      ? []
      : broadcastShape(
          "getitem",
          picks.map(({ tensor }) => tensor),
        );
  // Dimensions of tensors of indices stand where the first one was, or in front if others are between them.
  const kinds = parts.map((part) => part.kind);
  const [first, last] = [kinds.indexOf("pick"), kinds.lastIndexOf("pick")];
  const areTogether = kinds.slice(first, last + 1).every((kind) => kind === "pick");
  const out: number[] = [];
  const outStrides: number[] = [];
  let start = 0;
  let axis = 0;
  let offsets: Float64Array | undefined;
  let placeOfPicks = 0;
  const addPicked = () => {
    placeOfPicks = out.length;
    out.push(...pickedShape);
    outStrides.push(...pickedShape.map(() => 0));
  };
  if (first >= 0 && !areTogether) addPicked();
  if (first >= 0) {
    meter.charge(elementCount(pickedShape) * picks.length);
    offsets = new Float64Array(elementCount(pickedShape));
  }
  for (const [place, part] of parts.entries()) {
    if (part.kind === "new") {
      out.push(1);
      outStrides.push(0);
      continue;
    }
    const [size, stride] = [shape[axis]!, strides[axis]!];
    axis += 1;
    if (part.kind === "slice") {
      const { from, step, count } = rangeOf(part.slice, size);
      start += from * stride;
      out.push(count);
      outStrides.push(step * stride);
      continue;
    }
    if (place === first && areTogether) addPicked();
    const indices = indicesOf(part.indices, size);
    const at = broadcastIndices(part.indices.shape, pickedShape);
    for (let i = 0; i < offsets!.length; i++) offsets![i]! += indices[at[i]!]! * stride;
  }
  meter.charge(elementCount(out));
  const places = placesOfView({ shape: out, strides: outStrides, start });
  if (offsets !== undefined) {
    const inner = elementCount(out.slice(placeOfPicks + pickedShape.length));
    const count = offsets.length;
    for (let i = 0; i < places.length; i++) places[i]! += offsets[Math.floor(i / inner) % count]!;
  }
  return withTensor(input, pick("getitem", input.tensor, places, out));
}

/** An index with its `...` written out, and its masks as tensors of indices. */
function partsOf(meter: WorkMeter, input: GraphTensor, given: readonly GraphValue[]): IndexPart[] {
  const rank = input.shape.length;
  const used = given.reduce<number>((sum, each) => sum + dimensionsOf(each), 0);
  if (used > rank) throw graphError(`too many indices for a tensor of rank ${rank}`);
  const whole = (count: number) =>
    Array.from({ length: count }, (): IndexPart => ({ kind: "slice", slice: ALL }));
  const parts: IndexPart[] = [];
  let axis = 0;
  let hasEllipsis = false;
  for (const each of given) {
    if (each === ELLIPSIS) {
      if (hasEllipsis) throw graphError("an index has at most one ...");
      hasEllipsis = true;
      parts.push(...whole(rank - used));
      axis += rank - used;
    } else if (each === null) parts.push({ kind: "new" });
    else {
      parts.push(...partOf(meter, each, input.shape.slice(axis)));
      axis += dimensionsOf(each);
    }
  }
  if (!hasEllipsis) parts.push(...whole(rank - used));
  return parts;
}

function partOf(meter: WorkMeter, index: GraphValue, shape: readonly number[]): IndexPart[] {
  if (index instanceof GraphSlice) return [{ kind: "slice", slice: index }];
  if (typeof index === "number" && Number.isInteger(index)) return [asPick([index], [])];
  if (Array.isArray(index) && index.every((each) => Number.isInteger(each)))
    return [asPick(index as number[], [index.length])];
  if (!(index instanceof GraphTensor))
    throw graphError(`${describeGraphValue(index)} is not a supported index`);
  if (index.dtype !== "bool") return [{ kind: "pick", indices: index }];
  const fits = index.shape.every((size, axis) => size === shape[axis]);
  if (!fits || index.shape.length === 0)
    throw graphError(`a mask of shape [${index.shape.join(", ")}] does not fit [${shape.join(", ")}]`);
  meter.charge(index.tensor.size * index.shape.length);
  return nonzero(index).map((indices) => ({ kind: "pick", indices }));
}

const asPick = (indices: readonly number[], shape: readonly number[]): IndexPart => ({
  kind: "pick",
  indices: new GraphTensor(new Tensor(Float64Array.from(indices), shape), "int64"),
});

/** The places where a tensor is not zero, one tensor of indices for each dimension. */
function nonzero({ tensor, shape }: GraphTensor): GraphTensor[] {
  const { values } = tensor;
  const found: number[] = [];
  for (let i = 0; i < values.length; i++) if (values[i] !== 0) found.push(i);
  return rowMajor(shape).map((stride, axis) => {
    const indices = Float64Array.from(found, (place) => Math.floor(place / stride) % shape[axis]!);
    return new GraphTensor(new Tensor(indices, [indices.length]), "int64");
  });
}

/** The elements that a slice takes of a dimension of this size. */
function rangeOf({ start, stop, step }: GraphSlice, size: number) {
  const stride = step ?? 1;
  if (stride < 1) throw graphError(`the step of a slice must be above 0, got ${stride}`);
  const bound = (given: number) => Math.min(Math.max(given < 0 ? given + size : given, 0), size);
  const from = bound(start ?? 0);
  const to = bound(stop ?? size);
  return { from, step: stride, count: Math.max(Math.ceil((to - from) / stride), 0) };
}

/** One entry of a tuple, list or dict. */
function entryOf(holder: GraphTuple | GraphDict | readonly GraphValue[], index: GraphValue): GraphValue {
  if (holder instanceof GraphDict) {
    const found = typeof index === "string" ? holder.entries.get(index) : undefined;
    if (found === undefined) throw graphError(`there is no entry ${describeGraphValue(index)}`);
    return found;
  }
  const items = holder instanceof GraphTuple ? holder.items : holder;
  if (index instanceof GraphSlice) {
    const { from, step, count } = rangeOf(index, items.length);
    return new GraphTuple(Array.from({ length: count }, (_, place) => items[from + place * step]!));
  }
  const place = typeof index === "number" && index < 0 ? index + items.length : index;
  const found = typeof place === "number" ? items[place] : undefined;
  if (found === undefined)
    throw graphError(`there is no entry ${describeGraphValue(index)} of ${items.length}`);
  return found;
}

/** The order of elements along a dimension, as indices; equal ones keep theirs. NaN is the highest. */
function order(input: Tensor, axis: number, isDescending: boolean): Float64Array {
  const { outer, size, inner } = aroundAxis(input.shape, axis);
  const { values } = input;
  const ordered = new Float64Array(values.length);
  const sign = isDescending ? -1 : 1;
  const compare = (a: number, b: number) => {
    if (Number.isNaN(a) || Number.isNaN(b)) return Number(Number.isNaN(a)) - Number(Number.isNaN(b));
    return a < b ? -1 : a > b ? 1 : 0;
  };
  for (let block = 0; block < outer * inner; block++) {
    const start = Math.floor(block / inner) * size * inner + (block % inner);
    const places = Array.from({ length: size }, (_, k) => k);
    places.sort((a, b) => sign * compare(values[start + a * inner]!, values[start + b * inner]!) || a - b);
    for (let k = 0; k < size; k++) ordered[start + k * inner] = places[k]!;
  }
  return ordered;
}

/** The first `count` elements in order along a dimension, and their indices. */
function sorted(
  meter: WorkMeter,
  input: GraphTensor,
  along: number,
  isDescending: boolean,
  count?: number,
): GraphTuple {
  const isScalar = input.shape.length === 0;
  const tensor = isScalar ? reshape(input.tensor, [1]) : input.tensor;
  const axis = dimensionOf(along, tensor.shape.length);
  const { outer, size, inner } = aroundAxis(tensor.shape, axis);
  const taken = count ?? size;
  if (taken < 0 || taken > size) throw graphError(`k must be from 0 to ${size}, got ${taken}`);
  meter.charge(tensor.size * (1 + Math.ceil(Math.log2(size + 1))));
  const ordered = order(stopGradient(tensor), axis, isDescending);
  const places = new Int32Array(outer * taken * inner);
  const indices = new Float64Array(places.length);
  for (let i = 0; i < places.length; i++) {
    const block = Math.floor(i / (taken * inner));
    const k = Math.floor(i / inner) % taken;
    const index = ordered[(block * size + k) * inner + (i % inner)]!;
    indices[i] = index;
    places[i] = (block * size + index) * inner + (i % inner);
  }
  const shape = isScalar ? [] : tensor.shape.map((each, at) => (at === axis ? taken : each));
  const values = withTensor(input, pick("sort", tensor, places, shape));
  return new GraphTuple(
    [values, new GraphTensor(new Tensor(indices, shape), "int64")],
    ["values", "indices"],
  );
}

const x = tensorArgument("input");
const sort = charged(
  [x, integerArgument("dim", -1), booleanArgument("descending", false)],
  (meter, input, along, isDescending) => sorted(meter, input, along, isDescending),
);

/** Operations that find elements by place, mask or order. */
export const INDEXING: Readonly<Record<string, GraphOperation>> = {
  getitem: charged([anyArgument("input"), anyArgument("index")], (meter, holder, index) => {
    if (holder instanceof GraphTensor) return indexTensor(meter, holder, index);
    if (holder instanceof GraphTuple || holder instanceof GraphDict || Array.isArray(holder))
      return entryOf(holder as GraphTuple, index);
    throw graphError(`${describeGraphValue(holder)} has no entries`);
  }),
  masked_select: charged([x, tensorArgument("mask")], (meter, input, mask) =>
    indexTensor(meter, input, mask),
  ),
  sort,
  argsort: charged(
    [x, integerArgument("dim", -1), booleanArgument("descending", false)],
    (meter, input, along, isDescending) => sorted(meter, input, along, isDescending).items[1]!,
  ),
  topk: charged(
    [x, integerArgument("k"), integerArgument("dim", -1), booleanArgument("largest", true)],
    (meter, input, k, along, isLargest) => sorted(meter, input, along, isLargest, k),
  ),
  median: charged([x, orNone(integerArgument("dim"))], (meter, input, along) => {
    if (along !== null) throw graphError("is supported without dim only");
    const flat = withTensor(input, reshape(input.tensor, [input.tensor.size]));
    const [values] = sorted(meter, flat, 0, false).items as [GraphTensor];
    return indexTensor(meter, values, Math.floor((flat.tensor.size - 1) / 2));
  }),
  nonzero: graphOperation([x], (input) => {
    const columns = nonzero(input);
    const count = columns[0]?.tensor.size ?? 0;
    const values = Float64Array.from(
      { length: count * columns.length },
      (_, i) => columns[i % columns.length]!.tensor.values[Math.floor(i / columns.length)]!,
    );
    return new GraphTensor(new Tensor(values, [count, columns.length]), "int64");
  }),
};
