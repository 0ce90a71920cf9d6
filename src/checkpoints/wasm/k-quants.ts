// Scales and levels of K-quants, in float32. AssemblyScript: compiled by `npm run generate:kernels`.
// Four groups are fitted side by side, one in each lane: so each group's sums are taken in the order of llama.cpp's, and the
// bits are the same.

const VALUES_OF_Q4: i32 = 32;
const VALUES_OF_Q6: i32 = 16;

/** Values, weights, levels so far and levels that are tried, of four groups. */
const scratch = memory.data(4 * 32 * 16, 16);
const X = scratch;
const W = scratch + 512;
const L = scratch + 1024;
const T = scratch + 1536;

/** To the nearest integer, halves to even, and within the bounds. */
// @ts-ignore: a decorator of AssemblyScript
@inline
function level(value: v128, least: f32, most: f32): v128 {
  const magic = f32x4.splat(12582912);
  const whole = f32x4.sub(f32x4.add(value, magic), magic);
  return f32x4.min(f32x4.max(whole, f32x4.splat(least)), f32x4.splat(most));
}

/** Puts value i of four groups side by side. */
// @ts-ignore: a decorator of AssemblyScript
@inline
function interleave(values: usize, count: i32): void {
  const bytes = <usize>count << 2;
  for (let i: usize = 0; i < <usize>count; i++) {
    const at = values + (i << 2);
    let lanes = v128.load_splat<f32>(at);
    lanes = f32x4.replace_lane(lanes, 1, load<f32>(at + bytes));
    lanes = f32x4.replace_lane(lanes, 2, load<f32>(at + 2 * bytes));
    lanes = f32x4.replace_lane(lanes, 3, load<f32>(at + 3 * bytes));
    v128.store(X + (i << 4), lanes);
  }
}

/** Writes the levels of four groups as bytes, one group after the other. */
// @ts-ignore: a decorator of AssemblyScript
@inline
function storeLevels(levels: usize, count: i32): void {
  for (let i: usize = 0; i < <usize>count; i++) {
    const whole = i32x4.trunc_sat_f32x4_s(v128.load(L + (i << 4)));
    store<u8>(levels + i, i32x4.extract_lane(whole, 0));
    store<u8>(levels + <usize>count + i, i32x4.extract_lane(whole, 1));
    store<u8>(levels + <usize>(2 * count) + i, i32x4.extract_lane(whole, 2));
    store<u8>(levels + <usize>(3 * count) + i, i32x4.extract_lane(whole, 3));
  }
}

/** For groups of 32 values (a multiple of 4 groups): levels from 0 to 15, scales and offsets; `value = scale * level - offset`. */
export function fitQ4(values: usize, groups: i32, scales: usize, offsets: usize, levels: usize): void {
  const zero = f32x4.splat(0);
  for (let group = 0; group < groups; group += 4) {
    interleave(values + <usize>(group * VALUES_OF_Q4 * 4), VALUES_OF_Q4);
    let squares = zero;
    for (let i: usize = 0; i < 512; i += 16) {
      const x = v128.load(X + i);
      squares = f32x4.add(squares, f32x4.mul(x, x));
    }
    const typical = f32x4.sqrt(f32x4.div(squares, f32x4.splat(32)));
    let x = v128.load(X);
    let w = f32x4.add(typical, f32x4.abs(x));
    v128.store(W, w);
    let least = x;
    let most = x;
    let sumW = w;
    let sumX = f32x4.mul(w, x);
    for (let i: usize = 16; i < 512; i += 16) {
      x = v128.load(X + i);
      w = f32x4.add(typical, f32x4.abs(x));
      v128.store(W + i, w);
      least = f32x4.pmin(least, x);
      most = f32x4.pmax(most, x);
      sumW = f32x4.add(sumW, w);
      sumX = f32x4.add(sumX, f32x4.mul(w, x));
    }
    least = v128.bitselect(zero, least, f32x4.gt(least, zero));
    const isFlat = f32x4.eq(most, least);
    const inverse = f32x4.div(f32x4.splat(15), f32x4.sub(most, least));
    let scale = f32x4.div(f32x4.splat(1), inverse);
    let lowest = least;
    let best = zero;
    for (let i: usize = 0; i < 512; i += 16) {
      const x = v128.load(X + i);
      const l = level(f32x4.mul(inverse, f32x4.sub(x, least)), 0, 15);
      v128.store(L + i, l);
      const error = f32x4.sub(f32x4.add(f32x4.mul(scale, l), least), x);
      best = f32x4.add(best, f32x4.mul(v128.load(W + i), f32x4.mul(error, error)));
    }
    for (let attempt = 0; attempt <= 20; attempt++) {
      const steps: f32 = <f32>-1 + <f32>0.1 * <f32>attempt + <f32>15;
      // From the best offset so far, not from the least value.
      const stretched = f32x4.div(f32x4.splat(steps), f32x4.sub(most, lowest));
      let sumL = zero;
      let sumL2 = zero;
      let sumXL = zero;
      for (let i: usize = 0; i < 512; i += 16) {
        const x = v128.load(X + i);
        const l = level(f32x4.mul(stretched, f32x4.sub(x, lowest)), 0, 15);
        v128.store(T + i, l);
        const weighted = f32x4.mul(v128.load(W + i), l);
        sumL = f32x4.add(sumL, weighted);
        sumL2 = f32x4.add(sumL2, f32x4.mul(weighted, l));
        sumXL = f32x4.add(sumXL, f32x4.mul(weighted, x));
      }
      const determinant = f32x4.sub(f32x4.mul(sumW, sumL2), f32x4.mul(sumL, sumL));
      let newScale = f32x4.div(f32x4.sub(f32x4.mul(sumW, sumXL), f32x4.mul(sumX, sumL)), determinant);
      let newLeast = f32x4.div(f32x4.sub(f32x4.mul(sumL2, sumX), f32x4.mul(sumL, sumXL)), determinant);
      const isAbove = f32x4.gt(newLeast, zero);
      newLeast = v128.bitselect(zero, newLeast, isAbove);
      newScale = v128.bitselect(f32x4.div(sumXL, sumL2), newScale, isAbove);
      let sum = zero;
      for (let i: usize = 0; i < 512; i += 16) {
        const fitted = f32x4.add(f32x4.mul(newScale, v128.load(T + i)), newLeast);
        const error = f32x4.sub(fitted, v128.load(X + i));
        sum = f32x4.add(sum, f32x4.mul(v128.load(W + i), f32x4.mul(error, error)));
      }
      const isBetter = v128.and(f32x4.gt(determinant, zero), f32x4.lt(sum, best));
      if (!v128.any_true(isBetter)) continue;
      for (let i: usize = 0; i < 512; i += 16) {
        v128.store(L + i, v128.bitselect(v128.load(T + i), v128.load(L + i), isBetter));
      }
      best = v128.bitselect(sum, best, isBetter);
      scale = v128.bitselect(newScale, scale, isBetter);
      lowest = v128.bitselect(newLeast, lowest, isBetter);
    }
    const at = <usize>(group << 2);
    v128.store(scales + at, v128.bitselect(zero, scale, isFlat));
    v128.store(offsets + at, f32x4.neg(v128.bitselect(least, lowest, isFlat)));
    storeLevels(levels + <usize>(group * VALUES_OF_Q4), VALUES_OF_Q4);
  }
}

