import {
  fourValues,
  layoutName,
  type OperandLayout,
  operandElement,
  operandsOf,
  PRODUCT_PARAMS,
  type Product,
  type ProductOperand,
  productParams,
} from "./product-operands.js";
import { type ElementType, shaderVariants } from "./shader.js";
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

export const range = (count: number) => Array.from({ length: count }, (_, index) => index);

/** As many rows as a shader is made for: 1, 2, 4 or 8. */
export const shaderRows = (m: number) => 2 ** Math.ceil(Math.log2(Math.min(m, MAX_FEW_ROWS)));

/** The most steps, up to so many, that come out even. */
export function evenUnroll(k: number, strideK: number, most: number): number {
  let unroll = most;
  while (unroll > 1 && k % (strideK * unroll) !== 0) unroll--;
  return unroll;
}

/** Values of k that a lane reads of each column before it goes on: 16 bytes of weights in two bytes, two vectors otherwise. */
const DOT_VALUES = 8;

/** Shapes and settings that a shader of dot products is compiled for. */
export interface DotSettings extends Dots {
  a: OperandLayout;
  b: OperandLayout;
  rows: number;
  /** Lanes whose sums the GPU adds itself; 1 if it cannot. */
  subgroup: number;
}

/** Work of a shader besides the product. */
export interface DotExtension {
  /** The rows of a are normed: their values are multiplied by `norm_four(0, k)`, and divided by the root of their mean square. */
  norm?: OperandLayout;
  /** WGSL that adds to `sum{row}_{column}` what lane `member` of a team has of column `column{column}`. */
  add?: (rows: number, columns: number) => string;
}

/** A plan as a shader is made for it. */
export function dotSettings(
  { gpu }: GpuContext,
  { m, k }: Pick<Product, "m" | "k">,
  plan: Dots,
  { a, b }: { a: ProductOperand; b: ProductOperand },
): DotSettings {
  const { subgroupSize = 1 } = gpu.info;
  return {
    ...plan,
    a: a.layout,
    b: b.layout,
    rows: shaderRows(m),
    unroll: evenUnroll(k, plan.lanes * DOT_VALUES, plan.unroll),
    subgroup: plan.lanes % subgroupSize === 0 ? subgroupSize : 1,
  };
}

/** A short name of settings, for the names of shaders. */
export const dotName = ({ a, b, rows, lanes, teams, columns, unroll, subgroup }: DotSettings) =>
  `${layoutName(a)} ${layoutName(b)} ${rows} rows ${lanes}x${teams}x${columns} unroll ${unroll} subgroup ${subgroup}`;

/** The types of a and b. */
export const dotElements = ({
  a,
  b,
}: DotSettings): { a: ElementType; b: ElementType | "read vec4<u32>" } => ({
  a: operandElement(a),
  b: b.dtype === "f32" ? operandElement(b) : "read vec4<u32>",
});

/** Workgroups for so many columns. */
export const dotGroups = ({ teams, columns }: Dots, n: number) => Math.ceil(n / (teams * columns));

/** Floats of `partial`, the workgroup memory in which lanes leave their sums. */
export function dotFloats({ rows, columns, lanes, teams, subgroup }: DotSettings, isNormed = false): number {
  return (rows * columns + (isNormed ? rows : 0)) * ((lanes * teams) / subgroup + 1);
}

