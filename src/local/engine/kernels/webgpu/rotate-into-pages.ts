import type { F32, I32, RotateIntoPages } from "../kernels.js";
import { teamSumCode } from "./reductions.js";
import { type HeadVariant, headVariant, scaleCode, THREADS } from "./rotary.js";
import { type ElementType, shaderVariants, typed } from "./shader.js";
import { valueCode, valueType, widthOf } from "./vectors.js";
import type { GpuContext } from "./webgpu-kernels.js";

const ROTATE = shaderVariants(({ width, team, isNormed }: HeadVariant & { isNormed: boolean }) => {
  const value = valueType(width);
  const buffers: Record<string, ElementType> = {
    ...typed(value, "query", "key_pages", "value_pages", "x", "cosines", "sines"),
    ...typed("i32", "positions", "slots"),
    ...(isNormed && typed(value, "query_norm", "key_norm")),
  };
  const normed = (at: string) =>
    `* scale * select(key_norm[p.key_norm_at + ${at}], query_norm[p.query_norm_at + ${at}], is_query)`;
  return {
    name: `rotate-into-pages ${width} ${team} ${isNormed}`,
    buffers,
    ints: ["rows", "heads", "kv_heads", "pairs", "query_stride", "x_stride"],
    floats: ["length", "eps"],
    code: /* wgsl */ `${valueCode(width)}
${isNormed ? teamSumCode(THREADS, team) : ""}

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let all_heads = p.heads + 2u * p.kv_heads;
  let item = flat(group) * ${THREADS / team}u + lane / ${team}u;
  let member = lane % ${team}u;
  let end = select(0u, p.pairs, item < p.rows * all_heads);
  let row = min(item / all_heads, p.rows - 1u);
  let head = item % all_heads;
  let is_query = head < p.heads;
  let is_value = head >= p.heads + p.kv_heads;
  let x_start = p.x_at + row * p.x_stride + 2u * p.pairs * head;
  let slot = u32(slots[p.slots_at + row]) * 2u * p.pairs * p.kv_heads;
  let angle = u32(positions[p.positions_at + row]) * p.pairs;
  ${isNormed ? scaleCode(team) : ""}
  for (var i = member; i < end; i += ${team}u) {
    if (is_value) {
      let at = p.value_pages_at + slot + 2u * p.pairs * (head - p.heads - p.kv_heads) + i;
      value_pages[at] = x[x_start + i];
      value_pages[at + p.pairs] = x[x_start + p.pairs + i];
      continue;
    }
    let a = x[x_start + i] ${isNormed ? normed("i") : ""};
    let b = x[x_start + p.pairs + i] ${isNormed ? normed("p.pairs + i") : ""};
    let c = cosines[p.cosines_at + angle + i];
    let s = sines[p.sines_at + angle + i];
    if (is_query) {
      let at = p.query_at + row * p.query_stride + 2u * p.pairs * head + i;
      query[at] = a * c - b * s;
      query[at + p.pairs] = b * c + a * s;
    } else {
      let at = p.key_pages_at + slot + 2u * p.pairs * (head - p.heads) + i;
      key_pages[at] = a * c - b * s;
      key_pages[at + p.pairs] = b * c + a * s;
    }
  }
}`,
  };
});

/** Buffers that the shader binds at most; GPUs that bind fewer run one operation after another. */
export const ROTATED_BUFFERS = 10;

/** One run for what would be four: with one row to decode, the number of runs is what counts. */
export function rotateIntoPages({ queue }: GpuContext, operation: RotateIntoPages): void {
  const { query, keyPages, valuePages, slots, projected, rotation } = operation;
  const { queryNorm, keyNorm, angles, rows, heads, kvHeads, headDim, eps } = rotation;
  const { cos, sin, positions } = angles;
  const { data, stride } = projected.query;
  const isNormed = queryNorm !== undefined && keyNorm !== undefined;
  const norms = isNormed ? { query_norm: queryNorm, key_norm: keyNorm } : {};
  const handles = [query.data, keyPages, valuePages, data, cos, sin, ...Object.values(norms)];
  const width = widthOf(handles, headDim / 2, query.stride, stride);
  const { team } = headVariant(width, headDim);
  const buffers: Record<string, F32 | I32> = {
    query: query.data,
    key_pages: keyPages,
    value_pages: valuePages,
    x: data,
    cosines: cos,
    sines: sin,
    positions,
    slots,
    ...norms,
  };
  queue.run(ROTATE({ width, team, isNormed }), {
    buffers,
    params: {
      rows,
      heads,
      kv_heads: kvHeads,
      pairs: headDim / 2 / width,
      query_stride: query.stride / width,
      x_stride: stride / width,
      length: headDim,
      eps,
    },
    workgroups: Math.ceil((rows * (heads + 2 * kvHeads)) / (THREADS / team)),
  });
}