/** For groups of 16 values (a multiple of 4 groups): levels from -32 to 31, stored from 0, and scales. */
export function fitQ6(values: usize, groups: i32, scales: usize, levels: usize): void {
  const zero = f32x4.splat(0);
  const offset = f32x4.splat(32);
  for (let group = 0; group < groups; group += 4) {
    interleave(values + <usize>(group * VALUES_OF_Q6 * 4), VALUES_OF_Q6);
    let extreme = zero;
    let size = zero;
    for (let i: usize = 0; i < 256; i += 16) {
      const x = v128.load(X + i);
      const isFarther = f32x4.gt(f32x4.abs(x), size);
      size = v128.bitselect(f32x4.abs(x), size, isFarther);
      extreme = v128.bitselect(x, extreme, isFarther);
    }
    const isFlat = f32x4.lt(size, f32x4.splat(<f32>1e-15));
    let scale = zero;
    let best = zero;
    // The plain scale first, then those around it.
    for (let turn = 0; turn < 19; turn++) {
      const attempt = turn == 0 ? 0 : turn <= 9 ? turn - 10 : turn - 9;
      const steps: f32 = -(<f32>32 + <f32>0.1 * <f32>attempt);
      const inverse = f32x4.div(f32x4.splat(steps), extreme);
      let sumXL = zero;
      let sumL2 = zero;
      for (let i: usize = 0; i < 256; i += 16) {
        const x = v128.load(X + i);
        const l = level(f32x4.mul(inverse, x), -32, 31);
        v128.store(T + i, f32x4.add(l, offset));
        const weight = f32x4.mul(x, x);
        sumXL = f32x4.add(sumXL, f32x4.mul(f32x4.mul(weight, x), l));
        sumL2 = f32x4.add(sumL2, f32x4.mul(f32x4.mul(weight, l), l));
      }
      const isPositive = f32x4.gt(sumL2, zero);
      const isMore = f32x4.gt(f32x4.mul(sumXL, sumXL), f32x4.mul(best, sumL2));
      const isBetter = turn == 0 ? i32x4.splat(-1) : v128.and(isPositive, isMore);
      if (!v128.any_true(isBetter)) continue;
      for (let i: usize = 0; i < 256; i += 16) {
        v128.store(L + i, v128.bitselect(v128.load(T + i), v128.load(L + i), isBetter));
      }
      const newScale = v128.bitselect(f32x4.div(sumXL, sumL2), zero, isPositive);
      scale = v128.bitselect(newScale, scale, isBetter);
      best = v128.bitselect(f32x4.mul(newScale, sumXL), best, isBetter);
    }
    v128.store(scales + <usize>(group << 2), v128.bitselect(zero, scale, isFlat));
    if (v128.any_true(isFlat)) {
      for (let i: usize = 0; i < 256; i += 16) {
        v128.store(L + i, v128.bitselect(zero, v128.load(L + i), isFlat));
      }
    }
    storeLevels(levels + <usize>(group * VALUES_OF_Q6), VALUES_OF_Q6);
  }
}
