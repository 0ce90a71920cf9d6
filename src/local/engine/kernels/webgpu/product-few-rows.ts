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

/** Rows of a that one workgroup can multiply while it reads b once. */
export const MAX_FEW_ROWS = 8;

/** A team of lanes reads whole columns of b along k; for a `b` whose values along k are next to each other. */
export interface Dots {
  lanes: number;
  /** Teams in a workgroup. */
  teams: number;
  /** Columns of c that a team computes. */
  columns: number;
  /** Steps along k whose values are read before the first is multiplied, at most: so many that they come out even. */
  unroll: number;
}

/** Each lane has four columns, and parts of the workgroup every so many k; for a `b` whose columns are next to each other. */
export interface Columns {
  /** Lanes along the columns, four columns each. */
  lanes: number;
  /** Lanes along k. */
  parts: number;
  /** As for dots. */
  unroll: number;
}

const range = (count: number) => Array.from({ length: count }, (_, index) => index);

/** Values of k that a lane reads of each column before it goes on: 16 bytes of weights in two bytes, two vectors otherwise. */
const DOT_VALUES = 8;

interface DotShader extends Dots {
  a: OperandLayout;
  b: OperandLayout;
  rows: number;
  /** Lanes whose sums the GPU adds itself; 1 if it cannot. */
  subgroup: number;
}

const DOT_SHADER = shaderVariants((settings: DotShader) => {
  const { a, b, rows, lanes, teams, columns, unroll, subgroup } = settings;
  const threads = lanes * teams;
  const stride = lanes * DOT_VALUES;
  const steps = range(unroll);
  const teamSums = lanes / subgroup;
  const sums = range(rows).flatMap((r) => range(columns).map((c) => ({ r, c, name: `sum${r}_${c}` })));
  const halves = range(DOT_VALUES / 4);
  return {
    name: `product-dots ${layoutName(a)} ${layoutName(b)} ${rows} rows ${lanes}x${teams}x${columns} unroll ${unroll} subgroup ${subgroup}`,
    enables: subgroup > 1 ? ["subgroups"] : [],
    buffers: {
      c: "f32",
      a: operandElement(a),
      b: b.dtype === "f32" ? operandElement(b) : "read vec4<u32>",
    },
    ints: PRODUCT_PARAMS,
    code: /* wgsl */ `
${fourOfA(a)}
${eightOfB(b)}
var<workgroup> partial: array<array<f32, ${threads / subgroup + 1}>, ${sums.length}>;

@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let first_row = group.z * ${rows}u;
  let first = (group.x + group.y * 65535u) * ${teams * columns}u;
  let team_first = first + lane / ${lanes}u * ${columns}u;
  ${range(columns)
    .map((c) => `let column${c} = min(team_first + ${c}u, p.n - 1u);`)
    .join("\n  ")}
  ${range(rows)
    .map((r) => `let row${r} = min(first_row + ${r}u, p.m - 1u);`)
    .join("\n  ")}
  ${sums.map(({ name }) => `var ${name} = 0.0;`).join(" ")}
  for (var k = lane % ${lanes}u * ${DOT_VALUES}u; k < p.k; k += ${stride * unroll}u) {
    ${steps.flatMap((u) => range(columns).map((c) => `let b${u}_${c} = b_eight(column${c}, k + ${u * stride}u);`)).join("\n    ")}
    ${steps
      .flatMap((u) =>
        range(rows).flatMap((r) =>
          halves.map((h) => {
            const k = `k + ${u * stride + 4 * h}u`;
            return `let a${u}_${r}_${h} = ${h === 0 ? "a_four_of" : "a_half"}(row${r}, ${k});`;
          }),
        ),
      )
      .join("\n    ")}
    ${steps.flatMap((u) => sums.map(({ r, c, name }) => halves.map((h) => `${name} += dot(a${u}_${r}_${h}, b${u}_${c}[${h}]);`).join(" "))).join("\n    ")}
  }
  ${subgroup > 1 ? sums.map(({ name }) => `${name} = subgroupAdd(${name});`).join(" ") : ""}
  if (lane % ${subgroup}u == 0u) {
    ${sums.map(({ name }, index) => `partial[${index}][lane / ${subgroup}u] = ${name};`).join("\n    ")}
  }
  workgroupBarrier();
  for (var i = lane; i < ${sums.length * teams}u; i += ${threads}u) {
    let sum_index = i % ${sums.length}u;
    let team = i / ${sums.length}u;
    var sum = 0.0;
    for (var j = 0u; j < ${teamSums}u; j++) { sum += partial[sum_index][team * ${teamSums}u + j]; }
    let row = first_row + sum_index / ${columns}u;
    let column = first + team * ${columns}u + sum_index % ${columns}u;
    if (row < p.m && column < p.n) {
      let at = p.c_at + row * p.c_stride + column;
      if (p.accumulate != 0u) { sum += c[at]; }
      c[at] = sum;
    }
  }
}`,
  };
});

