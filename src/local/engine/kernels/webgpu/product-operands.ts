import type { F32, Frozen, MatmulOptions, Matrix } from "../kernels.js";
import type { GpuFrozen } from "./frozen.js";
import type { ElementType } from "./shader.js";

/** A product as the kernels' contract has it. */
export interface Product extends MatmulOptions {
  c: F32;
  a: F32;
  b: Matrix;
  m: number;
  n: number;
  k: number;
}

/** How one side of a product is stored, as far as a shader is made for it. */
export interface OperandLayout {
  /** Which direction has its values next to each other: that of the sum, or the other. */
  contiguous: "k" | "outer";
  dtype: "f32" | "bf16" | "f16";
  /** Four values are read at once. */
  isVector: boolean;
}

/** One side of a product: `outer` (rows of a, columns of b) times k values. */
export interface ProductOperand {
  handle: F32 | Frozen;
  layout: OperandLayout;
  /** Between stored rows, in elements. */
  stride: number;
}

/** The left and the right side of a product. */
export function operandsOf({ a, b, m, n, k, transA, transB, lda, ldb }: Product): {
  a: ProductOperand;
  b: ProductOperand;
} {
  const left = plainOperand(a, transA ? "outer" : "k", transA ? m : k, lda);
  if (b.kind === "f32") {
    return { a: left, b: plainOperand(b, transB ? "k" : "outer", transB ? k : n, ldb) };
  }
  const { dtype, stride } = b as GpuFrozen;
  const layout: OperandLayout = {
    contiguous: transB ? "outer" : "k",
    dtype: ({ F32: "f32", BF16: "bf16", F16: "f16" } as const)[dtype],
    isVector: true,
  };
  return { a: left, b: { handle: b, layout, stride } };
}

function plainOperand(
  handle: F32,
  contiguous: "k" | "outer",
  width: number,
  leadingDimension: number | undefined,
): ProductOperand {
  const stride = leadingDimension ?? width;
  const isVector = isVectorRows(handle, width, stride);
  return { handle, layout: { contiguous, dtype: "f32", isVector }, stride };
}

/** Rows that can be read and written four values at a time. */
export const isVectorRows = (buffer: F32, width: number, stride: number) =>
  buffer.offset % 16 === 0 && width % 4 === 0 && stride % 4 === 0;

/** The element type with which an operand is bound. */
export function operandElement({ dtype, isVector }: OperandLayout): ElementType {
  if (dtype !== "f32") return "vec2<u32>";
  return isVector ? "vec4<f32>" : "f32";
}

/** A short name of a layout, for the names of shaders. */
export const layoutName = ({ contiguous, dtype, isVector }: OperandLayout) =>
  `${contiguous}-${dtype}${isVector ? "x4" : ""}`;

/**
 * `NAME_four(row, column)`: the values at column..column+3 of a stored row, zeros beyond its `width`; column is a multiple of 4
 * and, where vectors are read, not beyond the row. `width` is an expression.
 */
export function fourValues(name: string, { dtype, isVector }: OperandLayout, width: string): string {
  const head = `fn ${name}_four(row: u32, column: u32) -> vec4f {`;
  if (dtype !== "f32") {
    const [first, second] =
      dtype === "bf16"
        ? [
            "bitcast<f32>(w.x << 16u), bitcast<f32>(w.x & 0xffff0000u)",
            "bitcast<f32>(w.y << 16u), bitcast<f32>(w.y & 0xffff0000u)",
          ]
        : ["unpack2x16float(w.x)", "unpack2x16float(w.y)"];
    return /* wgsl */ `${head}
  let w = ${name}[p.${name}_at + (row * p.${name}_stride + column) / 4u];
  return vec4f(${first}, ${second});
}`;
  }
  if (isVector) return `${head} return ${name}[p.${name}_at + (row * p.${name}_stride + column) / 4u]; }`;
  return /* wgsl */ `${head}
  let start = p.${name}_at + row * p.${name}_stride;
  let columns = column + vec4u(0u, 1u, 2u, 3u);
  let inside = min(columns, vec4u(${width} - 1u));
  let values = vec4f(${name}[start + inside.x], ${name}[start + inside.y], ${name}[start + inside.z], ${name}[start + inside.w]);
  return select(vec4f(), values, columns < vec4u(${width}));
}`;
}

/** `read_c(row, column)` and `write_c(start, row, column, value)`: four values of a row, as far as they are in the matrix. */
export function fourOfC(isVector: boolean): string {
  if (isVector) {
    return /* wgsl */ `fn read_c(row: u32, column: u32) -> vec4f {
  if (row >= p.m || column >= p.n) { return vec4f(); }
  return c[p.c_at + (row * p.c_stride + column) / 4u];
}
fn write_c(start: u32, row: u32, column: u32, value: vec4f) {
  if (row < p.m && column < p.n) { c[p.c_at + (start + row * p.c_stride + column) / 4u] = value; }
}`;
  }
  return /* wgsl */ `fn read_c(row: u32, column: u32) -> vec4f {
  var value = vec4f();
  if (row >= p.m) { return value; }
  let at = p.c_at + row * p.c_stride + column;
  for (var i = 0u; i < 4u && column + i < p.n; i++) { value[i] = c[at + i]; }
  return value;
}
fn write_c(start: u32, row: u32, column: u32, value: vec4f) {
  if (row >= p.m) { return; }
  let at = p.c_at + start + row * p.c_stride + column;
  for (var i = 0u; i < 4u && column + i < p.n; i++) { c[at + i] = value[i]; }
}`;
}

/** Parameters of all product shaders. */
export const PRODUCT_PARAMS = ["m", "n", "k", "a_stride", "b_stride", "c_stride", "accumulate"] as const;

/** Their values, where the result is written with this stride and added to what is there, or not. */
export function productParams(
  { m, n, k }: Product,
  stride: number,
  adds: boolean,
  a: ProductOperand,
  b: ProductOperand,
) {
  return { m, n, k, a_stride: a.stride, b_stride: b.stride, c_stride: stride, accumulate: adds ? 1 : 0 };
}
