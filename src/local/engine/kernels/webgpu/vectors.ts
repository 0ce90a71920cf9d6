import type { F32 } from "../kernels.js";

/** Values that a thread handles at a time. */
export type Width = 1 | 4;

/** Beyond these, computing takes longer than preparing. */
const MAX_ROUNDED_ROWS = 256;

/** Rows to make room for, where a few more or fewer are to be served by the same bind groups. */
export const roomyRows = (rows: number) =>
  rows <= MAX_ROUNDED_ROWS ? 2 ** Math.ceil(Math.log2(rows)) : rows;

/** The type of so many values. */
export const valueType = (width: Width) => (width === 4 ? "vec4<f32>" : "f32");

/** Four where all handles begin at multiples of 16 bytes and all counts (row lengths, strides) are multiples of four. */
export function widthOf(handles: readonly F32[], ...counts: number[]): Width {
  const isAligned =
    handles.every(({ offset }) => offset % 16 === 0) && counts.every((count) => count % 4 === 0);
  return isAligned ? 4 : 1;
}

/** In front of code that is the same for both widths: `Value`, and `total` of what is in one. */
export const valueCode = (width: Width) => /* wgsl */ `
alias Value = ${valueType(width)};
fn total(v: Value) -> f32 { return ${width === 4 ? "(v.x + v.y) + (v.z + v.w)" : "v"}; }`;
