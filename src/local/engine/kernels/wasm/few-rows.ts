// Products of so few rows that packing B would cost more than it saves: B is read where it lies.
import { fetch, loadPartial, madd, put, storePartial, zip32high, zip32low, zip64high, zip64low } from "./vector";

// @ts-ignore: decorator
@inline
function eightSteps(c: usize, y: usize, bk: usize, a0: v128, a1: v128, a2: v128, a3: v128, a4: v128, a5: v128, a6: v128, a7: v128, count: usize): void {
  const z = y + bk * 4;
  let s = madd(a0, fetch(y, count), fetch(c, count));
  s = madd(a1, fetch(y + bk, count), s);
  s = madd(a2, fetch(y + bk * 2, count), s);
  s = madd(a3, fetch(y + bk * 3, count), s);
  s = madd(a4, fetch(z, count), s);
  s = madd(a5, fetch(z + bk, count), s);
  s = madd(a6, fetch(z + bk * 2, count), s);
  s = madd(a7, fetch(z + bk * 3, count), s);
  put(c, s, count);
}

/**
 * One row, eight steps of k per pass over C: B's rows are read as eight straight streams, which large matrices need.
 */
function rowTimesColumns(c: usize, a: usize, ak: usize, b: usize, bk: usize, n: usize, k: usize): void {
  let l: usize = 0;
  const whole = n & ~3;
  const rest = n & 3;
  for (; l + 8 <= k; l += 8) {
    const a0 = v128.load_splat<f32>(a);
    const a1 = v128.load_splat<f32>(a + ak);
    const a2 = v128.load_splat<f32>(a + ak * 2);
    const a3 = v128.load_splat<f32>(a + ak * 3);
    const a4 = v128.load_splat<f32>(a + ak * 4);
    const a5 = v128.load_splat<f32>(a + ak * 5);
    const a6 = v128.load_splat<f32>(a + ak * 6);
    const a7 = v128.load_splat<f32>(a + ak * 7);
    let t = c;
    let y = b;
    for (let j: usize = 0; j < whole; j += 4) {
      eightSteps(t, y, bk, a0, a1, a2, a3, a4, a5, a6, a7, 4);
      t += 16;
      y += 16;
    }
    if (rest > 0) eightSteps(t, y, bk, a0, a1, a2, a3, a4, a5, a6, a7, rest);
    a += ak * 8;
    b += bk * 8;
  }
  for (; l < k; l++) {
    const factor = v128.load_splat<f32>(a);
    let t = c;
    let y = b;
    for (let j: usize = 0; j < whole; j += 4) {
      v128.store(t, madd(factor, v128.load(y), v128.load(t)));
      t += 16;
      y += 16;
    }
    if (rest > 0) storePartial(t, madd(factor, loadPartial(y, rest), loadPartial(t, rest)), rest);
    a += ak;
    b += bk;
  }
}

/** Four steps of k for four columns: the 4x4 block at r0..r3 is turned so that lanes are columns. */
// @ts-ignore: decorator
@inline
function fourSteps(s: v128, a0: v128, a1: v128, a2: v128, a3: v128, r: usize, bj: usize): v128 {
  const x0 = v128.load(r);
  const x1 = v128.load(r + bj);
  const x2 = v128.load(r + bj * 2);
  const x3 = v128.load(r + bj * 3);
  const y0 = zip32low(x0, x1);
  const y1 = zip32low(x2, x3);
  s = madd(a0, zip64low(y0, y1), s);
  s = madd(a1, zip64high(y0, y1), s);
  const y2 = zip32high(x0, x1);
  const y3 = zip32high(x2, x3);
  s = madd(a2, zip64low(y2, y3), s);
  return madd(a3, zip64high(y2, y3), s);
}

// @ts-ignore: decorator
@inline
function lanes4(p: usize, stride: usize): v128 {
  let x = v128.load32_zero(p);
  x = v128.load32_lane(p + stride, x, 1);
  x = v128.load32_lane(p + stride * 2, x, 2);
  return v128.load32_lane(p + stride * 3, x, 3);
}

