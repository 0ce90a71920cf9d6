import { type F32, type I32, type NormRope, type NormRopeBackward, sliceBuffer } from "../kernels.js";
import { addOverRows, teamSumCode, threadsFor } from "./reductions.js";
import { defineShader, type ElementType, shaderVariants, typed } from "./shader.js";
import { valueCode, valueType, type Width, widthOf } from "./vectors.js";
import type { GpuContext } from "./webgpu-kernels.js";

/** Threads of a workgroup that turns heads. */
export const THREADS = 128;

/** How the heads of a row are divided among threads. */
export interface HeadVariant {
  width: Width;
  /** Threads that share a head; each handles pairs of values half a head apart. */
  team: number;
}

/** Teams as large as there are pairs in a head, at most 32. */
export const headVariant = (width: Width, headDim: number): HeadVariant => ({
  width,
  team: threadsFor(headDim / 2 / width, 1, 32),
});

/** `scale`: one over the root of the mean square of the team's head, which begins at `x_start`. */
export const scaleCode = (team: number) => /* wgsl */ `var sum = 0.0;
  for (var i = member; i < end; i += ${team}u) {
    let a = x[x_start + i];
    let b = x[x_start + p.pairs + i];
    sum += total(a * a + b * b);
  }
  let scale = 1.0 / sqrt(team_sum(sum, lane) / p.length + p.eps);`;

const groupsFor = ({ team }: HeadVariant, rows: number, heads: number) =>
  Math.ceil((rows * heads) / (THREADS / team));

/** Which head of which row a thread works on, and where its angles begin; beyond the last head a team has nothing to do. */
const placeCode = ({ team }: HeadVariant) => /* wgsl */ `
  let item = flat(group) * ${THREADS / team}u + lane / ${team}u;
  let member = lane % ${team}u;
  let end = select(0u, p.pairs, item < p.rows * p.heads);
  let row = min(item / p.heads, p.rows - 1u);
  let head = 2u * p.pairs * (item % p.heads);
  let angle = u32(positions[p.positions_at + row]) * p.pairs;`;

/** Forward, or back by the same angles; with the norm in front where there is one. */
const ROTATE = shaderVariants((variant: HeadVariant & { isNormed: boolean }) => {
  const { width, team, isNormed } = variant;
  const value = valueType(width);
  const buffers: Record<string, ElementType> = {
    ...typed(value, "out", "x", "cosines", "sines"),
    positions: "i32",
    ...(isNormed && { weight: value, rstd: "f32" }),
  };
  return {
    name: `rotate ${width} ${team} ${isNormed}`,
    buffers,
    ints: ["rows", "heads", "pairs", "out_stride", "x_stride"],
    floats: ["direction", "length", "eps"],
    code: /* wgsl */ `${valueCode(width)}
${isNormed ? teamSumCode(THREADS, team) : ""}

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  ${placeCode(variant)}
  let x_start = p.x_at + row * p.x_stride + head;
  let out_start = p.out_at + row * p.out_stride + head;
  ${isNormed ? `${scaleCode(team)}\n  if (member < end && member == 0u) { rstd[p.rstd_at + item] = scale; }` : ""}
  for (var i = member; i < end; i += ${team}u) {
    let a = x[x_start + i]${isNormed ? " * scale * weight[p.weight_at + i]" : ""};
    let b = x[x_start + p.pairs + i]${isNormed ? " * scale * weight[p.weight_at + p.pairs + i]" : ""};
    let c = cosines[p.cosines_at + angle + i];
    let s = sines[p.sines_at + angle + i] * p.direction;
    out[out_start + i] = a * c - b * s;
    out[out_start + p.pairs + i] = b * c + a * s;
  }
}`,
  };
});

type Rotate = Omit<NormRope, "eps"> & { eps?: number };

/** A team of threads for each head of each row. */
function rotate({ queue }: GpuContext, operation: Rotate, direction: 1 | -1): void {
  const { out, rstd, x, weight, angles, rows, heads, headDim, eps = 0 } = operation;
  const { cos, sin, positions } = angles;
  const norm: Record<string, F32> = weight && rstd ? { weight, rstd } : {};
  const vectors = [out.data, x.data, cos, sin, ...(norm["weight"] ? [norm["weight"]] : [])];
  const width = widthOf(vectors, headDim / 2, out.stride, x.stride);
  const variant = { ...headVariant(width, headDim), isNormed: norm["weight"] !== undefined };
  const buffers: Record<string, F32 | I32> = {
    out: out.data,
    x: x.data,
    cosines: cos,
    sines: sin,
    positions,
    ...norm,
  };
  queue.run(ROTATE(variant), {
    buffers,
    params: {
      rows,
      heads,
      pairs: headDim / 2 / width,
      out_stride: out.stride / width,
      x_stride: x.stride / width,
      direction,
      length: headDim,
      eps,
    },
    workgroups: groupsFor(variant, rows, heads),
  });
}

/** The norm, where there is one, and the rotation in one run. */
export function normRope(context: GpuContext, operation: NormRope): void {
  rotate(context, operation, 1);
}

