// Per head: RMSNorm (optional), then rotary embedding in the half-split layout; and its backward pass.
import { NORM_ROPE, NORM_ROPE_BACKWARD, NORM_ROPE_WEIGHT } from "./operations";
import { dispatch, float, pointer, scratch, setFloat, setPointer } from "./pool";
import { inverseRms, normDot, normStep } from "./rms-norm";
import { loadPartial, storePartial } from "./vector";

const ROWS: usize = 16;

// @ts-ignore: decorator
@inline
function fetch(at: usize, rest: usize): v128 {
  return rest >= 4 ? v128.load(at) : loadPartial(at, rest);
}

// @ts-ignore: decorator
@inline
function put(at: usize, value: v128, rest: usize): void {
  if (rest >= 4) v128.store(at, value);
  else storePartial(at, value, rest);
}

/** Strides in bytes; `rstd` and `weight` 0: no norm. */
export function normRope(out: usize, outStride: usize, rstd: usize, x: usize, xStride: usize, weight: usize, cos: usize, sin: usize, positions: usize, rows: usize, heads: usize, headDim: usize, eps: f32): void {
  setPointer(0, out);
  setPointer(1, outStride);
  setPointer(2, rstd);
  setPointer(3, x);
  setPointer(4, xStride);
  setPointer(5, weight);
  setPointer(6, cos);
  setPointer(7, sin);
  setPointer(8, positions);
  setPointer(9, rows);
  setPointer(10, heads);
  setPointer(11, headDim);
  setFloat(12, eps);
  dispatch(NORM_ROPE, (rows + ROWS - 1) / ROWS, 3 * <f64>rows * <f64>(heads * headDim));
}

export function normRopeChunk(chunk: usize): void {
  const heads = pointer(10);
  const headDim = pointer(11);
  const half = headDim >> 1;
  const halfBytes = half << 2;
  const weight = pointer(5);
  const end = min<usize>((chunk + 1) * ROWS, pointer(9));
  for (let row = chunk * ROWS; row < end; row++) {
    const position = load<usize>(pointer(8) + (row << 2));
    const cos = pointer(6) + position * halfBytes;
    const sin = pointer(7) + position * halfBytes;
    for (let head: usize = 0; head < heads; head++) {
      const x = pointer(3) + row * pointer(4) + head * headDim * 4;
      const out = pointer(0) + row * pointer(1) + head * headDim * 4;
      let r = f32x4.splat(1);
      if (weight != 0) {
        const value = inverseRms(x, headDim, float(12));
        store<f32>(pointer(2) + ((row * heads + head) << 2), value);
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
        put(out + at, f32x4.sub(f32x4.mul(a, c), f32x4.mul(b, s)), rest);
        put(out + halfBytes + at, f32x4.add(f32x4.mul(b, c), f32x4.mul(a, s)), rest);
      }
    }
  }
}

export function normRopeBackward(dx: usize, dxStride: usize, dweight: usize, dout: usize, doutStride: usize, x: usize, xStride: usize, rstd: usize, weight: usize, cos: usize, sin: usize, positions: usize, rows: usize, heads: usize, headDim: usize): void {
  setPointer(0, dx);
  setPointer(1, dxStride);
  setPointer(2, rstd);
  setPointer(3, x);
  setPointer(4, xStride);
  setPointer(5, weight);
  setPointer(6, cos);
  setPointer(7, sin);
  setPointer(8, positions);
  setPointer(9, rows);
  setPointer(10, heads);
  setPointer(11, headDim);
  setPointer(12, dout);
  setPointer(13, doutStride);
  setPointer(14, dweight);
  dispatch(NORM_ROPE_BACKWARD, (rows + ROWS - 1) / ROWS, 4 * <f64>rows * <f64>(heads * headDim));
  if (dweight != 0 && weight != 0) {
    dispatch(NORM_ROPE_WEIGHT, (headDim / 2 + 3) / 4, 2 * <f64>rows * <f64>(heads * headDim));
  }
}

export function normRopeBackwardChunk(chunk: usize): void {
  const heads = pointer(10);
  const headDim = pointer(11);
  const half = headDim >> 1;
  const halfBytes = half << 2;
  const weight = pointer(5);
  const end = min<usize>((chunk + 1) * ROWS, pointer(9));
  for (let row = chunk * ROWS; row < end; row++) {
    const position = load<usize>(pointer(8) + (row << 2));
    const cos = pointer(6) + position * halfBytes;
    const sin = pointer(7) + position * halfBytes;
    for (let head: usize = 0; head < heads; head++) {
      const dout = pointer(12) + row * pointer(13) + head * headDim * 4;
      const dx = pointer(0) + row * pointer(1) + head * headDim * 4;
      const dy = weight != 0 ? scratch() : dx;
      for (let i: usize = 0; i < half; i += 4) {
        const rest = half - i;
        const at = i << 2;
        const a = fetch(dout + at, rest);
        const b = fetch(dout + halfBytes + at, rest);
        const c = fetch(cos + at, rest);
        const s = fetch(sin + at, rest);
        put(dy + at, f32x4.add(f32x4.mul(a, c), f32x4.mul(b, s)), rest);
        put(dy + halfBytes + at, f32x4.sub(f32x4.mul(b, c), f32x4.mul(a, s)), rest);
      }
      if (weight != 0) {
        const x = pointer(3) + row * pointer(4) + head * headDim * 4;
        const value = load<f32>(pointer(2) + ((row * heads + head) << 2));
        const r = f32x4.splat(value);
        const mean = f32x4.splat(normDot(dy, x, weight, value, headDim));
        for (let i: usize = 0; i < headDim; i += 4) {
          const rest = headDim - i;
          const at = i << 2;
          put(dx + at, normStep(fetch(dy + at, rest), fetch(x + at, rest), fetch(weight + at, rest), r, mean), rest);
        }
      }
    }
  }
}

/** Four columns and their partners per chunk: rows and heads are added in order whoever does it. */
export function normRopeWeightChunk(chunk: usize): void {
  const rows = pointer(9);
  const heads = pointer(10);
  const headDim = pointer(11);
  const half = headDim >> 1;
  const halfBytes = half << 2;
  const rest = half - chunk * 4;
  const at = chunk << 4;
  const dweight = pointer(14);
  let low = fetch(dweight + at, rest);
  let high = fetch(dweight + halfBytes + at, rest);
  for (let row: usize = 0; row < rows; row++) {
    const position = load<usize>(pointer(8) + (row << 2));
    const c = fetch(pointer(6) + position * halfBytes + at, rest);
    const s = fetch(pointer(7) + position * halfBytes + at, rest);
    for (let head: usize = 0; head < heads; head++) {
      const dout = pointer(12) + row * pointer(13) + head * headDim * 4 + at;
      const x = pointer(3) + row * pointer(4) + head * headDim * 4 + at;
      const r = v128.load_splat<f32>(pointer(2) + ((row * heads + head) << 2));
      const a = fetch(dout, rest);
      const b = fetch(dout + halfBytes, rest);
      const da = f32x4.add(f32x4.mul(a, c), f32x4.mul(b, s));
      const db = f32x4.sub(f32x4.mul(b, c), f32x4.mul(a, s));
      low = f32x4.add(low, f32x4.mul(da, f32x4.mul(fetch(x, rest), r)));
      high = f32x4.add(high, f32x4.mul(db, f32x4.mul(fetch(x + halfBytes, rest), r)));
    }
  }
  put(dweight + at, low, rest);
  put(dweight + halfBytes + at, high, rest);
}
