export { PAGED_BLOCK, QUERY_BLOCK } from "./attention";
export { sumSquares } from "./elementwise";
export { GEMM_SCRATCH } from "./gemm";
export { expArray, logArray } from "./math";
export { Operation } from "./operations";
export { configure, run, stopWorkers, work, workerFailed } from "./pool";
