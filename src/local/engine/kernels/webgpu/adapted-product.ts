import type { LowRankGroup } from "../few-rows.js";
import type { F32, Frozen } from "../kernels.js";
import { loadLowCode } from "./low-rank.js";
import {
  type DotSettings,
  dotCode,
  dotElements,
  dotFloats,
  dotGroups,
  dotName,
  dotSettings,
  range,
} from "./product-dots.js";
import { operandsOf } from "./product-operands.js";
import { planDots } from "./product-plan.js";
import { type ElementType, shaderVariants } from "./shader.js";
import type { GpuContext } from "./webgpu-kernels.js";

/** c += a * weight + bias + scaling * lowRank * B, for a few rows. */
export interface AdaptedProduct {
  c: F32;
  a: F32;
  rows: number;
  weight: Frozen;
  bias: F32 | undefined;
  /** a * A in parts, [rows, parts, rank], to be added; with an adapter of one layer. */
  lowRank: { values: F32; parts: number } | undefined;
  adapter: LowRankGroup | undefined;
}

interface Variant extends DotSettings {
  /** Values of low rank for all rows; 0 without an adapter. */
  lowValues: number;
  hasBias: boolean;
}

const SHADER = shaderVariants((variant: Variant) => {
  const { lanes, teams, rows, lowValues, hasBias } = variant;
  const threads = lanes * teams;
  const buffers: Record<string, ElementType | `read ${ElementType}`> = {
    c: "f32",
    ...dotElements(variant),
    ...(lowValues > 0 && { low_rank: "f32", adapter: "f32" }),
    ...(hasBias && { bias: "f32" }),
  };
  // As one more piece of k, divided among a team's lanes.
  const addLow = (rows: number, columns: number) => /* wgsl */ `workgroupBarrier();
  for (var r = member; r < p.rank; r += ${lanes}u) {
    ${range(columns)
      .map((c) => `let b${c} = adapter[p.adapter_at + r * p.n + column${c}];`)
      .join("\n    ")}
    ${range(rows)
      .flatMap((row) =>
        range(columns).map((c) => `sum${row}_${c} += low_values[${row}u * p.rank + r] * b${c};`),
      )
      .join("\n    ")}
  }`;
  return {
    name: `adapted-product ${dotName(variant)} ${lowValues} ${hasBias}`,
    enables: variant.subgroup > 1 ? ["subgroups"] : [],
    buffers,
    ints: [...["m", "n", "k", "a_stride", "b_stride"], ...(lowValues > 0 ? ["rank", "low_rank_parts"] : [])],
    floats: lowValues > 0 ? ["scaling"] : [],
    code: /* wgsl */ `
var<workgroup> partial: array<f32, ${dotFloats(variant)}>;
${lowValues > 0 ? loadLowCode(threads, lowValues) : ""}
${dotCode(variant, lowValues > 0 ? { add: addLow } : {})}
fn write(row: u32, column: u32, sum: f32) {
  let at = p.c_at + row * p.n + column;
  c[at] += sum ${hasBias ? "+ bias[p.bias_at + column]" : ""};
}

@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  ${lowValues > 0 ? `load_low(${rows}u, lane);` : ""}
  dots(flat(group), 0u, lane);
}`,
  };
});

/** One run for the product, B, the bias and the residual. */
export function adaptedProduct(context: GpuContext, operation: AdaptedProduct): void {
  const { c, a: left, rows, weight, bias, lowRank, adapter } = operation;
  const { inputs: k, outputs: n } = weight;
  const operands = operandsOf({ c, a: left, b: weight, m: rows, n, k });
  const { a, b } = operands;
  const plan = planDots(rows, n, k, context.gpu);
  const settings = dotSettings(context, { m: rows, k }, plan, operands);
  const variant: Variant = { ...settings, lowValues: 0, hasBias: bias !== undefined };
  const buffers: Record<string, F32 | Frozen> = { c, a: a.handle, b: b.handle, ...(bias && { bias }) };
  const params: Record<string, number> = { m: rows, n, k, a_stride: a.stride, b_stride: b.stride };
  if (lowRank && adapter) {
    const { rank, scaling } = adapter;
    variant.lowValues = settings.rows * 2 ** Math.ceil(Math.log2(rank));
    Object.assign(buffers, { low_rank: lowRank.values, adapter: adapter.b[0]!.matrix });
    Object.assign(params, { rank, scaling, low_rank_parts: lowRank.parts });
  }
  context.queue.run(SHADER(variant), { buffers, params, workgroups: dotGroups(plan, n) });
}
