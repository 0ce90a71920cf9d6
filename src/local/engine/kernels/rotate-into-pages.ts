import type { Kernels, RotateIntoPages } from "./kernels.js";

/** `Kernels.rotateIntoPages` made of other operations. */
export function rotateOneByOne(kernels: Omit<Kernels, "rotateIntoPages">, operation: RotateIntoPages): void {
  const { query, keyPages, valuePages, slots, projected, rotation } = operation;
  const { queryNorm, keyNorm, angles, rows, heads, kvHeads, headDim, eps } = rotation;
  const width = kvHeads * headDim;
  const mark = kernels.mark();
  const rstd = queryNorm && kernels.scratch(rows * heads);
  const key = { data: kernels.scratch(rows * width), stride: width };
  // Spelled out twice: spreading a shared part would take longer than the operation when there is one row.
  kernels.normRope({
    out: query,
    rstd,
    x: projected.query,
    weight: queryNorm,
    angles,
    rows,
    heads,
    headDim,
    eps,
  });
  kernels.normRope({
    out: key,
    rstd,
    x: projected.key,
    weight: keyNorm,
    angles,
    rows,
    heads: kvHeads,
    headDim,
    eps,
  });
  kernels.scatterRows(keyPages, key, slots, rows, width);
  kernels.scatterRows(valuePages, projected.value, slots, rows, width);
  kernels.release(mark);
}
