import type { Frozen } from "./kernels.js";

/** As in wasm/gemm.ts: steps of k in a block, and columns of a panel. */
const BLOCK_STEPS = 256;
const PANEL_COLUMNS = 8;

/**
 * Where products find a frozen matrix: for every 256 inputs, panels of 8 outputs, in which the 8 weights of an input are
 * neighbours; behind all of them the outputs left over, input by input. Calls `visit` for every run of an output's weights
 * with its first input, how many there are, where the first lies, and how far apart they are.
 */
function forEachRun(
  { inputs, outputs }: Frozen,
  output: number,
  visit: (input: number, count: number, at: number, step: number) => void,
): void {
  const rest = outputs % PANEL_COLUMNS;
  const whole = outputs - rest;
  if (output >= whole) {
    visit(0, inputs, whole * inputs + output - whole, rest);
    return;
  }
  const lane = output % PANEL_COLUMNS;
  for (let input = 0; input < inputs; input += BLOCK_STEPS) {
    const count = Math.min(BLOCK_STEPS, inputs - input);
    visit(input, count, input * whole + (output - lane) * count + lane, PANEL_COLUMNS);
  }
}

/** Puts the weights of one output into their places of `panels`, the whole matrix. */
export function writePanels(
  panels: Float32Array,
  matrix: Frozen,
  output: number,
  weights: Float32Array,
): void {
  forEachRun(matrix, output, (input, count, at, step) => {
    for (let i = 0; i < count; i++) panels[at + i * step] = weights[input + i]!;
  });
}

/** The weights of one output, one after another. */
export function readPanels(
  weights: Float32Array,
  panels: Float32Array,
  matrix: Frozen,
  output: number,
): void {
  forEachRun(matrix, output, (input, count, at, step) => {
    for (let i = 0; i < count; i++) weights[input + i] = panels[at + i * step]!;
  });
}