/** `dots(group, first_row, lane)`, which calls `write(row, column, sum)` for each value of its part of the product. */
export function dotCode(settings: DotSettings, { norm, add }: DotExtension = {}): string {
  const { a, b, rows, lanes, teams, columns, unroll, subgroup } = settings;
  const threads = lanes * teams;
  const stride = lanes * DOT_VALUES;
  const steps = range(unroll);
  const teamSums = lanes / subgroup;
  const width = threads / subgroup + 1;
  const sums = range(rows).flatMap((r) => range(columns).map((c) => ({ r, c, name: `sum${r}_${c}` })));
  const squares = norm ? range(rows).map((r) => `square${r}`) : [];
  const all = [...sums.map(({ name }) => name), ...squares];
  const halves = range(DOT_VALUES / 4);
  // The norm's weights go to whichever side has fewer values.
  const isNormOfB = norm !== undefined && columns < rows;
  const left = (u: number, r: number, h: number) =>
    norm && !isNormOfB ? `(a${u}_${r}_${h} * norm${u}_${h})` : `a${u}_${r}_${h}`;
  const right = (u: number, c: number, h: number) =>
    isNormOfB ? `(b${u}_${c}[${h}] * norm${u}_${h})` : `b${u}_${c}[${h}]`;
  return /* wgsl */ `
${fourOfA(a)}
${eightOfB(b)}
${norm ? fourValues("norm", norm, "p.k") : ""}
fn dots(group: u32, first_row: u32, lane: u32) {
  let first = group * ${teams * columns}u;
  let team_first = first + lane / ${lanes}u * ${columns}u;
  let member = lane % ${lanes}u;
  ${range(columns)
    .map((c) => `let column${c} = min(team_first + ${c}u, p.n - 1u);`)
    .join("\n  ")}
  ${range(rows)
    .map((r) => `let row${r} = min(first_row + ${r}u, p.m - 1u);`)
    .join("\n  ")}
  ${all.map((name) => `var ${name} = 0.0;`).join(" ")}
  for (var k = member * ${DOT_VALUES}u; k < p.k; k += ${stride * unroll}u) {
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
    ${
      norm
        ? steps
            .flatMap((u) =>
              halves.map(
                (h) =>
                  `let norm${u}_${h} = norm_four(0u, min(k + ${u * stride + 4 * h}u, (p.k - 1u) / 4u * 4u));`,
              ),
            )
            .join("\n    ")
        : ""
    }
    ${steps.flatMap((u) => sums.map(({ r, c, name }) => halves.map((h) => `${name} += dot(${left(u, r, h)}, ${right(u, c, h)});`).join(" "))).join("\n    ")}
    ${steps.flatMap((u) => squares.map((name, r) => halves.map((h) => `${name} += dot(a${u}_${r}_${h}, a${u}_${r}_${h});`).join(" "))).join("\n    ")}
  }
  ${add?.(rows, columns) ?? ""}
  ${subgroup > 1 ? all.map((name) => `${name} = subgroupAdd(${name});`).join(" ") : ""}
  if (lane % ${subgroup}u == 0u) {
    ${all.map((name, index) => `partial[${index * width}u + lane / ${subgroup}u] = ${name};`).join("\n    ")}
  }
  workgroupBarrier();
  for (var i = lane; i < ${sums.length * teams}u; i += ${threads}u) {
    let sum_index = i % ${sums.length}u;
    let team = i / ${sums.length}u;
    let row = first_row + sum_index / ${columns}u;
    let column = first + team * ${columns}u + sum_index % ${columns}u;
    var sum = 0.0;
    for (var j = 0u; j < ${teamSums}u; j++) { sum += partial[sum_index * ${width}u + team * ${teamSums}u + j]; }
    ${
      norm
        ? /* wgsl */ `let squares_at = (${sums.length}u + sum_index / ${columns}u) * ${width}u + team * ${teamSums}u;
    var squares = 0.0;
    for (var j = 0u; j < ${teamSums}u; j++) { squares += partial[squares_at + j]; }
    sum *= 1.0 / sqrt(squares / p.length + p.eps);`
        : ""
    }
    if (row < p.m && column < p.n) { write(row, column, sum); }
  }
}`;
}

const DOT_SHADER = shaderVariants((settings: DotSettings) => ({
  name: `product-dots ${dotName(settings)}`,
  enables: settings.subgroup > 1 ? ["subgroups"] : [],
  buffers: { c: "f32" as const, ...dotElements(settings) },
  ints: PRODUCT_PARAMS,
  code: /* wgsl */ `
var<workgroup> partial: array<f32, ${dotFloats(settings)}>;
${dotCode(settings)}

fn write(row: u32, column: u32, product: f32) {
  let at = p.c_at + row * p.c_stride + column;
  var sum = product;
  if (p.accumulate != 0u) { sum += c[at]; }
  c[at] = sum;
}

@compute @workgroup_size(${settings.lanes * settings.teams})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  dots(flat(group), group.z * ${settings.rows}u, lane);
}`,
}));

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

/** A product of few rows; every `MAX_FEW_ROWS` of them read b once. */
export function multiplyDots(context: GpuContext, product: Product, plan: Dots): void {
  const operands = operandsOf(product);
  const { a, b } = operands;
  const settings = dotSettings(context, product, plan, operands);
  const groups = dotGroups(plan, product.n);
  context.queue.run(DOT_SHADER(settings), {
    buffers: { c: product.c, a: a.handle, b: b.handle },
    params: productParams(product, product.ldc ?? product.n, product.accumulate ?? false, a, b),
    workgroups: [Math.min(groups, 65_535), Math.ceil(groups / 65_535), Math.ceil(product.m / settings.rows)],
  });
}