/** Four values of a row of a along k; `a_half` gives zeros where they are beyond k. */
function fourOfA(a: OperandLayout): string {
  const guarded = /* wgsl */ `fn a_half(row: u32, k: u32) -> vec4f {
  return select(vec4f(), a_four_of(row, min(k, (p.k - 1u) / 4u * 4u)), k < p.k);
}`;
  if (a.contiguous === "k") {
    return `${fourValues("a", a, "p.k")}
fn a_four_of(row: u32, k: u32) -> vec4f { return a_four(row, k); }
${guarded}`;
  }
  // The rows of a lie next to each other: values along k are far apart, one by one.
  const element = a.isVector ? "a[p.a_at + at / 4u][at % 4u]" : "a[p.a_at + at]";
  return /* wgsl */ `fn a_value(row: u32, k: u32) -> f32 {
  if (k >= p.k) { return 0.0; }
  let at = k * p.a_stride + row;
  return ${element};
}
fn a_four_of(row: u32, k: u32) -> vec4f {
  return vec4f(a_value(row, k), a_value(row, k + 1u), a_value(row, k + 2u), a_value(row, k + 3u));
}
${guarded}`;
}

/** Eight values of a column of b along k; beyond k zeros. */
function eightOfB(b: OperandLayout): string {
  const head = "fn b_eight(column: u32, k: u32) -> mat2x4f {";
  if (b.dtype === "f32") {
    return /* wgsl */ `${fourValues("b", b, "p.k")}
${head}
  let second = b_four(column, min(k + 4u, (p.k - 1u) / 4u * 4u));
  return mat2x4f(b_four(column, k), select(vec4f(), second, k + 4u < p.k));
}`;
  }
  const two = (word: string) =>
    b.dtype === "bf16"
      ? `bitcast<f32>(${word} << 16u), bitcast<f32>(${word} & 0xffff0000u)`
      : `unpack2x16float(${word})`;
  return /* wgsl */ `${head}
  let w = b[p.b_at + (column * p.b_stride + k) / 8u];
  return mat2x4f(vec4f(${two("w.x")}, ${two("w.y")}), vec4f(${two("w.z")}, ${two("w.w")}));
}`;
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

/** As many rows as a shader is made for: 1, 2, 4 or 8. */
const shaderRows = (m: number) => 2 ** Math.ceil(Math.log2(Math.min(m, MAX_FEW_ROWS)));

function evenUnroll(k: number, strideK: number, most: number): number {
  let unroll = most;
  while (unroll > 1 && k % (strideK * unroll) !== 0) unroll--;
  return unroll;
}

/** A product of few rows; every `MAX_FEW_ROWS` of them read b once. */
export function multiplyDots({ queue, gpu }: GpuContext, product: Product, plan: Dots): void {
  const { a, b } = operandsOf(product);
  const rows = shaderRows(product.m);
  const groups = Math.ceil(product.n / (plan.teams * plan.columns));
  const { subgroupSize = 1 } = gpu.info;
  const settings = {
    ...plan,
    a: a.layout,
    b: b.layout,
    rows,
    unroll: evenUnroll(product.k, plan.lanes * DOT_VALUES, plan.unroll),
    subgroup: plan.lanes % subgroupSize === 0 ? subgroupSize : 1,
  };
  queue.run(DOT_SHADER(settings), {
    buffers: { c: product.c, a: a.handle, b: b.handle },
    params: productParams(product, product.ldc ?? product.n, product.accumulate ?? false, a, b),
    workgroups: [Math.min(groups, 65_535), Math.ceil(groups / 65_535), Math.ceil(product.m / rows)],
  });
}

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
