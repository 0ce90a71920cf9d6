import type { CopyPages } from "../few-rows.js";
import { shaderVariants, typed } from "./shader.js";
import { valueType, type Width, widthOf } from "./vectors.js";
import type { GpuContext } from "./webgpu-kernels.js";

const THREADS = 256;

const COPY_PAGES = shaderVariants((width: Width) => ({
  name: `copy-pages ${width}`,
  buffers: { ...typed(valueType(width), "key_pages", "value_pages"), pairs: "i32" as const },
  ints: ["length"],
  code: /* wgsl */ `
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = group.x * ${THREADS}u + lane;
  if (i >= p.length) { return; }
  let read = u32(pairs[p.pairs_at + 2u * group.y]) * p.length + i;
  let written = u32(pairs[p.pairs_at + 2u * group.y + 1u]) * p.length + i;
  key_pages[p.key_pages_at + written] = key_pages[p.key_pages_at + read];
  value_pages[p.value_pages_at + written] = value_pages[p.value_pages_at + read];
}`,
}));

/** One run for all pages of a layer, which binds the same whatever pages they are. */
export function copyPages({ queue }: GpuContext, operation: CopyPages): void {
  const { keyPages, valuePages, pairs, count, pageLength } = operation;
  const width = widthOf([keyPages, valuePages], pageLength);
  queue.run(COPY_PAGES(width), {
    buffers: { key_pages: keyPages, value_pages: valuePages, pairs },
    params: { length: pageLength / width },
    workgroups: [Math.ceil(pageLength / width / THREADS), count],
  });
}