/** 16 columns per turn of one row; k is contiguous in B, so 4x4 blocks are transposed in registers. */
function rowTimesRows(c: usize, a: usize, ak: usize, b: usize, bj: usize, n: usize, k: usize): void {
  let j: usize = 0;
  for (; j + 16 <= n; j += 16) {
    let s0 = v128.load(c);
    let s1 = v128.load(c, 16);
    let s2 = v128.load(c, 32);
    let s3 = v128.load(c, 48);
    let x = a;
    let y = b;
    const y1 = bj * 4;
    const y2 = bj * 8;
    const y3 = bj * 12;
    let l: usize = 0;
    for (; l + 4 <= k; l += 4) {
      const a0 = v128.load_splat<f32>(x);
      const a1 = v128.load_splat<f32>(x + ak);
      const a2 = v128.load_splat<f32>(x + ak * 2);
      const a3 = v128.load_splat<f32>(x + ak * 3);
      s0 = fourSteps(s0, a0, a1, a2, a3, y, bj);
      s1 = fourSteps(s1, a0, a1, a2, a3, y + y1, bj);
      s2 = fourSteps(s2, a0, a1, a2, a3, y + y2, bj);
      s3 = fourSteps(s3, a0, a1, a2, a3, y + y3, bj);
      x += ak * 4;
      y += 16;
    }
    for (; l < k; l++) {
      const factor = v128.load_splat<f32>(x);
      s0 = madd(factor, lanes4(y, bj), s0);
      s1 = madd(factor, lanes4(y + y1, bj), s1);
      s2 = madd(factor, lanes4(y + y2, bj), s2);
      s3 = madd(factor, lanes4(y + y3, bj), s3);
      x += ak;
      y += 4;
    }
    v128.store(c, s0);
    v128.store(c, s1, 16);
    v128.store(c, s2, 32);
    v128.store(c, s3, 48);
    c += 64;
    b += bj * 16;
  }
  for (; j < n; j += 4) {
    const rest = n - j;
    let x = a;
    let y = b;
    if (rest >= 4) {
      let s = v128.load(c);
      let l: usize = 0;
      for (; l + 4 <= k; l += 4) {
        const a0 = v128.load_splat<f32>(x);
        const a1 = v128.load_splat<f32>(x + ak);
        const a2 = v128.load_splat<f32>(x + ak * 2);
        const a3 = v128.load_splat<f32>(x + ak * 3);
        s = fourSteps(s, a0, a1, a2, a3, y, bj);
        x += ak * 4;
        y += 16;
      }
      for (; l < k; l++) {
        s = madd(v128.load_splat<f32>(x), lanes4(y, bj), s);
        x += ak;
        y += 4;
      }
      v128.store(c, s);
    } else {
      // A stride of zero repeats the last column where there is none.
      const y1 = rest > 1 ? bj : 0;
      const y2 = rest > 2 ? bj * 2 : y1;
      let s = loadPartial(c, rest);
      for (let l: usize = 0; l < k; l++) {
        let lane = v128.load32_zero(y);
        lane = v128.load32_lane(y + y1, lane, 1);
        lane = v128.load32_lane(y + y2, lane, 2);
        s = madd(v128.load_splat<f32>(x), lane, s);
        x += ak;
        y += 4;
      }
      storePartial(c, s, rest);
    }
    c += 16;
    b += bj * 4;
  }
}

/** C += A * B, strides as in `gemm`. Columns go in blocks so that B is read from memory once. */
export function fewRows(c: usize, ldc: usize, a: usize, ai: usize, ak: usize, b: usize, bk: usize, bj: usize, m: usize, n: usize, k: usize): void {
  const block: usize = m == 1 ? n : bj == 4 ? 512 : 32;
  for (let j: usize = 0; j < n; j += block) {
    const width = min<usize>(block, n - j);
    for (let i: usize = 0; i < m; i++) {
      if (bj == 4) rowTimesColumns(c + i * ldc + (j << 2), a + i * ai, ak, b + (j << 2), bk, width, k);
      else rowTimesRows(c + i * ldc + (j << 2), a + i * ai, ak, b + j * bj, bj, width, k);
    }
  }
}

/**
 * One row times `panels` panels of a packed matrix (see pack.ts), four at a time: as many streams of memory, and sums enough
 * to hide each other's latency.
 */
export function rowTimesPanels(c: usize, a: usize, ak: usize, b: usize, panels: usize, k: usize): void {
  const panelBytes = k << 5;
  for (; panels >= 4; panels -= 4) {
    let s0 = v128.load(c);
    let s1 = v128.load(c, 16);
    let s2 = v128.load(c, 32);
    let s3 = v128.load(c, 48);
    let s4 = v128.load(c, 64);
    let s5 = v128.load(c, 80);
    let s6 = v128.load(c, 96);
    let s7 = v128.load(c, 112);
    const p1 = panelBytes;
    const p2 = panelBytes * 2;
    const p3 = panelBytes * 3;
    let x = a;
    let y = b;
    const end = b + panelBytes;
    while (y != end) {
      const factor = v128.load_splat<f32>(x);
      s0 = madd(factor, v128.load(y), s0);
      s1 = madd(factor, v128.load(y, 16), s1);
      s2 = madd(factor, v128.load(y + p1), s2);
      s3 = madd(factor, v128.load(y + p1, 16), s3);
      x += ak;
      // Never true: an exit here makes V8 finish these sums before it loads for the next, which do not fit beside them.
      if (y == 0) break;
      s4 = madd(factor, v128.load(y + p2), s4);
      s5 = madd(factor, v128.load(y + p2, 16), s5);
      s6 = madd(factor, v128.load(y + p3), s6);
      s7 = madd(factor, v128.load(y + p3, 16), s7);
      y += 32;
    }
    v128.store(c, s0);
    v128.store(c, s1, 16);
    v128.store(c, s2, 32);
    v128.store(c, s3, 48);
    v128.store(c, s4, 64);
    v128.store(c, s5, 80);
    v128.store(c, s6, 96);
    v128.store(c, s7, 112);
    c += 128;
    b += panelBytes * 4;
  }
  for (; panels > 0; panels--) {
    let s0 = v128.load(c);
    let s1 = v128.load(c, 16);
    let x = a;
    const end = b + panelBytes;
    while (b != end) {
      const factor = v128.load_splat<f32>(x);
      s0 = madd(factor, v128.load(b), s0);
      s1 = madd(factor, v128.load(b, 16), s1);
      x += ak;
      b += 32;
    }
    v128.store(c, s0);
    v128.store(c, s1, 16);
    c += 32;
  }
}
