import { evenUnroll, range, shaderRows } from "./product-dots.js";
import {
  fourValues,
  layoutName,
  type OperandLayout,
  operandElement,
  operandsOf,
  PRODUCT_PARAMS,
  type Product,
  productParams,
} from "./product-operands.js";
import { shaderVariants } from "./shader.js";
import type { GpuContext } from "./webgpu-kernels.js";

/** Each lane has four columns, and parts of the workgroup every so many k; for a `b` whose columns are next to each other. */
export interface Columns {
  /** Lanes along the columns, four columns each. */
  lanes: number;
  /** Lanes along k. */
  parts: number;
  /** As for dots. */
  unroll: number;
}

interface ColumnShader extends Columns {
  a: OperandLayout;
  b: OperandLayout;
  rows: number;
}

/** Rows whose sums are in workgroup memory at once. */
const SUMMED_ROWS = 4;

const COLUMN_SHADER = shaderVariants(({ a, b, rows, lanes, parts, unroll }: ColumnShader) => {
  const steps = range(unroll);
  const threads = lanes * parts;
  const summedRows = Math.min(rows, SUMMED_ROWS, parts);
  const element = a.isVector ? "a[p.a_at + at / 4u][at % 4u]" : "a[p.a_at + at]";
  const rounds = range(rows / summedRows);
  return {
    name: `product-columns ${layoutName(a)} ${layoutName(b)} ${rows} rows ${lanes}x${parts} unroll ${unroll}`,
    buffers: {
      c: "f32",
      a: operandElement(a),
      b: a.dtype === b.dtype ? operandElement(b) : `read ${operandElement(b)}`,
    },
    ints: PRODUCT_PARAMS,
    code: /* wgsl */ `
${fourValues("b", b, "p.n")}
fn a_value(row: u32, k: u32) -> f32 {
  let at = ${a.contiguous === "k" ? "row * p.a_stride + k" : "k * p.a_stride + row"};
  return ${element};
}
var<workgroup> partial: array<array<vec4f, ${threads}>, ${summedRows}>;

@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let first_row = group.z * ${rows}u;
  let column = (group.x * ${lanes}u + lane % ${lanes}u) * 4u;
  let read_column = min(column, (p.n - 1u) / 4u * 4u);
  let part = lane / ${lanes}u;
  ${range(rows)
    .map((r) => `let row${r} = min(first_row + ${r}u, p.m - 1u); var sum${r} = vec4f();`)
    .join("\n  ")}
  for (var k = part; k < p.k; k += ${parts * unroll}u) {
    ${steps.map((u) => `let b${u} = b_four(k + ${u * parts}u, read_column);`).join("\n    ")}
    ${steps.flatMap((u) => range(rows).map((r) => `let a${u}_${r} = a_value(row${r}, k + ${u * parts}u);`)).join("\n    ")}
    ${steps.flatMap((u) => range(rows).map((r) => `sum${r} += a${u}_${r} * b${u};`)).join("\n    ")}
  }
  ${rounds
    .map(
      (round) => `${round > 0 ? "workgroupBarrier();" : ""}
  ${range(summedRows)
    .map((r) => `partial[${r}][lane] = sum${round * summedRows + r};`)
    .join("\n  ")}
  workgroupBarrier();
  if (part < ${summedRows}u) {
    var sum = vec4f();
    for (var j = 0u; j < ${parts}u; j++) { sum += partial[part][j * ${lanes}u + lane % ${lanes}u]; }
    write_sum(first_row + ${round * summedRows}u + part, column, sum);
  }`,
    )
    .join("\n  ")}
}

fn write_sum(row: u32, column: u32, sum: vec4f) {
  if (row >= p.m) { return; }
  for (var i = 0u; i < 4u; i++) {
    if (column + i >= p.n) { return; }
    let at = p.c_at + row * p.c_stride + column + i;
    if (p.accumulate != 0u) { c[at] += sum[i]; } else { c[at] = sum[i]; }
  }
}`,
  };
});

/** A product of few rows with a `b` whose columns are adjacent. */
export function multiplyColumns({ queue }: GpuContext, product: Product, plan: Columns): void {
  const { a, b } = operandsOf(product);
  const rows = shaderRows(product.m);
  const unroll = evenUnroll(product.k, plan.parts, plan.unroll);
  queue.run(COLUMN_SHADER({ ...plan, a: a.layout, b: b.layout, rows, unroll }), {
    buffers: { c: product.c, a: a.handle, b: b.handle },
    params: productParams(product, product.ldc ?? product.n, product.accumulate ?? false, a, b),
    workgroups: [Math.ceil(product.n / (4 * plan.lanes)), 1, Math.ceil(product.m / rows)],
  });
}
