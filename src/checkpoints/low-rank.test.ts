import { describe, expect, it } from "vitest";
import { addProducts, addProductsToBfloat16, type PlacedProduct } from "./low-rank.node.js";

const { fround } = Math;

let state = 7;
function random(length: number): Float32Array {
  return Float32Array.from({ length }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 31 - 1;
  });
}

interface Shape {
  readonly rows: number;
  readonly columns: number;
  readonly rank: number;
}

function product({ rows, columns, rank }: Shape, place: Partial<PlacedProduct> = {}): PlacedProduct {
  const matrices = { left: random(rows * rank), right: random(rank * columns), rank };
  return { product: matrices, firstRow: 0, rowStep: 1, firstColumn: 0, columnStep: 1, ...place };
}

/** One value after the other, in float32, as the definition says. */
function sums(values: Float32Array, rows: number, length: number, products: readonly PlacedProduct[]) {
  const out = values.slice();
  for (const { product, firstRow, rowStep, firstColumn, columnStep } of products) {
    const { left, right, rank } = product;
    const columns = right.length / rank;
    for (let i = 0; i < left.length / rank; i++) {
      const row = firstRow + i * rowStep;
      if (row < 0 || row >= rows) continue;
      for (let j = 0; j < columns; j++) {
        let sum = 0;
        for (let k = 0; k < rank; k++)
          sum = fround(sum + fround(left[i * rank + k]! * right[k * columns + j]!));
        const at = row * length + firstColumn + j * columnStep;
        out[at] = fround(out[at]! + sum);
      }
    }
  }
  return out;
}

/** The nearest bfloat16, by search among the two around the value. */
function nearestBfloat16(value: number): number {
  const bits = new Uint32Array(Float32Array.of(value).buffer)[0]!;
  const below = bits & 0xffff0000;
  const [low, high] = [below, below + 0x10000].map(
    (each) => new Float32Array(Uint32Array.of(each).buffer)[0]!,
  );
  const [toLow, toHigh] = [Math.abs(value - low!), Math.abs(high! - value)];
  if (toLow === toHigh) return (below >>> 16) & 1 ? high! : low!;
  return toLow < toHigh ? low! : high!;
}

const asBfloat16 = (values: Float32Array) =>
  new Uint8Array(Uint16Array.from(new Uint32Array(values.slice().buffer), (bits) => bits >>> 16).buffer);
const fromBfloat16 = (bytes: Uint8Array) =>
  new Float32Array(Uint32Array.from(new Uint16Array(bytes.slice().buffer), (half) => half << 16).buffer);

/** Of long arrays, what is worth printing. */
function firstDifference(actual: ArrayLike<number>, expected: ArrayLike<number>): string | undefined {
  if (actual.length !== expected.length) return `${actual.length} values, not ${expected.length}`;
  for (let i = 0; i < actual.length; i++) {
    if (!Object.is(actual[i], expected[i])) return `[${i}]: ${actual[i]}, not ${expected[i]}`;
  }
  return undefined;
}

const CASES: readonly (readonly [what: string, rows: number, length: number, products: PlacedProduct[]])[] = [
  ["whole groups of rows and columns", 8, 16, [product({ rows: 8, columns: 16, rank: 4 })]],
  ["rows and columns that are left over", 7, 13, [product({ rows: 7, columns: 13, rank: 3 })]],
  ["a matrix of one row and one column", 1, 1, [product({ rows: 1, columns: 1, rank: 1 })]],
  ["more rows than are worked on at once", 301, 1100, [product({ rows: 301, columns: 1100, rank: 2 })]],
  ["more columns than stay near", 5, 1003, [product({ rows: 5, columns: 1003, rank: 40 })]],
  [
    "rows of which a product has only some",
    9,
    12,
    [product({ rows: 20, columns: 12, rank: 2 }, { firstRow: -6 })],
  ],
  [
    "two products in turns of rows, and one of columns",
    ...([10, 24] as const),
    [
      product({ rows: 5, columns: 24, rank: 2 }, { rowStep: 2 }),
      product({ rows: 5, columns: 24, rank: 5 }, { firstRow: 1, rowStep: 2 }),
      product({ rows: 10, columns: 11, rank: 3 }, { firstColumn: 1, columnStep: 2 }),
    ],
  ],
];

describe("products of low-rank matrices", () => {
  it.each(CASES)("are added to float32: %s", (_, rows, length, products) => {
    const values = random(rows * length);
    const expected = sums(values, rows, length, products);
    addProducts(values, { count: rows, length }, products);
    expect(firstDifference(values, expected)).toBeUndefined();
  });

  it.each(CASES)("are added to bfloat16: %s", (_, rows, length, products) => {
    const bytes = asBfloat16(random(rows * length));
    const expected = sums(fromBfloat16(bytes), rows, length, products).map(nearestBfloat16);
    addProductsToBfloat16(bytes, { count: rows, length }, products);
    expect(firstDifference(fromBfloat16(bytes), expected)).toBeUndefined();
  });

  it("leave values of bfloat16 without a product as they are: each one of the 65536", () => {
    const halves = Uint16Array.from({ length: 65536 }, (_, i) => i);
    const bytes = new Uint8Array(halves.slice().buffer);
    addProductsToBfloat16(bytes, { count: 64, length: 1024 }, []);
    // Rounding makes a NaN quiet.
    const isNan = (half: number) => (half & 0x7fff) > 0x7f80;
    const expected = halves.map((half) => (isNan(half) ? half | 0x40 : half));
    expect(firstDifference(new Uint16Array(bytes.buffer), expected)).toBeUndefined();
  });
});
