// RMSNorm over rows. Sums run in four lanes by index modulo 4, so they are the same for every caller.
import { float, pointer } from "./pool";
import { fetch, loadPartial, put, sumLanes } from "./vector";

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
  for (let i: usize = 0; i < whole; i += 16) s = f32x4.add(s, dotFour(dout + i, x + i, weight + i, r, 4));
  const rest = n & 3;
  if (rest > 0) s = f32x4.add(s, dotFour(dout + whole, x + whole, weight + whole, r, rest));
  return sumLanes(s) / <f32>n;
}

// @ts-ignore: decorator
@inline
function dotFour(dout: usize, x: usize, weight: usize, rstd: v128, count: usize): v128 {
  return f32x4.mul(f32x4.mul(fetch(dout, count), fetch(weight, count)), f32x4.mul(fetch(x, count), rstd));
}

/** rstd * (dout * weight - x * rstd * mean) */
// @ts-ignore: decorator
@inline
export function normStep(dout: usize, x: usize, weight: usize, rstd: v128, mean: v128, count: usize): v128 {
  const d = f32x4.mul(fetch(dout, count), fetch(weight, count));
  return f32x4.mul(rstd, f32x4.sub(d, f32x4.mul(f32x4.mul(fetch(x, count), rstd), mean)));
}

// @ts-ignore: decorator
@inline
function normFour(out: usize, x: usize, weight: usize, rstd: v128, count: usize): void {
  put(out, f32x4.mul(f32x4.mul(fetch(x, count), rstd), fetch(weight, count)), count);
}

export function rmsNorm(start: usize, end: usize): void {
  const cols = pointer(5);
  const weight = pointer(3);
  const whole = (cols & ~3) << 2;
  const rest = cols & 3;
  for (let row = start; row < end; row++) {
    const x = pointer(2) + row * cols * 4;
    const out = pointer(0) + row * cols * 4;
    const value = inverseRms(x, cols, float(0));
    store<f32>(pointer(1) + (row << 2), value);
    const r = f32x4.splat(value);
    for (let i: usize = 0; i < whole; i += 16) normFour(out + i, x + i, weight + i, r, 4);
    if (rest > 0) normFour(out + whole, x + whole, weight + whole, r, rest);
  }
}

// @ts-ignore: decorator
@inline
function addStep(dx: usize, dout: usize, x: usize, weight: usize, rstd: v128, mean: v128, count: usize): void {
  put(dx, f32x4.add(fetch(dx, count), normStep(dout, x, weight, rstd, mean, count)), count);
}

export function rmsNormBackward(start: usize, end: usize): void {
  const cols = pointer(5);
  const weight = pointer(3);
  const whole = (cols & ~3) << 2;
  const rest = cols & 3;
  for (let row = start; row < end; row++) {
    const at = row * cols * 4;
    const x = pointer(2) + at;
    const dx = pointer(0) + at;
    const dout = pointer(6) + at;
    const value = load<f32>(pointer(1) + (row << 2));
    const r = f32x4.splat(value);
    const mean = f32x4.splat(normDot(dout, x, weight, value, cols));
    for (let i: usize = 0; i < whole; i += 16) addStep(dx + i, dout + i, x + i, weight + i, r, mean, 4);
    if (rest > 0) addStep(dx + whole, dout + whole, x + whole, weight + whole, r, mean, rest);
  }
}

// @ts-ignore: decorator
@inline
function weightFour(dweight: usize, dout: usize, x: usize, rstd: v128, count: usize): void {
  const product = f32x4.mul(fetch(dout, count), f32x4.mul(fetch(x, count), rstd));
  put(dweight, f32x4.add(fetch(dweight, count), product), count);
}

/** Cut by columns, so that rows are added in order on any number of threads. */
export function rmsNormWeight(start: usize, end: usize): void {
  const cols = pointer(5);
  const rows = pointer(4);
  const dweight = pointer(7) + (start << 2);
  const whole = ((end - start) & ~3) << 2;
  const rest = (end - start) & 3;
  for (let row: usize = 0; row < rows; row++) {
    const at = (row * cols + start) << 2;
    const x = pointer(2) + at;
    const dout = pointer(6) + at;
    const r = v128.load_splat<f32>(pointer(1) + (row << 2));
    for (let i: usize = 0; i < whole; i += 16) weightFour(dweight + i, dout + i, x + i, r, 4);
    if (rest > 0) weightFour(dweight + whole, dout + whole, x + whole, r, rest);
  }
}
