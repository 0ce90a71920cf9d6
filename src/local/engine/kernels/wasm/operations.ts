// The table of operations: threads know one by its number, the host by its name. `WasmOperations` in wasm-kernels.ts lists the
// parameters of each; its source reads them by their places, `pointer(0)` the first.
import { attention, attentionBackward, attentionPaged } from "./attention";
import { adamw, add, addScaled, copy, scale, swiglu, swigluBackward, zero } from "./elementwise";
import { matmul } from "./gemm";
import { normRope, normRopeBackward, normRopeWeight } from "./norm-rope";
import { rmsNorm, rmsNormBackward, rmsNormWeight } from "./rms-norm";
import { gatherRows, scatterAddRows, scatterRows } from "./rows";
import { logitsGradient, logSoftmaxGather } from "./vocabulary";

export enum Operation {
  matmul,
  rmsNorm, rmsNormBackward, rmsNormWeight,
  normRope, normRopeBackward, normRopeWeight,
  swiglu, swigluBackward,
  gatherRows, scatterRows, scatterAddRows,
  attention, attentionBackward, attentionPaged,
  logSoftmaxGather, logitsGradient,
  zero, copy, add, addScaled, scale, adamw,
}

/** Computes the items from `start` to `end`: rows, columns, elements or blocks, as each operation is cut. */
export function compute(operation: Operation, start: usize, end: usize): void {
  switch (operation) {
    case Operation.matmul: return matmul(start);
    case Operation.rmsNorm: return rmsNorm(start, end);
    case Operation.rmsNormBackward: return rmsNormBackward(start, end);
    case Operation.rmsNormWeight: return rmsNormWeight(start, end);
    case Operation.normRope: return normRope(start, end);
    case Operation.normRopeBackward: return normRopeBackward(start, end);
    case Operation.normRopeWeight: return normRopeWeight(start);
    case Operation.swiglu: return swiglu(start, end);
    case Operation.swigluBackward: return swigluBackward(start, end);
    case Operation.gatherRows: return gatherRows(start, end);
    case Operation.scatterRows: return scatterRows(start, end);
    case Operation.scatterAddRows: return scatterAddRows(start, end);
    case Operation.attention: return attention(start);
    case Operation.attentionBackward: return attentionBackward(start);
    case Operation.attentionPaged: return attentionPaged(start);
    case Operation.logSoftmaxGather: return logSoftmaxGather(start, end);
    case Operation.logitsGradient: return logitsGradient(start, end);
    case Operation.zero: return zero(start, end);
    case Operation.copy: return copy(start, end);
    case Operation.add: return add(start, end);
    case Operation.addScaled: return addScaled(start, end);
    case Operation.scale: return scale(start, end);
    case Operation.adamw: return adamw(start, end);
    default: unreachable();
  }
}
