// The table of parallel operations: a worker knows a job by its number.
import { attentionBackwardChunk, attentionChunk, attentionPagedChunk } from "./attention";
import { adamwChunk, addChunk, addScaledChunk, copyChunk, scaleChunk, swigluBackwardChunk, swigluChunk, zeroChunk } from "./elementwise";
import { matmulChunk } from "./gemm";
import { normRopeBackwardChunk, normRopeChunk, normRopeWeightChunk } from "./norm-rope";
import { rmsNormBackwardChunk, rmsNormChunk, rmsNormWeightChunk } from "./rms-norm";
import { gatherRowsChunk, scatterAddRowsChunk, scatterRowsChunk } from "./rows";
import { logitsGradientChunk, logSoftmaxGatherChunk } from "./vocabulary";

export const MATMUL: u32 = 0;
export const RMS_NORM: u32 = 1;
export const RMS_NORM_BACKWARD: u32 = 2;
export const RMS_NORM_WEIGHT: u32 = 3;
export const NORM_ROPE: u32 = 4;
export const NORM_ROPE_BACKWARD: u32 = 5;
export const NORM_ROPE_WEIGHT: u32 = 6;
export const SWIGLU: u32 = 7;
export const SWIGLU_BACKWARD: u32 = 8;
export const GATHER_ROWS: u32 = 9;
export const SCATTER_ROWS: u32 = 10;
export const SCATTER_ADD_ROWS: u32 = 11;
export const ATTENTION: u32 = 12;
export const ATTENTION_BACKWARD: u32 = 13;
export const ATTENTION_PAGED: u32 = 14;
export const LOG_SOFTMAX_GATHER: u32 = 15;
export const LOGITS_GRADIENT: u32 = 16;
export const ZERO: u32 = 17;
export const COPY: u32 = 18;
export const ADD: u32 = 19;
export const ADD_SCALED: u32 = 20;
export const SCALE: u32 = 21;
export const ADAMW: u32 = 22;

export function runChunk(operation: u32, chunk: usize): void {
  switch (operation) {
    case MATMUL: return matmulChunk(chunk);
    case RMS_NORM: return rmsNormChunk(chunk);
    case RMS_NORM_BACKWARD: return rmsNormBackwardChunk(chunk);
    case RMS_NORM_WEIGHT: return rmsNormWeightChunk(chunk);
    case NORM_ROPE: return normRopeChunk(chunk);
    case NORM_ROPE_BACKWARD: return normRopeBackwardChunk(chunk);
    case NORM_ROPE_WEIGHT: return normRopeWeightChunk(chunk);
    case SWIGLU: return swigluChunk(chunk);
    case SWIGLU_BACKWARD: return swigluBackwardChunk(chunk);
    case GATHER_ROWS: return gatherRowsChunk(chunk);
    case SCATTER_ROWS: return scatterRowsChunk(chunk);
    case SCATTER_ADD_ROWS: return scatterAddRowsChunk(chunk);
    case ATTENTION: return attentionChunk(chunk);
    case ATTENTION_BACKWARD: return attentionBackwardChunk(chunk);
    case ATTENTION_PAGED: return attentionPagedChunk(chunk);
    case LOG_SOFTMAX_GATHER: return logSoftmaxGatherChunk(chunk);
    case LOGITS_GRADIENT: return logitsGradientChunk(chunk);
    case ZERO: return zeroChunk(chunk);
    case COPY: return copyChunk(chunk);
    case ADD: return addChunk(chunk);
    case ADD_SCALED: return addScaledChunk(chunk);
    case SCALE: return scaleChunk(chunk);
    case ADAMW: return adamwChunk(chunk);
    default: unreachable();
  }
}