const NORM_ROPE_BACKWARD = shaderVariants((variant: HeadVariant) => {
  const value = valueType(variant.width);
  return {
    name: `norm-rope-backward ${variant.width} ${variant.team}`,
    buffers: {
      ...typed(value, "dx", "dout", "x", "weight", "cosines", "sines"),
      rstd: "f32" as const,
      positions: "i32" as const,
    },
    ints: ["rows", "heads", "pairs", "dx_stride", "dout_stride", "x_stride"],
    floats: ["length"],
    code: /* wgsl */ `${valueCode(variant.width)}
${teamSumCode(THREADS, variant.team)}

struct Pair { normalised: array<Value, 2>, gradient: array<Value, 2> }

/** Two values before the rotation and after the norm, without its weight; and their gradients, with the weight. */
fn pair(i: u32, x_start: u32, dout_start: u32, angle: u32, scale: f32) -> Pair {
  let da = dout[dout_start + i];
  let db = dout[dout_start + p.pairs + i];
  let c = cosines[p.cosines_at + angle + i];
  let s = sines[p.sines_at + angle + i];
  return Pair(
    array<Value, 2>(x[x_start + i] * scale, x[x_start + p.pairs + i] * scale),
    array<Value, 2>((da * c + db * s) * weight[p.weight_at + i], (db * c - da * s) * weight[p.weight_at + p.pairs + i]),
  );
}

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  ${placeCode(variant)}
  let scale = rstd[p.rstd_at + min(item, p.rows * p.heads - 1u)];
  let x_start = p.x_at + row * p.x_stride + head;
  let dout_start = p.dout_at + row * p.dout_stride + head;
  let dx_start = p.dx_at + row * p.dx_stride + head;
  var sum = 0.0;
  for (var i = member; i < end; i += ${variant.team}u) {
    let v = pair(i, x_start, dout_start, angle, scale);
    sum += total(v.gradient[0] * v.normalised[0] + v.gradient[1] * v.normalised[1]);
  }
  let mean = team_sum(sum, lane) / p.length;
  for (var i = member; i < end; i += ${variant.team}u) {
    let v = pair(i, x_start, dout_start, angle, scale);
    dx[dx_start + i] = scale * (v.gradient[0] - v.normalised[0] * mean);
    dx[dx_start + p.pairs + i] = scale * (v.gradient[1] - v.normalised[1] * mean);
  }
}`,
  };
});

const NORM_ROPE_WEIGHT_GRADIENT = defineShader({
  name: "norm-rope-weight-gradient",
  buffers: { ...typed("f32", "parts", "dout", "x", "rstd", "cosines", "sines"), positions: "i32" },
  ints: ["items", "heads", "pairs", "dout_stride", "x_stride", "part_items"],
  code: /* wgsl */ `
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) thread: vec3u) {
  let i = thread.x;
  if (i >= p.pairs) { return; }
  let first = thread.y * p.part_items;
  var sum_a = 0.0;
  var sum_b = 0.0;
  for (var item = first; item < min(first + p.part_items, p.items); item++) {
    let row = item / p.heads;
    let head = 2u * p.pairs * (item % p.heads);
    let angle = u32(positions[p.positions_at + row]) * p.pairs + i;
    let c = cosines[p.cosines_at + angle];
    let s = sines[p.sines_at + angle];
    let dout_first = p.dout_at + row * p.dout_stride + head + i;
    let da = dout[dout_first];
    let db = dout[dout_first + p.pairs];
    let x_first = p.x_at + row * p.x_stride + head + i;
    let scale = rstd[p.rstd_at + item];
    sum_a += (da * c + db * s) * (x[x_first] * scale);
    sum_b += (db * c - da * s) * (x[x_first + p.pairs] * scale);
  }
  let at = p.parts_at + thread.y * 2u * p.pairs + i;
  parts[at] = sum_a;
  parts[at + p.pairs] = sum_b;
}`,
});

/** A team of threads for each head of each row; the weight's gradient, if needed, column by column. */
export function normRopeBackward(context: GpuContext, operation: NormRopeBackward): void {
  const { dx, dweight, dout, x, rstd, weight, angles, rows, heads, headDim } = operation;
  if (!weight || !rstd) {
    rotate(context, { out: dx, x: dout, angles, rows, heads, headDim }, -1);
    return;
  }
  const { queue } = context;
  const { cos, sin, positions } = angles;
  const width = widthOf(
    [dx.data, dout.data, x.data, weight, cos, sin],
    headDim / 2,
    dx.stride,
    dout.stride,
    x.stride,
  );
  const variant = headVariant(width, headDim);
  const inputs = { dout: dout.data, x: x.data, rstd, cosines: cos, sines: sin, positions };
  queue.run(NORM_ROPE_BACKWARD(variant), {
    buffers: { dx: dx.data, weight, ...inputs },
    params: {
      rows,
      heads,
      pairs: headDim / 2 / width,
      dx_stride: dx.stride / width,
      dout_stride: dout.stride / width,
      x_stride: x.stride / width,
      length: headDim,
    },
    workgroups: groupsFor(variant, rows, heads),
  });
  if (!dweight) return;
  const items = rows * heads;
  addOverRows(context, sliceBuffer(dweight, 0, headDim), items, (parts, partItems, count) =>
    queue.run(NORM_ROPE_WEIGHT_GRADIENT, {
      buffers: { parts, ...inputs },
      params: {
        items,
        heads,
        pairs: headDim / 2,
        dout_stride: dout.stride,
        x_stride: x.stride,
        part_items: partItems,
      },
      workgroups: [Math.ceil(headDim / 2 / 64), count],
    }),
  );
}
