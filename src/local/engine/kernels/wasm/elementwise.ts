// Operations that treat every element alike; chunks are ranges of elements (or of rows for SwiGLU).
import { exp4, one4 } from "./math";
import { ADAMW, ADD, ADD_SCALED, COPY, SCALE, SWIGLU, SWIGLU_BACKWARD, ZERO } from "./operations";
import { dispatch, float, pointer, setFloat, setPointer } from "./pool";
import { loadPartial, storePartial } from "./vector";

/** Elements per chunk. */
const SPAN: usize = 16384;
const SWIGLU_ROWS: usize = 8;

// @ts-ignore: decorator
@inline
function spans(n: usize): usize {
  return (n + SPAN - 1) / SPAN;
}

// @ts-ignore: decorator
@inline
function spanLength(chunk: usize, n: usize): usize {
  return min<usize>(SPAN, n - chunk * SPAN);
}

export function zero(x: usize, n: usize): void {
  setPointer(0, x);
  setPointer(1, n);
  dispatch(ZERO, spans(n), 0.3 * <f64>n);
}

export function zeroChunk(chunk: usize): void {
  memory.fill(pointer(0) + chunk * SPAN * 4, 0, spanLength(chunk, pointer(1)) << 2);
}

export function copy(out: usize, x: usize, n: usize): void {
  setPointer(0, x);
  setPointer(1, n);
  setPointer(2, out);
  dispatch(COPY, spans(n), 0.5 * <f64>n);
}

export function copyChunk(chunk: usize): void {
  const at = chunk * SPAN * 4;
  memory.copy(pointer(2) + at, pointer(0) + at, spanLength(chunk, pointer(1)) << 2);
}

export function add(out: usize, a: usize, b: usize, n: usize): void {
  setPointer(0, out);
  setPointer(1, n);
  setPointer(2, a);
  setPointer(3, b);
  dispatch(ADD, spans(n), <f64>n);
}

export function addChunk(chunk: usize): void {
  const at = chunk * SPAN * 4;
  const n = spanLength(chunk, pointer(1));
  const out = pointer(0) + at;
  const a = pointer(2) + at;
  const b = pointer(3) + at;
  const whole = (n & ~3) << 2;
  for (let i: usize = 0; i < whole; i += 16) v128.store(out + i, f32x4.add(v128.load(a + i), v128.load(b + i)));
  const rest = n & 3;
  if (rest > 0) storePartial(out + whole, f32x4.add(loadPartial(a + whole, rest), loadPartial(b + whole, rest)), rest);
}

export function addScaled(y: usize, x: usize, factor: f32, n: usize): void {
  setPointer(0, y);
  setPointer(1, n);
  setPointer(2, x);
  setFloat(3, factor);
  dispatch(ADD_SCALED, spans(n), <f64>n);
}

export function addScaledChunk(chunk: usize): void {
  const at = chunk * SPAN * 4;
  const n = spanLength(chunk, pointer(1));
  const y = pointer(0) + at;
  const x = pointer(2) + at;
  const factor = f32x4.splat(float(3));
  const whole = (n & ~3) << 2;
  for (let i: usize = 0; i < whole; i += 16) {
    v128.store(y + i, f32x4.add(v128.load(y + i), f32x4.mul(factor, v128.load(x + i))));
  }
  const rest = n & 3;
  if (rest > 0) {
    const sum = f32x4.add(loadPartial(y + whole, rest), f32x4.mul(factor, loadPartial(x + whole, rest)));
    storePartial(y + whole, sum, rest);
  }
}

export function scale(x: usize, factor: f32, n: usize): void {
  setPointer(0, x);
  setPointer(1, n);
  setFloat(2, factor);
  dispatch(SCALE, spans(n), 0.5 * <f64>n);
}

