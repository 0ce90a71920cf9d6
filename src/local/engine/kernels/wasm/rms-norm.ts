// RMSNorm over rows. Sums run in four lanes by index modulo 4, so they are the same for every caller.
import { RMS_NORM, RMS_NORM_BACKWARD, RMS_NORM_WEIGHT } from "./operations";
import { dispatch, float, pointer, setFloat, setPointer } from "./pool";
import { loadPartial, storePartial, sumLanes } from "./vector";

const ROWS: usize = 16;
const COLUMNS: usize = 64;

/** 1 / sqrt(mean(x^2) + eps) */
export function inverseRms(x: usize, n: usize, eps: f32): f32 {
  let s0 = f32x4.splat(0);
  let s1 = f32x4.splat(0);
  const pairs = (n & ~7) << 2;
  let i: usize = 0;
  for (; i < pairs; i += 32) {
    const a = v128.load(x + i);
    const b = v128.load(x + i, 16);
    s0 = f32x4.add(s0, f32x4.mul(a, a));
    s1 = f32x4.add(s1, f32x4.mul(b, b));
  }
  if ((n & 4) != 0) {
    const a = v128.load(x + i);
    s0 = f32x4.add(s0, f32x4.mul(a, a));
    i += 16;
  }
  if ((n & 3) != 0) {
    const a = loadPartial(x + i, n & 3);
    s1 = f32x4.add(s1, f32x4.mul(a, a));
  }
  return 1 / sqrt<f32>(sumLanes(f32x4.add(s0, s1)) / <f32>n + eps);
}

/** mean over i of dout[i] * weight[i] * x[i] * rstd */
export function normDot(dout: usize, x: usize, weight: usize, rstd: f32, n: usize): f32 {
  let s = f32x4.splat(0);
  const r = f32x4.splat(rstd);
  const whole = (n & ~3) << 2;
  for (let i: usize = 0; i < whole; i += 16) {
    const d = f32x4.mul(v128.load(dout + i), v128.load(weight + i));
    s = f32x4.add(s, f32x4.mul(d, f32x4.mul(v128.load(x + i), r)));
  }
  const rest = n & 3;
  if (rest > 0) {
    const d = f32x4.mul(loadPartial(dout + whole, rest), loadPartial(weight + whole, rest));
    s = f32x4.add(s, f32x4.mul(d, f32x4.mul(loadPartial(x + whole, rest), r)));
  }
  return sumLanes(s) / <f32>n;
}

/** rstd * (dout * weight - x * rstd * mean) */
// @ts-ignore: decorator
@inline
export function normStep(dout: v128, x: v128, weight: v128, rstd: v128, mean: v128): v128 {
  return f32x4.mul(rstd, f32x4.sub(f32x4.mul(dout, weight), f32x4.mul(f32x4.mul(x, rstd), mean)));
}

export function rmsNorm(out: usize, rstd: usize, x: usize, weight: usize, rows: usize, cols: usize, eps: f32): void {
  setPointer(0, out);
  setPointer(1, rstd);
  setPointer(2, x);
  setPointer(3, weight);
  setPointer(4, rows);
  setPointer(5, cols);
  setFloat(6, eps);
  dispatch(RMS_NORM, (rows + ROWS - 1) / ROWS, 1.5 * <f64>rows * <f64>cols);
}

export function rmsNormChunk(chunk: usize): void {
  const cols = pointer(5);
  const weight = pointer(3);
  const whole = (cols & ~3) << 2;
  const rest = cols & 3;
  const end = min<usize>((chunk + 1) * ROWS, pointer(4));
  for (let row = chunk * ROWS; row < end; row++) {
    const x = pointer(2) + row * cols * 4;
    const out = pointer(0) + row * cols * 4;
    const value = inverseRms(x, cols, float(6));
    store<f32>(pointer(1) + (row << 2), value);
    const r = f32x4.splat(value);
    for (let i: usize = 0; i < whole; i += 16) {
      v128.store(out + i, f32x4.mul(f32x4.mul(v128.load(x + i), r), v128.load(weight + i)));
    }
    if (rest > 0) {
      const y = f32x4.mul(f32x4.mul(loadPartial(x + whole, rest), r), loadPartial(weight + whole, rest));
      storePartial(out + whole, y, rest);
    }
  }
}

/** `dweight` 0: not wanted. */
export function rmsNormBackward(dx: usize, dweight: usize, dout: usize, x: usize, rstd: usize, weight: usize, rows: usize, cols: usize): void {
  setPointer(0, dx);
  setPointer(1, rstd);
  setPointer(2, x);
  setPointer(3, weight);
  setPointer(4, rows);
  setPointer(5, cols);
  setPointer(6, dout);
  setPointer(7, dweight);
  dispatch(RMS_NORM_BACKWARD, (rows + ROWS - 1) / ROWS, 3 * <f64>rows * <f64>cols);
  if (dweight != 0) dispatch(RMS_NORM_WEIGHT, (cols + COLUMNS - 1) / COLUMNS, <f64>rows * <f64>cols);
}

export function rmsNormBackwardChunk(chunk: usize): void {
  const cols = pointer(5);
  const weight = pointer(3);
  const whole = (cols & ~3) << 2;
  const rest = cols & 3;
  const end = min<usize>((chunk + 1) * ROWS, pointer(4));
  for (let row = chunk * ROWS; row < end; row++) {
    const at = row * cols * 4;
    const x = pointer(2) + at;
    const dx = pointer(0) + at;
    const dout = pointer(6) + at;
    const value = load<f32>(pointer(1) + (row << 2));
    const r = f32x4.splat(value);
    const mean = f32x4.splat(normDot(dout, x, weight, value, cols));
    for (let i: usize = 0; i < whole; i += 16) {
      const step = normStep(v128.load(dout + i), v128.load(x + i), v128.load(weight + i), r, mean);
      v128.store(dx + i, f32x4.add(v128.load(dx + i), step));
    }
    if (rest > 0) {
      const d = loadPartial(dout + whole, rest);
      const step = normStep(d, loadPartial(x + whole, rest), loadPartial(weight + whole, rest), r, mean);
      storePartial(dx + whole, f32x4.add(loadPartial(dx + whole, rest), step), rest);
    }
  }
}

/** Cut by columns, so that rows are added in order whoever does it. */
export function rmsNormWeightChunk(chunk: usize): void {
  const cols = pointer(5);
  const start = chunk * COLUMNS;
  const n = min<usize>(COLUMNS, cols - start);
  const whole = (n & ~3) << 2;
  const rest = n & 3;
  const rows = pointer(4);
  const dweight = pointer(7) + (start << 2);
  for (let row: usize = 0; row < rows; row++) {
    const at = (row * cols + start) << 2;
    const x = pointer(2) + at;
    const dout = pointer(6) + at;
    const r = v128.load_splat<f32>(pointer(1) + (row << 2));
    for (let i: usize = 0; i < whole; i += 16) {
      const product = f32x4.mul(v128.load(dout + i), f32x4.mul(v128.load(x + i), r));
      v128.store(dweight + i, f32x4.add(v128.load(dweight + i), product));
    }
    if (rest > 0) {
      const product = f32x4.mul(loadPartial(dout + whole, rest), f32x4.mul(loadPartial(x + whole, rest), r));
      storePartial(dweight + whole, f32x4.add(loadPartial(dweight + whole, rest), product), rest);
    }
  }
}
