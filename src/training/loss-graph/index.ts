/** Custom losses as graphs of `torch.fx`: checked, run and differentiated without torch. */
export { combineDatumMetrics, type EvaluatedDatum, evaluateProgram, PassMeter } from "./evaluate.js";
export { compileLossGraph, type LossProgram, type ProgramInput } from "./program.js";
