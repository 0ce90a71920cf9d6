import type { Attention } from "../kernels.js";
import {
  type AttentionTile,
  type AttentionVariant,
  addWeighted,
  bindRows,
  chooseTile,
  each,
  elementOf,
  isAligned,
  loader,
  measure,
  scores,
  spanFinder,
  storer,
  storeSums,
  strideNames,
  sums,
  tileCount,
  tileMemory,
  UNSEEN,
} from "./attention-tiles.js";
import { shaderVariants, typed } from "./shader.js";
import type { GpuContext } from "./webgpu-kernels.js";

/**
 * The entry point of attention, for rows `first_row`.. of a sequence from `start` to `end`, which `span` finds for the
 * workgroup's `tile`: softmax as it goes along the keys. `finish` can use each row's largest score and sum of weights.
 */
export function attentionCode(
  variant: AttentionVariant,
  { span, finish = "" }: { span: string; finish?: string },
): string {
  const { threads, tileColumns } = measure(variant);
  const { across, rows } = variant.tile;
  const keys = { first: "first_key", end: "end", head: "kv_head" };
  return /* wgsl */ `
${tileMemory(variant)}

@compute @workgroup_size(${threads})
fn main(
  @builtin(workgroup_id) group: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) lane: u32,
) {
  let head = group.x;
  let kv_head = head / p.group;
  // The tiles at the end of a sequence see the most keys, and begin first.
  let tile = groups.y - 1u - group.y;
  ${span}
  if (first_row >= end) { return; }
  let last_row = min(first_row + ${variant.tile.rows * variant.tile.down - 1}u, end - 1u);
  let thread_row = (lane / ${across}u) * ${rows}u;
  let thread_column = lane % ${across}u;
  ${sums(variant, "sum")}
  ${each(rows / 4, (i) => `var largest${i} = vec4<f32>(${UNSEEN}); var total${i} = vec4<f32>();`)}

  for (var first_key = start; first_key <= last_row; first_key += ${tileColumns}u) {
    ${scores(variant, "score", { name: "query", first: "first_row", end: "end", head: "head" }, { name: "key", ...keys })}
    ${each(rows, (row) => `score${row} *= p.scale;`)}
    if (first_key + ${tileColumns - 1}u > first_row) {
      let keys = vec4u(first_key + 4u * thread_column) + vec4u(0u, 1u, 2u, 3u);
      ${each(rows, (row) => `score${row} = select(score${row}, vec4<f32>(${UNSEEN}), keys > vec4u(first_row + thread_row + ${row}u));`)}
    }
    ${each(
      rows / 4,
      (i) =>
        `partial[${i}][lane] = vec4(${[0, 1, 2, 3].map((j) => `largest_of(score${4 * i + j})`).join(", ")});`,
    )}
    workgroupBarrier();
    ${each(
      rows / 4,
      (i) => /* wgsl */ `
    {
      var found = largest${i};
      for (var column = 0u; column < ${across}u; column++) {
        found = max(found, partial[${i}][lane - thread_column + column]);
      }
      let kept = exp(largest${i} - found);
      largest${i} = found;
      total${i} *= kept;
      ${each(4, (j) => each(measure(variant).columns, (c) => `sum${4 * i + j}_${c} *= kept[${j}];`))}
    }`,
    )}
    ${each(
      rows,
      (row) => /* wgsl */ `
    score${row} = exp(score${row} - largest${component(row)});
    total${component(row)} += dot(score${row}, vec4<f32>(1.0));`,
    )}
    ${addWeighted(variant, "sum", "score", { name: "value", ...keys })}
  }

  workgroupBarrier();
  ${each(rows / 4, (i) => `partial[${i}][lane] = total${i};`)}
  workgroupBarrier();
  ${each(
    rows / 4,
    (i) => /* wgsl */ `
  var whole${i} = vec4<f32>();
  for (var column = 0u; column < ${across}u; column++) { whole${i} += partial[${i}][lane - thread_column + column]; }
  let factor${i} = 1.0 / whole${i};`,
  )}
  ${storeSums(variant, "sum", { name: "out", head: "head", factor: (row) => `factor${component(row)}` })}
  ${finish}
}

fn largest_of(values: vec4<f32>) -> f32 { return max(max(values.x, values.y), max(values.z, values.w)); }`;
}

const component = (row: number) => `${Math.floor(row / 4)}[${row % 4}]`;

const FORWARD = shaderVariants((variant: AttentionVariant) => {
  return {
    name: `attention-${JSON.stringify(variant)}`,
    buffers: {
      ...typed(elementOf(variant), "out", "query", "key", "value"),
      log_sum_exp: "f32" as const,
      offsets: "i32" as const,
    },
    ints: [...strideNames("out", "query", "key", "value"), "sequences", "heads", "group"],
    floats: ["scale"],
    code: /* wgsl */ `
${spanFinder(variant)}
${["query", "key", "value"].map((name) => loader(variant, name)).join("\n")}
${storer(variant, "out")}
${attentionCode(variant, {
  span: /* wgsl */ `
  let found = find_span(tile, lane);
  let first_row = found.x;
  let end = found.y;
  let start = found.z;`,
  finish: /* wgsl */ `
  if (thread_column == 0u) {
    ${each(
      variant.tile.rows,
      (row) => /* wgsl */ `
    if (first_row + thread_row + ${row}u < end) {
      log_sum_exp[p.log_sum_exp_at + (first_row + thread_row + ${row}u) * p.heads + head] =
        largest${component(row)} + log(whole${component(row)});
    }`,
    )}
  }`,
})}`,
  };
});

/** A workgroup for each tile of query rows and each head, over the keys up to its last row: softmax as it goes along. */
export function attention(
  { queue, gpu }: GpuContext,
  { out, logSumExp, query, key, value, offsets, shape }: Attention,
  tile: AttentionTile = chooseTile(shape.headDim, gpu),
): void {
  const { heads, kvHeads, headDim, scale } = shape;
  const rows = Math.floor(logSumExp.length / heads);
  const sequences = offsets.length - 1;
  const matrices = { out: { data: out, stride: heads * headDim }, query, key, value };
  const variant = { headDim, isVector: isAligned(headDim, matrices), tile };
  const { buffers, strides } = bindRows(variant, matrices);
  queue.run(FORWARD(variant), {
    buffers: { ...buffers, log_sum_exp: logSumExp, offsets },
    params: { ...strides, sequences, heads, group: heads / kvHeads, scale },
    workgroups: [heads, tileCount(variant, rows, sequences)],
  });
}
