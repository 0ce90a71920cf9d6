// Rows copied to and from tables by index.
import { GATHER_ROWS, SCATTER_ADD_ROWS, SCATTER_ROWS } from "./operations";
import { dispatch, pointer, setPointer } from "./pool";
import { loadPartial, storePartial } from "./vector";

const ROWS: usize = 64;
/** Columns per chunk of `scatterAddRows`: cut by columns, so that rows are added in order whoever does it. */
const COLUMNS: usize = 64;

export function gatherRows(out: usize, table: usize, indices: usize, rows: usize, cols: usize): void {
  setPointer(0, out);
  setPointer(1, table);
  setPointer(2, indices);
  setPointer(3, rows);
  setPointer(4, cols);
  dispatch(GATHER_ROWS, (rows + ROWS - 1) / ROWS, 0.5 * <f64>rows * <f64>cols);
}

export function gatherRowsChunk(chunk: usize): void {
  const bytes = pointer(4) << 2;
  const end = min<usize>((chunk + 1) * ROWS, pointer(3));
  for (let row = chunk * ROWS; row < end; row++) {
    memory.copy(pointer(0) + row * bytes, pointer(1) + load<usize>(pointer(2) + (row << 2)) * bytes, bytes);
  }
}

export function scatterRows(table: usize, x: usize, stride: usize, indices: usize, rows: usize, cols: usize): void {
  setPointer(0, x);
  setPointer(1, table);
  setPointer(2, indices);
  setPointer(3, rows);
  setPointer(4, cols);
  setPointer(5, stride);
  dispatch(SCATTER_ROWS, (rows + ROWS - 1) / ROWS, 0.5 * <f64>rows * <f64>cols);
}

export function scatterRowsChunk(chunk: usize): void {
  const bytes = pointer(4) << 2;
  const end = min<usize>((chunk + 1) * ROWS, pointer(3));
  for (let row = chunk * ROWS; row < end; row++) {
    memory.copy(pointer(1) + load<usize>(pointer(2) + (row << 2)) * bytes, pointer(0) + row * pointer(5), bytes);
  }
}

export function scatterAddRows(table: usize, x: usize, indices: usize, rows: usize, cols: usize): void {
  setPointer(0, x);
  setPointer(1, table);
  setPointer(2, indices);
  setPointer(3, rows);
  setPointer(4, cols);
  dispatch(SCATTER_ADD_ROWS, (cols + COLUMNS - 1) / COLUMNS, <f64>rows * <f64>cols);
}

export function scatterAddRowsChunk(chunk: usize): void {
  const cols = pointer(4);
  const start = chunk * COLUMNS;
  const n = min<usize>(COLUMNS, cols - start);
  const whole = (n & ~3) << 2;
  const rest = n & 3;
  const rows = pointer(3);
  for (let row: usize = 0; row < rows; row++) {
    const to = pointer(1) + ((load<usize>(pointer(2) + (row << 2)) * cols + start) << 2);
    const from = pointer(0) + ((row * cols + start) << 2);
    for (let i: usize = 0; i < whole; i += 16) v128.store(to + i, f32x4.add(v128.load(to + i), v128.load(from + i)));
    if (rest > 0) {
      storePartial(to + whole, f32x4.add(loadPartial(to + whole, rest), loadPartial(from + whole, rest)), rest);
    }
  }
}
