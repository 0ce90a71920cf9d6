import type { Frozen } from "./kernels.js";

/** As in wasm/gemm.ts: steps of k in a block, and columns of a panel. */
const BLOCK_STEPS = 256;
const PANEL_COLUMNS = 8;

/**
 * Where products find a frozen matrix: for every 256 inputs, panels of 8 outputs, in which the 8 weights of an input are
 * neighbours; behind all of them the outputs left over, input by input. The weights of an output for one block of inputs
 * are `step` apart from each other, and the first of them is `at`.
 */
function blockOf({ inputs, outputs }: Frozen, output: number, input: number) {
  const end = Math.min(inputs, input + BLOCK_STEPS);
  const rest = outputs % PANEL_COLUMNS;
  const whole = outputs - rest;
  if (output >= whole) return { end, at: whole * inputs + input * rest + output - whole, step: rest };
  const lane = output % PANEL_COLUMNS;
  return { end, at: input * whole + (output - lane) * (end - input) + lane, step: PANEL_COLUMNS };
}

/** Puts the weights of one output into their places of `panels`, the whole matrix. */
export function writePanels(
  panels: Float32Array,
  matrix: Frozen,
  output: number,
  weights: Float32Array,
): void {
  for (let input = 0; input < matrix.inputs; ) {
    const { end, at, step } = blockOf(matrix, output, input);
    for (let place = at; input < end; input++, place += step) panels[place] = weights[input]!;
  }
}

/** The weights of one output, one after another. */
export function readPanels(
  weights: Float32Array,
  panels: Float32Array,
  matrix: Frozen,
  output: number,
): void {
  for (let input = 0; input < matrix.inputs; ) {
    const { end, at, step } = blockOf(matrix, output, input);
    for (let place = at; input < end; input++, place += step) weights[input] = panels[place]!;
  }
}
