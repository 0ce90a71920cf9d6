import type { LowRankGroup } from "../few-rows.js";
import type { F32, Frozen } from "../kernels.js";
import {
  type DotSettings,
  dotCode,
  dotElements,
  dotFloats,
  dotGroups,
  dotName,
  dotSettings,
  evenUnroll,
  range,
} from "./product-dots.js";
import {
  fourValues,
  isVectorRows,
  layoutName,
  type OperandLayout,
  operandElement,
  operandsOf,
} from "./product-operands.js";
import { planDots } from "./product-plan.js";
import { type ElementType, shaderVariants } from "./shader.js";
import type { GpuContext } from "./webgpu-kernels.js";

/** c = norm(x) * weight, and `lowRank` = scaling * norm(x) * A where there is an adapter; for a few rows. */
export interface NormedProduct {
  c: F32;
  /** [rows, width of A]. */
  lowRank: F32 | undefined;
  x: F32;
  rows: number;
  norm: F32;
  eps: number;
  weight: Frozen;
  adapter: LowRankGroup | undefined;
}

/** Four columns of A for each of so many lanes; the others share k. */
const COLUMN_LANES = 4;
const COLUMNS = 4 * COLUMN_LANES;
/** Rows whose sums are in workgroup memory at once. */
const SUMMED_ROWS = 2;
/** Registers that a lane may hold with values of A that it has read. */
const READ_REGISTERS = 64;

interface Variant extends DotSettings {
  norm: OperandLayout;
  /** A, and the steps along k that are read at once. */
  adapter?: { layout: OperandLayout; unroll: number };
}

/** Floats of `partial` for A's columns. */
export const columnFloats = ({ rows, lanes, teams }: DotSettings) =>
  Math.min(rows, SUMMED_ROWS) * 5 * lanes * teams;

/** The first workgroups take A's columns, which take longest; the others the weight's. Each computes the norm for itself. */
const SHADER = shaderVariants((variant: Variant) => {
  const { norm, adapter, lanes, teams } = variant;
  const threads = lanes * teams;
  const buffers: Record<string, ElementType | `read ${ElementType}`> = {
    c: "f32",
    ...dotElements(variant),
    norm: operandElement(norm),
    ...(adapter && { low_rank: "f32", adapter: operandElement(adapter.layout) }),
  };
  return {
    name: `normed-product ${dotName(variant)} ${layoutName(norm)} ${adapter ? `${layoutName(adapter.layout)} ${adapter.unroll}` : ""}`,
    enables: variant.subgroup > 1 ? ["subgroups"] : [],
    buffers,
    ints: [
      ...["m", "n", "k", "a_stride", "b_stride", "norm_stride"],
      ...(adapter ? ["adapter_groups", "adapter_stride", "width"] : []),
    ],
    floats: ["length", "eps", ...(adapter ? ["scaling"] : [])],
    code: /* wgsl */ `
var<workgroup> partial: array<f32, ${Math.max(dotFloats(variant, true), adapter ? columnFloats(variant) : 0)}>;
${dotCode(variant, { norm })}
fn write(row: u32, column: u32, sum: f32) { c[p.c_at + row * p.n + column] = sum; }
${adapter ? columnCode(variant, adapter) : ""}

@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  ${
    adapter
      ? /* wgsl */ `let index = flat(group);
  if (index < p.adapter_groups) { adapter_columns(index, lane); }
  else { dots(index - p.adapter_groups, 0u, lane); }`
      : "dots(flat(group), 0u, lane);"
  }
}`,
  };
});