export function scaleChunk(chunk: usize): void {
  const n = spanLength(chunk, pointer(1));
  const x = pointer(0) + chunk * SPAN * 4;
  const factor = f32x4.splat(float(2));
  const whole = (n & ~3) << 2;
  for (let i: usize = 0; i < whole; i += 16) v128.store(x + i, f32x4.mul(factor, v128.load(x + i)));
  const rest = n & 3;
  if (rest > 0) storePartial(x + whole, f32x4.mul(factor, loadPartial(x + whole, rest)), rest);
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

export function adamw(weights: usize, grad: usize, first: usize, second: usize, n: usize, decay: f32, oneMinusBeta1: f32, beta2: f32, oneMinusBeta2: f32, stepSize: f32, rootCorrection2: f32, eps: f32, gradScale: f32): void {
  setPointer(0, weights);
  setPointer(1, n);
  setPointer(2, grad);
  setPointer(3, first);
  setPointer(4, second);
  setFloat(5, decay);
  setFloat(6, oneMinusBeta1);
  setFloat(7, beta2);
  setFloat(8, oneMinusBeta2);
  setFloat(9, stepSize);
  setFloat(10, rootCorrection2);
  setFloat(11, eps);
  setFloat(12, gradScale);
  dispatch(ADAMW, spans(n), 6 * <f64>n);
}

export function adamwChunk(chunk: usize): void {
  const at = chunk * SPAN * 4;
  const n = spanLength(chunk, pointer(1));
  const weights = pointer(0) + at;
  const grad = pointer(2) + at;
  const first = pointer(3) + at;
  const second = pointer(4) + at;
  const whole = (n & ~3) << 2;
  for (let i: usize = 0; i < whole; i += 16) {
    const m = adamFirst(v128.load(grad + i), v128.load(first + i));
    const v = adamSecond(v128.load(grad + i), v128.load(second + i));
    v128.store(first + i, m);
    v128.store(second + i, v);
    v128.store(weights + i, adamWeights(v128.load(weights + i), m, v));
  }
  const rest = n & 3;
  if (rest > 0) {
    const g = loadPartial(grad + whole, rest);
    const m = adamFirst(g, loadPartial(first + whole, rest));
    const v = adamSecond(g, loadPartial(second + whole, rest));
    storePartial(first + whole, m, rest);
    storePartial(second + whole, v, rest);
    storePartial(weights + whole, adamWeights(loadPartial(weights + whole, rest), m, v), rest);
  }
}

// @ts-ignore: decorator
@inline
function adamFirst(grad: v128, m: v128): v128 {
  const g = f32x4.mul(grad, f32x4.splat(float(12)));
  return f32x4.add(m, f32x4.mul(f32x4.sub(g, m), f32x4.splat(float(6))));
}

// @ts-ignore: decorator
@inline
function adamSecond(grad: v128, v: v128): v128 {
  const g = f32x4.mul(grad, f32x4.splat(float(12)));
  return f32x4.add(f32x4.mul(v, f32x4.splat(float(7))), f32x4.mul(f32x4.mul(g, g), f32x4.splat(float(8))));
}

// @ts-ignore: decorator
@inline
function adamWeights(w: v128, m: v128, v: v128): v128 {
  const root = f32x4.div(f32x4.sqrt(v), f32x4.splat(float(10)));
  const update = f32x4.div(m, f32x4.add(root, f32x4.splat(float(11))));
  return f32x4.sub(f32x4.mul(w, f32x4.splat(float(5))), f32x4.mul(f32x4.splat(float(9)), update));
}

// @ts-ignore: decorator
@inline
function sigmoid(x: v128): v128 {
  const one = one4();
  return f32x4.div(one, f32x4.add(one, exp4(f32x4.neg(x))));
}

export function swiglu(out: usize, gateUp: usize, rows: usize, cols: usize): void {
  setPointer(0, out);
  setPointer(1, gateUp);
  setPointer(2, rows);
  setPointer(3, cols);
  dispatch(SWIGLU, (rows + SWIGLU_ROWS - 1) / SWIGLU_ROWS, 6 * <f64>rows * <f64>cols);
}

export function swigluChunk(chunk: usize): void {
  const cols = pointer(3);
  const bytes = cols << 2;
  const whole = (cols & ~3) << 2;
  const rest = cols & 3;
  const end = min<usize>((chunk + 1) * SWIGLU_ROWS, pointer(2));
  for (let row = chunk * SWIGLU_ROWS; row < end; row++) {
    const out = pointer(0) + row * bytes;
    const gate = pointer(1) + row * bytes * 2;
    const up = gate + bytes;
    for (let i: usize = 0; i < whole; i += 16) {
      const g = v128.load(gate + i);
      v128.store(out + i, f32x4.mul(f32x4.mul(g, sigmoid(g)), v128.load(up + i)));
    }
    if (rest > 0) {
      const g = loadPartial(gate + whole, rest);
      storePartial(out + whole, f32x4.mul(f32x4.mul(g, sigmoid(g)), loadPartial(up + whole, rest)), rest);
    }
  }
}

export function swigluBackward(dgateUp: usize, dout: usize, gateUp: usize, rows: usize, cols: usize): void {
  setPointer(0, dgateUp);
  setPointer(1, gateUp);
  setPointer(2, rows);
  setPointer(3, cols);
  setPointer(4, dout);
  dispatch(SWIGLU_BACKWARD, (rows + SWIGLU_ROWS - 1) / SWIGLU_ROWS, 8 * <f64>rows * <f64>cols);
}

// @ts-ignore: decorator
@inline
function gateGradient(d: v128, g: v128, up: v128, s: v128): v128 {
  const one = one4();
  const slope = f32x4.mul(s, f32x4.add(one, f32x4.mul(g, f32x4.sub(one, s))));
  return f32x4.mul(f32x4.mul(d, up), slope);
}

export function swigluBackwardChunk(chunk: usize): void {
  const cols = pointer(3);
  const bytes = cols << 2;
  const whole = (cols & ~3) << 2;
  const rest = cols & 3;
  const end = min<usize>((chunk + 1) * SWIGLU_ROWS, pointer(2));
  for (let row = chunk * SWIGLU_ROWS; row < end; row++) {
    const dgate = pointer(0) + row * bytes * 2;
    const dup = dgate + bytes;
    const gate = pointer(1) + row * bytes * 2;
    const up = gate + bytes;
    const dout = pointer(4) + row * bytes;
    for (let i: usize = 0; i < whole; i += 16) {
      const g = v128.load(gate + i);
      const d = v128.load(dout + i);
      const s = sigmoid(g);
      v128.store(dup + i, f32x4.mul(d, f32x4.mul(g, s)));
      v128.store(dgate + i, gateGradient(d, g, v128.load(up + i), s));
    }
    if (rest > 0) {
      const g = loadPartial(gate + whole, rest);
      const d = loadPartial(dout + whole, rest);
      const u = loadPartial(up + whole, rest);
      const s = sigmoid(g);
      storePartial(dup + whole, f32x4.mul(d, f32x4.mul(g, s)), rest);
      storePartial(dgate + whole, gateGradient(d, g, u, s), rest);
    }
  }
}
