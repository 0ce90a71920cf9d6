import type { F32, I32, Matrix, StridedRows } from "../kernels.js";
import type { GpuFrozen } from "./frozen.js";
import { defineShader, type ElementType, shaderVariants } from "./shader.js";
import { valueCode, valueType, type Width, widthOf } from "./vectors.js";
import type { GpuContext } from "./webgpu-kernels.js";

interface TableVariant {
  /** "values" are float32 that can be written elsewhere. */
  stored: "values" | "F32" | "BF16" | "F16";
  width: Width;
}

/** Type with which a table is bound, and code that reads `Value` number i. */
function tableCode({ stored, width }: TableVariant): {
  type: ElementType | `read ${ElementType}`;
  read: string;
} {
  if (stored === "values") return { type: valueType(width), read: "return table[p.table_at + i];" };
  if (stored === "F32") return { type: `read ${valueType(width)}`, read: "return table[p.table_at + i];" };
  const halves = (word: string) =>
    stored === "F16"
      ? `unpack2x16float(${word})`
      : `vec2f(bitcast<f32>(${word} << 16u), bitcast<f32>(${word} & 0xffff0000u))`;
  if (width === 1) {
    return {
      type: "read u32",
      read: `let word = table[p.table_at + i / 2u]; return ${halves("word")}[i % 2u];`,
    };
  }
  return {
    type: "read vec2<u32>",
    read: `let words = table[p.table_at + i]; return vec4f(${halves("words.x")}, ${halves("words.y")});`,
  };
}

const GATHER = shaderVariants((variant: TableVariant) => {
  const { type, read } = tableCode(variant);
  return {
    name: `gather-rows ${variant.stored} ${variant.width}`,
    buffers: { out: valueType(variant.width), table: type, indices: "i32" } as const,
    ints: ["count", "cols", "stride", "first_row", "table_rows"],
    code: /* wgsl */ `${valueCode(variant.width)}
fn stored(i: u32) -> Value { ${read} }

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = flat(group) * 256u + lane;
  if (i >= p.count) { return; }
  let row = i / p.cols;
  let index = u32(indices[p.indices_at + row]) - p.first_row;
  if (index < p.table_rows) { out[p.out_at + i] = stored(index * p.stride + i - row * p.cols); }
}`,
  };
});

/** A table that cannot be bound as a whole is bound a part at a time, and rows from other parts are left to their turn. */
export function gatherRows(
  { queue, gpu }: GpuContext,
  out: F32,
  table: Matrix,
  indices: I32,
  rows: number,
  cols: number,
): void {
  const isFrozen = table.kind === "frozen";
  const { dtype: stored, stride } = isFrozen
    ? (table as GpuFrozen)
    : { dtype: "values" as const, stride: cols };
  const width = widthOf(isFrozen ? [out] : [out, table], cols);
  const count = (rows * cols) / width;
  const rowBytes = stride * (stored === "BF16" || stored === "F16" ? 2 : 4);
  const tableRows = isFrozen ? table.outputs : Math.floor(table.length / cols);
  const most = Math.floor((gpu.device.limits.maxStorageBufferBindingSize - 256) / rowBytes);
  for (let first = 0; first < tableRows; first += most) {
    const partRows = Math.min(most, tableRows - first);
    const part: F32 = {
      ...table,
      kind: "f32",
      offset: table.offset + first * rowBytes,
      length: (partRows * rowBytes) / 4,
    };
    queue.run(GATHER({ stored, width }), {
      buffers: { out, table: part, indices },
      params: { count, cols: cols / width, stride: stride / width, first_row: first, table_rows: partRows },
      workgroups: Math.ceil(count / 256),
    });
  }
}

const SCATTER = shaderVariants((width: Width) => ({
  name: `scatter-rows ${width}`,
  buffers: { table: valueType(width), x: valueType(width), indices: "i32" } as const,
  ints: ["count", "cols", "stride", "table_rows"],
  code: /* wgsl */ `${valueCode(width)}
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = flat(group) * 256u + lane;
  if (i >= p.count) { return; }
  let row = i / p.cols;
  let col = i - row * p.cols;
  let index = u32(indices[p.indices_at + row]);
  if (index < p.table_rows) { table[p.table_at + index * p.cols + col] = x[p.x_at + row * p.stride + col]; }
}`,
}));

/** If two indices are equal, either row may be written last. */
export function scatterRows(
  { queue }: GpuContext,
  table: F32,
  { data: x, stride }: StridedRows,
  indices: I32,
  rows: number,
  cols: number,
): void {
  const width = widthOf([table, x], cols, stride);
  const count = (rows * cols) / width;
  queue.run(SCATTER(width), {
    buffers: { table, x, indices },
    params: {
      count,
      cols: cols / width,
      stride: stride / width,
      table_rows: Math.floor(table.length / cols),
    },
    workgroups: Math.ceil(count / 256),
  });
}

/** Each adds the rows for its own share of the table, so that equal indices meet in one thread, in order. */
const SCATTER_ADD_SHARES = 64;

const SCATTER_ADD = defineShader({
  name: "scatter-add-rows",
  buffers: { table: "f32", x: "f32", indices: "i32" },
  ints: ["rows", "cols", "table_rows"],
  code: /* wgsl */ `
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) thread: vec3u) {
  let col = thread.x;
  if (col >= p.cols) { return; }
  for (var row = 0u; row < p.rows; row++) {
    let index = u32(indices[p.indices_at + row]);
    if (index % ${SCATTER_ADD_SHARES}u == thread.y && index < p.table_rows) {
      table[p.table_at + index * p.cols + col] += x[p.x_at + row * p.cols + col];
    }
  }
}`,
});

/** A thread for each column of a share. */
export function scatterAddRows(
  { queue }: GpuContext,
  table: F32,
  x: F32,
  indices: I32,
  rows: number,
  cols: number,
): void {
  queue.run(SCATTER_ADD, {
    buffers: { table, x, indices },
    params: { rows, cols, table_rows: Math.floor(table.length / cols) },
    workgroups: [Math.ceil(cols / 64), SCATTER_ADD_SHARES],
  });
}
