import type { AttentionBackward, StridedRows } from "../kernels.js";
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
} from "./attention-tiles.js";
import { defineShader, shaderVariants, typed } from "./shader.js";
import type { GpuContext } from "./webgpu-kernels.js";

/** Threads of each head of a row, and heads of a workgroup. */
const [LANES, HEADS] = [8, 16];

/** logSumExp and the sum of `dout` * `out` for each row and head, which the other two shaders read. */
const ROW_SUMS = defineShader({
  name: "attention-row-sums",
  buffers: { row_sums: "f32", out: "f32", dout: "f32", log_sum_exp: "f32" },
  ints: ["count", "head_dim"],
  code: /* wgsl */ `
var<workgroup> partial: array<f32, ${LANES * HEADS}>;

@compute @workgroup_size(${LANES * HEADS})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let index = flat(group) * ${HEADS}u + lane / ${LANES}u;
  var sum = 0.0;
  if (index < p.count) {
    let start = index * p.head_dim;
    for (var i = lane % ${LANES}u; i < p.head_dim; i += ${LANES}u) {
      sum += out[p.out_at + start + i] * dout[p.dout_at + start + i];
    }
  }
  partial[lane] = sum;
  workgroupBarrier();
  if (lane % ${LANES}u == 0u && index < p.count) {
    for (var i = 1u; i < ${LANES}u; i++) { sum += partial[lane + i]; }
    row_sums[p.row_sums_at + 2u * index] = log_sum_exp[p.log_sum_exp_at + index];
    row_sums[p.row_sums_at + 2u * index + 1u] = sum;
  }
}`,
});

const LOADED = ["query", "key", "value", "dout"] as const;

/** The declarations of a shader that writes the gradients `stored`. */
function declarations<Stored extends string>(variant: AttentionVariant, ...stored: Stored[]) {
  const names: (Stored | (typeof LOADED)[number])[] = [...LOADED, ...stored];
  const matrices = typed(elementOf(variant), ...names);
  return {
    buffers: { ...matrices, row_sums: "f32", offsets: "i32" },
    ints: [...strideNames(...names), "sequences", "heads", "group"],
    floats: ["scale"],
  } as const;
}

/** Declarations for both shaders: workgroup memory, the search for rows, and how matrices are read and written. */
const helpers = (variant: AttentionVariant, ...stored: string[]) => /* wgsl */ `
${tileMemory(variant)}
${spanFinder(variant)}
${LOADED.map((name) => loader(variant, name)).join("\n")}
${stored.map((name) => storer(variant, name)).join("\n")}`;

/** The beginning of both shaders: rows `first_row`.. of a sequence from `start` to `end`. */
const begin = (variant: AttentionVariant, tile: string) => /* wgsl */ `
  let found = find_span(${tile}, lane);
  let first_row = found.x;
  let end = found.y;
  let start = found.z;
  if (first_row >= end) { return; }
  let thread_row = (lane / ${variant.tile.across}u) * ${variant.tile.rows}u;
  let thread_column = lane % ${variant.tile.across}u;`;

const DQUERY = shaderVariants((variant: AttentionVariant) => {
  const { threads, tileRows, tileColumns } = measure(variant);
  const { rows } = variant.tile;
  const queries = { first: "first_row", end: "end", head: "head" };
  const keys = { first: "first_key", end: "end", head: "kv_head" };
  return {
    name: `attention-dquery-${JSON.stringify(variant)}`,
    ...declarations(variant, "dquery"),
    code: /* wgsl */ `${helpers(variant, "dquery")}

@compute @workgroup_size(${threads})
fn main(
  @builtin(workgroup_id) group: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) lane: u32,
) {
  let head = group.x;
  let kv_head = head / p.group;
  ${begin(variant, "groups.y - 1u - group.y")}
  let last_row = min(first_row + ${tileRows - 1}u, end - 1u);
  ${sums(variant, "sum")}
  ${each(
    rows,
    (row) => /* wgsl */ `
  let sums_at${row} = p.row_sums_at + 2u * (min(first_row + thread_row + ${row}u, end - 1u) * p.heads + head);
  let log_sum_exp${row} = row_sums[sums_at${row}];
  let delta${row} = row_sums[sums_at${row} + 1u];`,
  )}

  for (var first_key = start; first_key <= last_row; first_key += ${tileColumns}u) {
    ${scores(variant, "score", { name: "query", ...queries }, { name: "key", ...keys })}
    let keys = vec4u(first_key + 4u * thread_column) + vec4u(0u, 1u, 2u, 3u);
    ${each(
      rows,
      (row) => /* wgsl */ `
    score${row} = select(
      exp(score${row} * p.scale - log_sum_exp${row}),
      vec4<f32>(),
      keys > vec4u(min(first_row + thread_row + ${row}u, end - 1u)),
    );`,
    )}
    ${scores(variant, "dweight", { name: "dout", ...queries }, { name: "value", ...keys })}
    ${each(rows, (row) => `score${row} *= (dweight${row} - delta${row}) * p.scale;`)}
    ${addWeighted(variant, "sum", "score", { name: "key", ...keys })}
  }
  ${storeSums(variant, "sum", { name: "dquery", head: "head" })}
}`,
  };
});

