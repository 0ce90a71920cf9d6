// Operations that treat every element alike; chunks are ranges of elements (or of rows for SwiGLU).
import { exp4, one4 } from "./math";
import { float, pointer } from "./pool";
import { fetch, put } from "./vector";

export function zero(start: usize, end: usize): void {
  memory.fill(pointer(0) + (start << 2), 0, (end - start) << 2);
}

export function copy(start: usize, end: usize): void {
  memory.copy(pointer(0) + (start << 2), pointer(1) + (start << 2), (end - start) << 2);
}

// @ts-ignore: decorator
@inline
function addFour(out: usize, a: usize, b: usize, count: usize): void {
  put(out, f32x4.add(fetch(a, count), fetch(b, count)), count);
}

export function add(start: usize, end: usize): void {
  const out = pointer(0);
  const a = pointer(1);
  const b = pointer(2);
  const rest = (end - start) & 3;
  const whole = (end - rest) << 2;
  for (let i = start << 2; i < whole; i += 16) addFour(out + i, a + i, b + i, 4);
  if (rest > 0) addFour(out + whole, a + whole, b + whole, rest);
}

// @ts-ignore: decorator
@inline
function addScaledFour(y: usize, x: usize, factor: v128, count: usize): void {
  put(y, f32x4.add(fetch(y, count), f32x4.mul(factor, fetch(x, count))), count);
}

export function addScaled(start: usize, end: usize): void {
  const y = pointer(0);
  const x = pointer(1);
  const factor = f32x4.splat(float(0));
  const rest = (end - start) & 3;
  const whole = (end - rest) << 2;
  for (let i = start << 2; i < whole; i += 16) addScaledFour(y + i, x + i, factor, 4);
  if (rest > 0) addScaledFour(y + whole, x + whole, factor, rest);
}

// @ts-ignore: decorator
@inline
function scaleFour(x: usize, factor: v128, count: usize): void {
  put(x, f32x4.mul(factor, fetch(x, count)), count);
}

export function scale(start: usize, end: usize): void {
  const x = pointer(0);
  const factor = f32x4.splat(float(0));
  const rest = (end - start) & 3;
  const whole = (end - rest) << 2;
  for (let i = start << 2; i < whole; i += 16) scaleFour(x + i, factor, 4);
  if (rest > 0) scaleFour(x + whole, factor, rest);
}

/** Four float64 sums by index modulo 4, added as (s0 + s1) + (s2 + s3). */
export function sumSquares(x: usize, n: usize): f64 {
  let low = f64x2.splat(0);
  let high = f64x2.splat(0);
  const whole = (n & ~3) << 2;
  for (let i: usize = 0; i < whole; i += 16) {
    const value = v128.load(x + i);
    const a = f64x2.promote_low_f32x4(value);
    const b = f64x2.promote_low_f32x4(v128.shuffle<f32>(value, value, 2, 3, 2, 3));
    low = f64x2.add(low, f64x2.mul(a, a));
    high = f64x2.add(high, f64x2.mul(b, b));
  }
  let s0 = f64x2.extract_lane(low, 0);
  let s1 = f64x2.extract_lane(low, 1);
  let s2 = f64x2.extract_lane(high, 0);
  const s3 = f64x2.extract_lane(high, 1);
  const rest = n & 3;
  if (rest > 0) s0 += square(x + whole);
  if (rest > 1) s1 += square(x + whole + 4);
  if (rest > 2) s2 += square(x + whole + 8);
  return s0 + s1 + (s2 + s3);
}

// @ts-ignore: decorator
@inline
function square(at: usize): f64 {
  const value = <f64>load<f32>(at);
  return value * value;
}

/** One step; floats: decay, 1 - beta1, beta2, 1 - beta2, step size, root of correction 2, eps, factor of the gradient. */
// @ts-ignore: decorator
@inline
function adamFour(weights: usize, grad: usize, first: usize, second: usize, count: usize): void {
  const g = f32x4.mul(fetch(grad, count), f32x4.splat(float(7)));
  const oldM = fetch(first, count);
  const m = f32x4.add(oldM, f32x4.mul(f32x4.sub(g, oldM), f32x4.splat(float(1))));
  const oldV = fetch(second, count);
  const v = f32x4.add(f32x4.mul(oldV, f32x4.splat(float(2))), f32x4.mul(f32x4.mul(g, g), f32x4.splat(float(3))));
  put(first, m, count);
  put(second, v, count);
  const root = f32x4.div(f32x4.sqrt(v), f32x4.splat(float(5)));
  const update = f32x4.div(m, f32x4.add(root, f32x4.splat(float(6))));
  const kept = f32x4.mul(fetch(weights, count), f32x4.splat(float(0)));
  put(weights, f32x4.sub(kept, f32x4.mul(f32x4.splat(float(4)), update)), count);
}

export function adamw(start: usize, end: usize): void {
  const weights = pointer(0);
  const grad = pointer(1);
  const first = pointer(2);
  const second = pointer(3);
  const rest = (end - start) & 3;
  const whole = (end - rest) << 2;
  for (let i = start << 2; i < whole; i += 16) adamFour(weights + i, grad + i, first + i, second + i, 4);
  if (rest > 0) adamFour(weights + whole, grad + whole, first + whole, second + whole, rest);
}

// @ts-ignore: decorator
@inline
function sigmoid(x: v128): v128 {
  const one = one4();
  return f32x4.div(one, f32x4.add(one, exp4(f32x4.neg(x))));
}

// @ts-ignore: decorator
@inline
function swigluFour(out: usize, gate: usize, up: usize, count: usize): void {
  const g = fetch(gate, count);
  put(out, f32x4.mul(f32x4.mul(g, sigmoid(g)), fetch(up, count)), count);
}

export function swiglu(start: usize, end: usize): void {
  const bytes = pointer(2) << 2;
  const whole = bytes & ~15;
  const rest = pointer(2) & 3;
  for (let row = start; row < end; row++) {
    const out = pointer(0) + row * bytes;
    const gate = pointer(1) + row * bytes * 2;
    const up = gate + bytes;
    for (let i: usize = 0; i < whole; i += 16) swigluFour(out + i, gate + i, up + i, 4);
    if (rest > 0) swigluFour(out + whole, gate + whole, up + whole, rest);
  }
}

// @ts-ignore: decorator
@inline
function swigluBackwardFour(dgate: usize, dup: usize, gate: usize, up: usize, dout: usize, count: usize): void {
  const g = fetch(gate, count);
  const d = fetch(dout, count);
  const s = sigmoid(g);
  const one = one4();
  const slope = f32x4.mul(s, f32x4.add(one, f32x4.mul(g, f32x4.sub(one, s))));
  put(dup, f32x4.mul(d, f32x4.mul(g, s)), count);
  put(dgate, f32x4.mul(f32x4.mul(d, fetch(up, count)), slope), count);
}

export function swigluBackward(start: usize, end: usize): void {
  const bytes = pointer(2) << 2;
  const whole = bytes & ~15;
  const rest = pointer(2) & 3;
  for (let row = start; row < end; row++) {
    const dgate = pointer(0) + row * bytes * 2;
    const dup = dgate + bytes;
    const gate = pointer(1) + row * bytes * 2;
    const up = gate + bytes;
    const dout = pointer(3) + row * bytes;
    for (let i: usize = 0; i < whole; i += 16) swigluBackwardFour(dgate + i, dup + i, gate + i, up + i, dout + i, 4);
    if (rest > 0) swigluBackwardFour(dgate + whole, dup + whole, gate + whole, up + whole, dout + whole, rest);
  }
}
