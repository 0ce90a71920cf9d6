// Per head: RMSNorm (where there is a weight), then rotary embedding in the half-split layout; and its backward pass.
import { float, pointer, scratch } from "./pool";
import { inverseRms, normDot, normStep } from "./rms-norm";
import { fetch, put } from "./vector";

/** Element i of a head's first half after a turn by an angle; `back`: by its negative. */
// @ts-ignore: decorator
@inline
function turnedLow(a: v128, b: v128, cos: v128, sin: v128, back: bool): v128 {
  const turned = f32x4.mul(b, sin);
  return back ? f32x4.add(f32x4.mul(a, cos), turned) : f32x4.sub(f32x4.mul(a, cos), turned);
}

/** Its partner in the second half. */
// @ts-ignore: decorator
@inline
function turnedHigh(a: v128, b: v128, cos: v128, sin: v128, back: bool): v128 {
  const turned = f32x4.mul(a, sin);
  return back ? f32x4.sub(f32x4.mul(b, cos), turned) : f32x4.add(f32x4.mul(b, cos), turned);
}

/** Calls one of the two for every head of some rows. */
// @ts-ignore: decorator
@inline
function eachHead(start: usize, end: usize, back: bool): void {
  const heads = pointer(10);
  const headBytes = pointer(11) << 2;
  for (let row = start; row < end; row++) {
    const angle = load<usize>(pointer(8) + (row << 2)) * (headBytes >> 1);
    const cos = pointer(6) + angle;
    const sin = pointer(7) + angle;
    for (let head: usize = 0; head < heads; head++) {
      const out = pointer(0) + row * pointer(1) + head * headBytes;
      const rstd = pointer(2) + ((row * heads + head) << 2);
      const x = pointer(3) + row * pointer(4) + head * headBytes;
      if (back) headBackward(out, rstd, x, pointer(12) + row * pointer(13) + head * headBytes, cos, sin);
      else headForward(out, rstd, x, cos, sin);
    }
  }
}

export function normRope(start: usize, end: usize): void {
  eachHead(start, end, false);
}

export function normRopeBackward(start: usize, end: usize): void {
  eachHead(start, end, true);
}

// @ts-ignore: decorator
@inline
function headForward(out: usize, rstd: usize, x: usize, cos: usize, sin: usize): void {
  const headDim = pointer(11);
  const half = headDim >> 1;
  const halfBytes = half << 2;
  const weight = pointer(5);
  let r = f32x4.splat(1);
  if (weight != 0) {
    const value = inverseRms(x, headDim, float(0));
    store<f32>(rstd, value);
    r = f32x4.splat(value);
  }
  for (let i: usize = 0; i < half; i += 4) {
    const rest = half - i;
    const at = i << 2;
    let a = fetch(x + at, rest);
    let b = fetch(x + halfBytes + at, rest);
    if (weight != 0) {
      a = f32x4.mul(f32x4.mul(a, r), fetch(weight + at, rest));
      b = f32x4.mul(f32x4.mul(b, r), fetch(weight + halfBytes + at, rest));
    }
    const c = fetch(cos + at, rest);
    const s = fetch(sin + at, rest);
    put(out + at, turnedLow(a, b, c, s, false), rest);
    put(out + halfBytes + at, turnedHigh(a, b, c, s, false), rest);
  }
}

// @ts-ignore: decorator
@inline
function headBackward(dx: usize, rstd: usize, x: usize, dout: usize, cos: usize, sin: usize): void {
  const headDim = pointer(11);
  const half = headDim >> 1;
  const halfBytes = half << 2;
  const weight = pointer(5);
  const dy = weight != 0 ? scratch() : dx;
  for (let i: usize = 0; i < half; i += 4) {
    const rest = half - i;
    const at = i << 2;
    const a = fetch(dout + at, rest);
    const b = fetch(dout + halfBytes + at, rest);
    const c = fetch(cos + at, rest);
    const s = fetch(sin + at, rest);
    put(dy + at, turnedLow(a, b, c, s, true), rest);
    put(dy + halfBytes + at, turnedHigh(a, b, c, s, true), rest);
  }
  if (weight == 0) return;
  const value = load<f32>(rstd);
  const r = f32x4.splat(value);
  const mean = f32x4.splat(normDot(dy, x, weight, value, headDim));
  for (let i: usize = 0; i < headDim; i += 4) {
    const at = i << 2;
    put(dx + at, normStep(dy + at, x + at, weight + at, r, mean, headDim - i), headDim - i);
  }
}

/** Four columns and their partners per chunk: rows and heads are added in order on any number of threads. */
export function normRopeWeight(chunk: usize): void {
  const rows = pointer(9);
  const heads = pointer(10);
  const headBytes = pointer(11) << 2;
  const halfBytes = headBytes >> 1;
  const rest = (pointer(11) >> 1) - chunk * 4;
  const at = chunk << 4;
  const dweight = pointer(14);
  let low = fetch(dweight + at, rest);
  let high = fetch(dweight + halfBytes + at, rest);
  for (let row: usize = 0; row < rows; row++) {
    const angle = load<usize>(pointer(8) + (row << 2)) * halfBytes + at;
    const c = fetch(pointer(6) + angle, rest);
    const s = fetch(pointer(7) + angle, rest);
    for (let head: usize = 0; head < heads; head++) {
      const dout = pointer(12) + row * pointer(13) + head * headBytes + at;
      const x = pointer(3) + row * pointer(4) + head * headBytes + at;
      const r = v128.load_splat<f32>(pointer(2) + ((row * heads + head) << 2));
      const a = fetch(dout, rest);
      const b = fetch(dout + halfBytes, rest);
      low = f32x4.add(low, f32x4.mul(turnedLow(a, b, c, s, true), f32x4.mul(fetch(x, rest), r)));
      high = f32x4.add(high, f32x4.mul(turnedHigh(a, b, c, s, true), f32x4.mul(fetch(x + halfBytes, rest), r)));
    }
  }
  put(dweight + at, low, rest);
  put(dweight + halfBytes + at, high, rest);
}