const DKEY_DVALUE = shaderVariants((variant: AttentionVariant) => {
  const { threads, tileColumns } = measure(variant);
  const { rows } = variant.tile;
  const keys = { first: "first_row", end: "end", head: "kv_head" };
  const queries = { first: "first_query", end: "end", head: "head" };
  return {
    name: `attention-dkey-dvalue-${JSON.stringify(variant)}`,
    ...declarations(variant, "dkey", "dvalue"),
    code: /* wgsl */ `${helpers(variant, "dkey", "dvalue")}

@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let kv_head = group.x;
  ${begin(variant, "group.y")}
  ${sums(variant, "dk")}
  ${sums(variant, "dv")}

  for (var head = kv_head * p.group; head < (kv_head + 1u) * p.group; head++) {
    for (var first_query = first_row; first_query < end; first_query += ${tileColumns}u) {
      let queries = vec4u(first_query + 4u * thread_column) + vec4u(0u, 1u, 2u, 3u);
      ${each(
        4,
        (j) => `let sums_at${j} = p.row_sums_at + 2u * (min(queries[${j}], end - 1u) * p.heads + head);`,
      )}
      let log_sum_exp = vec4(${[0, 1, 2, 3].map((j) => `row_sums[sums_at${j}]`).join(", ")});
      let delta = vec4(${[0, 1, 2, 3].map((j) => `row_sums[sums_at${j} + 1u]`).join(", ")});
      ${scores(variant, "score", { name: "key", ...keys }, { name: "query", ...queries })}
      ${each(
        rows,
        (row) => /* wgsl */ `
      score${row} = select(
        exp(score${row} * p.scale - log_sum_exp),
        vec4<f32>(),
        (queries < vec4u(first_row + thread_row + ${row}u)) | (queries >= vec4u(end)),
      );`,
      )}
      ${scores(variant, "dweight", { name: "value", ...keys }, { name: "dout", ...queries })}
      ${addWeighted(variant, "dv", "score", { name: "dout", ...queries })}
      ${each(rows, (row) => `score${row} *= (dweight${row} - delta) * p.scale;`)}
      ${addWeighted(variant, "dk", "score", { name: "query", ...queries })}
    }
  }
  ${storeSums(variant, "dk", { name: "dkey", head: "kv_head" })}
  ${storeSums(variant, "dv", { name: "dvalue", head: "kv_head" })}
}`,
  };
});

/**
 * The weights come back from logSumExp. Queries get their gradient in a workgroup for each tile of their rows, keys and
 * values in one for each tile of theirs, over all the queries that saw them: no two workgroups write the same place.
 */
export function attentionBackward(
  context: GpuContext,
  operation: AttentionBackward,
  tile: AttentionTile = chooseTile(operation.shape.headDim, context.gpu),
): void {
  const { out, dout, logSumExp, query, key, value, offsets, dquery, dkey, dvalue, shape } = operation;
  const { heads, kvHeads, headDim, scale } = shape;
  const rows = Math.floor(logSumExp.length / heads);
  const sequences = offsets.length - 1;
  const loaded = { query, key, value, dout: { data: dout, stride: heads * headDim } };
  const isVector = isAligned(headDim, { ...loaded, dquery, dkey, dvalue });
  const variant = { headDim, isVector, tile };
  const { queue } = context;
  const mark = context.mark();
  const rowSums = context.scratch(2 * rows * heads);
  queue.run(ROW_SUMS, {
    buffers: { row_sums: rowSums, out, dout, log_sum_exp: logSumExp },
    params: { count: rows * heads, head_dim: headDim },
    workgroups: Math.ceil((rows * heads) / HEADS),
  });
  const tiles = tileCount(variant, rows, sequences);
  const bind = <Stored extends string>(stored: Record<Stored, StridedRows>) => {
    const { buffers, strides } = bindRows(variant, { ...loaded, ...stored });
    return {
      buffers: { ...buffers, row_sums: rowSums, offsets },
      params: { ...strides, sequences, heads, group: heads / kvHeads, scale },
    };
  };
  queue.run(DQUERY(variant), { ...bind({ dquery }), workgroups: [heads, tiles] });
  queue.run(DKEY_DVALUE(variant), { ...bind({ dkey, dvalue }), workgroups: [kvHeads, tiles] });
  context.release(mark);
}
