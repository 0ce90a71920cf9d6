export { attention, attentionBackward, attentionBackwardChunk, attentionChunk, attentionPaged, attentionPagedChunk, PAGED_BLOCK, QUERY_BLOCK } from "./attention";
export { adamw, adamwChunk, add, addChunk, addScaled, addScaledChunk, copy, copyChunk, scale, scaleChunk, sumSquares, swiglu, swigluBackward, swigluBackwardChunk, swigluChunk, zero, zeroChunk } from "./elementwise";
export { GEMM_SCRATCH, gemm, matmul, matmulChunk } from "./gemm";
export { expArray, logArray } from "./math";
export { normRope, normRopeBackward, normRopeBackwardChunk, normRopeChunk, normRopeWeightChunk } from "./norm-rope";
export { configure, stopWorkers, work, workerFailed } from "./pool";
export { rmsNorm, rmsNormBackward, rmsNormBackwardChunk, rmsNormChunk, rmsNormWeightChunk } from "./rms-norm";
export { gatherRows, gatherRowsChunk, scatterAddRows, scatterAddRowsChunk, scatterRows, scatterRowsChunk } from "./rows";
export { logitsGradient, logitsGradientChunk, logSoftmaxGather, logSoftmaxGatherChunk } from "./vocabulary";
