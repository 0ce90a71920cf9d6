import { multiplyColumns } from "./product-columns.js";
import { multiplyDots } from "./product-dots.js";
import type { Product } from "./product-operands.js";
import { type ProductPlan, planProduct } from "./product-plan.js";
import { multiplyTiles } from "./product-tiles.js";
import { defineShader } from "./shader.js";
import { fastMatmul } from "./tensor-cores.js";
import type { GpuContext } from "./webgpu-kernels.js";

/** c = a * b, or c += a * b, as the kernels' contract says. */
export function multiplyMatrices(context: GpuContext, product: Product): void {
  if (product.m === 0 || product.n === 0) return;
  if (product.k === 0) {
    if (!product.accumulate) clear(context, product);
    return;
  }
  if (fastMatmul(context, product)) return;
  multiply(context, product, planProduct(product, context.gpu));
}

/** Computes a product in a given way. */
export function multiply(context: GpuContext, product: Product, plan: ProductPlan): void {
  switch (plan.kind) {
    case "tiles":
      multiplyTiles(context, product, plan, plan.parts);
      break;
    case "dots":
      multiplyDots(context, product, plan);
      break;
    case "columns":
      multiplyColumns(context, product, plan);
      break;
    default:
      plan satisfies never;
  }
}

const CLEAR = defineShader({
  name: "product-clear",
  buffers: { c: "f32" },
  ints: ["size", "n", "c_stride"],
  code: /* wgsl */ `
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let index = flat(group) * 256u + lane;
  if (index < p.size) { c[p.c_at + index / p.n * p.c_stride + index % p.n] = 0.0; }
}`,
});

function clear({ queue }: GpuContext, { c, m, n, ldc = n }: Product): void {
  queue.run(CLEAR, {
    buffers: { c },
    params: { size: m * n, n, c_stride: ldc },
    workgroups: Math.ceil((m * n) / 256),
  });
}