/** `adapter_columns(group, lane)`: some columns of A, whose values along k are far apart. */
function columnCode(
  { a, norm, rows, lanes, teams }: Variant,
  { layout, unroll }: NonNullable<Variant["adapter"]>,
): string {
  const threads = lanes * teams;
  const parts = threads / COLUMN_LANES;
  const steps = range(unroll);
  const summed = Math.min(rows, SUMMED_ROWS);
  const value = (name: string, { isVector }: OperandLayout) =>
    isVector ? `${name}[p.${name}_at + at / 4u][at % 4u]` : `${name}[p.${name}_at + at]`;
  const at = (u: number) => `k + ${u * parts}u`;
  return /* wgsl */ `
${fourValues("adapter", layout, "p.width")}
fn x_value(row: u32, k: u32) -> f32 { let at = row * p.a_stride + k; return ${value("a", a)}; }
fn norm_value(at: u32) -> f32 { return ${value("norm", norm)}; }

fn adapter_columns(group: u32, lane: u32) {
  let column = group * ${COLUMNS}u + lane % ${COLUMN_LANES}u * 4u;
  let read_column = min(column, (p.width - 1u) / 4u * 4u);
  let part = lane / ${COLUMN_LANES}u;
  ${range(rows)
    .map((r) => `let row${r} = min(${r}u, p.m - 1u); var sum${r} = vec4f(); var square${r} = 0.0;`)
    .join("\n  ")}
  for (var k = part; k < p.k; k += ${parts * unroll}u) {
    ${steps.map((u) => `let b${u} = adapter_four(${at(u)}, read_column); let norm${u} = norm_value(${at(u)});`).join("\n    ")}
    ${steps.flatMap((u) => range(rows).map((r) => `let a${u}_${r} = x_value(row${r}, ${at(u)});`)).join("\n    ")}
    ${steps.flatMap((u) => range(rows).map((r) => `sum${r} += (a${u}_${r} * norm${u}) * b${u}; square${r} += a${u}_${r} * a${u}_${r};`)).join("\n    ")}
  }
  ${range(rows / summed)
    .map((round) => {
      const rowsHere = range(summed).map((index) => ({ index, r: round * summed + index }));
      return /* wgsl */ `${round > 0 ? "workgroupBarrier();" : ""}
  ${rowsHere
    .flatMap(({ index, r }) => [
      ...range(4).map((i) => `partial[${(index * 5 + i) * threads}u + lane] = sum${r}[${i}];`),
      `partial[${(index * 5 + 4) * threads}u + lane] = square${r};`,
    ])
    .join("\n  ")}
  workgroupBarrier();
  if (lane < ${summed * COLUMNS}u) { add_columns(group * ${COLUMNS}u, ${round * summed}u, lane); }`;
    })
    .join("\n  ")}
}

fn add_columns(first_column: u32, first_row: u32, lane: u32) {
  let index = lane / ${COLUMNS}u;
  let row = first_row + index;
  let column = first_column + lane % ${COLUMNS}u;
  let start = index * ${5 * threads}u + lane % ${COLUMNS}u / 4u;
  var sum = 0.0;
  var squares = 0.0;
  for (var part = 0u; part < ${parts}u; part++) {
    let at = start + part * ${COLUMN_LANES}u;
    sum += partial[at + lane % 4u * ${threads}u];
    squares += partial[at + ${4 * threads}u];
  }
  if (row < p.m && column < p.width) {
    low_rank[p.low_rank_at + row * p.width + column] = sum / sqrt(squares / p.length + p.eps) * p.scaling;
  }
}`;
}

/** One run for the norm, the product and A. */
export function normedProduct(context: GpuContext, operation: NormedProduct): void {
  const { c, lowRank, x, rows, norm, eps, weight, adapter } = operation;
  const { inputs: k, outputs: n } = weight;
  const operands = operandsOf({ c, a: x, b: weight, m: rows, n, k });
  const { a, b } = operands;
  const plan = planDots(rows, n, k, context.gpu);
  const settings = dotSettings(context, { m: rows, k }, plan, operands);
  const vector = (handle: F32, width: number): OperandLayout => ({
    contiguous: "outer",
    dtype: "f32",
    isVector: isVectorRows(handle, width, width),
  });
  const width = adapter ? adapter.b.length * adapter.rank : 0;
  const { isSoftware } = context.gpu.info;
  const parts = (plan.lanes * plan.teams) / COLUMN_LANES;
  const variant: Variant = { ...settings, norm: vector(norm, k) };
  const buffers: Record<string, F32 | Frozen> = { c, a: a.handle, b: b.handle, norm };
  const params: Record<string, number> = {
    ...{ m: rows, n, k, a_stride: a.stride, b_stride: b.stride, norm_stride: 0, length: k, eps },
  };
  let groups = dotGroups(plan, n);
  if (adapter && lowRank) {
    const most = isSoftware ? 1 : Math.floor(READ_REGISTERS / (5 + settings.rows));
    variant.adapter = { layout: vector(adapter.a, width), unroll: evenUnroll(k, parts, most) };
    Object.assign(buffers, { low_rank: lowRank, adapter: adapter.a });
    const adapterGroups = Math.ceil(width / COLUMNS);
    const { scaling } = adapter;
    Object.assign(params, { adapter_groups: adapterGroups, adapter_stride: width, width, scaling });
    groups += adapterGroups;
  }
  context.queue.run(SHADER(variant), { buffers, params, workgroups: groups });
}
