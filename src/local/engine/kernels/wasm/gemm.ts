// Matrix products. Every element of C is one chain of multiply-adds in the order of k that starts at the element's old
// value (or zero), so results do not depend on M, on edges, on blocking or on who computes what.
import { dispatch, pointer, scratch, setPointer, threads } from "./pool";
import { MATMUL } from "./operations";
import { loadPartial, madd, storePartial, zip32high, zip32low, zip64high, zip64low } from "./vector";

export const KC: usize = 256;
export const MC: usize = 128;
export const NC: usize = 512;
/** Bytes a thread needs: packed A, packed B, one 4x8 tile. */
export const GEMM_SCRATCH: usize = (KC * MC + KC * NC) * 4 + 128;

/**
 * Runs `tiles` 4x8 tiles down one panel of B. The loop over tiles lives here, and pointers are sums, because V8 then
 * unrolls the k loop by itself; unrolling it by hand runs out of registers.
 */
export function strip(pa: usize, ao: usize, pb: usize, bo: usize, kb: usize, c: usize, ldc: usize, tiles: usize): void {
  let a = pa + ao;
  for (; tiles > 0; tiles--) {
    const c1 = c + ldc;
    const c2 = c1 + ldc;
    const c3 = c2 + ldc;
    let b = pb + bo;
    const end = b + (kb << 5);
    let s00 = v128.load(c);
    let s01 = v128.load(c, 16);
    let s10 = v128.load(c1);
    let s11 = v128.load(c1, 16);
    let s20 = v128.load(c2);
    let s21 = v128.load(c2, 16);
    let s30 = v128.load(c3);
    let s31 = v128.load(c3, 16);
    while (b != end) {
      const b0 = v128.load(b);
      const b1 = v128.load(b, 16);
      const a0 = v128.load_splat<f32>(a);
      s00 = madd(a0, b0, s00);
      s01 = madd(a0, b1, s01);
      const a1 = v128.load_splat<f32>(a, 4);
      s10 = madd(a1, b0, s10);
      s11 = madd(a1, b1, s11);
      const a2 = v128.load_splat<f32>(a, 8);
      s20 = madd(a2, b0, s20);
      s21 = madd(a2, b1, s21);
      const a3 = v128.load_splat<f32>(a, 12);
      s30 = madd(a3, b0, s30);
      s31 = madd(a3, b1, s31);
      a += 16;
      b += 32;
    }
    v128.store(c, s00);
    v128.store(c, s01, 16);
    v128.store(c1, s10);
    v128.store(c1, s11, 16);
    v128.store(c2, s20);
    v128.store(c2, s21, 16);
    v128.store(c3, s30);
    v128.store(c3, s31, 16);
    c = c3 + ldc;
  }
}

// @ts-ignore: decorator
@inline
function transposeInto(target: usize, step: usize, r0: usize, r1: usize, r2: usize, r3: usize): void {
  const x0 = v128.load(r0);
  const x1 = v128.load(r1);
  const x2 = v128.load(r2);
  const x3 = v128.load(r3);
  const y0 = zip32low(x0, x1);
  const y1 = zip32low(x2, x3);
  const y2 = zip32high(x0, x1);
  const y3 = zip32high(x2, x3);
  v128.store(target, zip64low(y0, y1));
  v128.store(target + step, zip64high(y0, y1));
  v128.store(target + step * 2, zip64low(y2, y3));
  v128.store(target + step * 3, zip64high(y2, y3));
}

/**
 * Packs up to 4 lanes of one panel. Lane l, step k lies at source + l*laneStride + k*stepStride (bytes; one of the two is
 * 4); it goes to target + k*width + l*4. Lanes beyond `lanes` become zero.
 */
function packQuad(target: usize, width: usize, source: usize, laneStride: usize, stepStride: usize, lanes: usize, steps: usize): void {
  let k: usize = 0;
  if (lanes >= 4) {
    if (laneStride == 4) {
      for (; k < steps; k++) {
        v128.store(target, v128.load(source));
        target += width;
        source += stepStride;
      }
      return;
    }
    const r1 = laneStride;
    const r2 = laneStride * 2;
    const r3 = laneStride * 3;
    for (; k + 4 <= steps; k += 4) {
      transposeInto(target, width, source, source + r1, source + r2, source + r3);
      target += width * 4;
      source += 16;
    }
  }
  for (; k < steps; k++) {
    for (let l: usize = 0; l < 4; l++) {
      store<f32>(target + (l << 2), l < lanes ? load<f32>(source + l * laneStride) : 0);
    }
    target += width;
    source += stepStride;
  }
}

function pack4(target: usize, source: usize, laneStride: usize, stepStride: usize, lanes: usize, steps: usize): void {
  for (let l: usize = 0; l < lanes; l += 4) {
    packQuad(target, 16, source + l * laneStride, laneStride, stepStride, lanes - l, steps);
    target += steps << 4;
  }
}

export function pack8(target: usize, source: usize, laneStride: usize, stepStride: usize, lanes: usize, steps: usize): void {
  for (let l: usize = 0; l < lanes; l += 8) {
    const rest = lanes - l;
    const from = source + l * laneStride;
    if (rest >= 8 && laneStride == 4) {
      let s = from;
      let t = target;
      for (let k: usize = 0; k < steps; k++) {
        v128.store(t, v128.load(s));
        v128.store(t, v128.load(s, 16), 16);
        t += 32;
        s += stepStride;
      }
    } else {
      packQuad(target, 32, from, laneStride, stepStride, rest, steps);
      packQuad(target + 16, 32, from + laneStride * 4, laneStride, stepStride, rest > 4 ? rest - 4 : 0, steps);
    }
    target += steps << 5;
  }
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
    const half = bk * 4;
    let t = c;
    let y = b;
    for (let j: usize = 0; j < whole; j += 4) {
      const z = y + half;
      let s = madd(a0, v128.load(y), v128.load(t));
      s = madd(a1, v128.load(y + bk), s);
      s = madd(a2, v128.load(y + bk * 2), s);
      s = madd(a3, v128.load(y + bk * 3), s);
      s = madd(a4, v128.load(z), s);
      s = madd(a5, v128.load(z + bk), s);
      s = madd(a6, v128.load(z + bk * 2), s);
      s = madd(a7, v128.load(z + bk * 3), s);
      v128.store(t, s);
      t += 16;
      y += 16;
    }
    if (rest > 0) {
      let s = loadPartial(t, rest);
      s = madd(a0, loadPartial(y, rest), s);
      s = madd(a1, loadPartial(y + bk, rest), s);
      s = madd(a2, loadPartial(y + bk * 2, rest), s);
      s = madd(a3, loadPartial(y + bk * 3, rest), s);
      s = madd(a4, loadPartial(y + half, rest), s);
      s = madd(a5, loadPartial(y + bk * 5, rest), s);
      s = madd(a6, loadPartial(y + bk * 6, rest), s);
      s = madd(a7, loadPartial(y + bk * 7, rest), s);
      storePartial(t, s, rest);
    }
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

/** Few rows: packing B would cost more than it saves. Columns go in blocks so that B is read from memory once. */
function fewRows(c: usize, ldc: usize, a: usize, ai: usize, ak: usize, b: usize, bk: usize, bj: usize, m: usize, n: usize, k: usize): void {
  const block: usize = m == 1 ? n : bj == 4 ? 512 : 32;
  for (let j: usize = 0; j < n; j += block) {
    const width = min<usize>(block, n - j);
    for (let i: usize = 0; i < m; i++) {
      if (bj == 4) rowTimesColumns(c + i * ldc + (j << 2), a + i * ai, ak, b + (j << 2), bk, width, k);
      else rowTimesRows(c + i * ldc + (j << 2), a + i * ai, ak, b + j * bj, bj, width, k);
    }
  }
}

/** Copies a rows x cols corner of a tile between two places (strides in bytes). */
function copyTile(target: usize, targetStride: usize, source: usize, sourceStride: usize, rows: usize, cols: usize): void {
  for (let i: usize = 0; i < rows; i++) {
    for (let j: usize = 0; j < cols; j++) store<f32>(target + (j << 2), load<f32>(source + (j << 2)));
    target += targetStride;
    source += sourceStride;
  }
}

export function zeroRect(c: usize, ldc: usize, m: usize, n: usize): void {
  for (let i: usize = 0; i < m; i++) {
    memory.fill(c, 0, n << 2);
    c += ldc;
  }
}

/** Multiplies one packed block of A (rows x kb) with packed B (kb x n) onto C. */
function blockTimesPanels(pa: usize, pb: usize, tile: usize, c: usize, ldc: usize, rows: usize, n: usize, kb: usize): void {
  const fullTiles = rows >> 2;
  const restRows = rows & 3;
  const panelBytes = kb << 5;
  const aBytes = kb << 4;
  for (let j: usize = 0; j < n; j += 8) {
    const cols = n - j;
    const target = c + (j << 2);
    if (cols >= 8) {
      if (fullTiles > 0) strip(pa, 0, pb, 0, kb, target, ldc, fullTiles);
    } else {
      for (let t: usize = 0; t < fullTiles; t++) {
        const at = target + (t << 2) * ldc;
        copyTile(tile, 32, at, ldc, 4, cols);
        strip(pa, t * aBytes, pb, 0, kb, tile, 32, 1);
        copyTile(at, ldc, tile, 32, 4, cols);
      }
    }
    if (restRows > 0) {
      const at = target + (fullTiles << 2) * ldc;
      const width = min<usize>(cols, 8);
      copyTile(tile, 32, at, ldc, restRows, width);
      strip(pa, fullTiles * aBytes, pb, 0, kb, tile, 32, 1);
      copyTile(at, ldc, tile, 32, restRows, width);
    }
    pb += panelBytes;
  }
}

/**
 * C[m,n] += A * B on one thread. Strides in bytes: element (i,k) of A lies at a + i*ai + k*ak, (k,j) of B at b + k*bk + j*bj.
 */
export function gemm(c: usize, ldc: usize, a: usize, ai: usize, ak: usize, b: usize, bk: usize, bj: usize, m: usize, n: usize, k: usize, memory: usize): void {
  if (m < 4) {
    fewRows(c, ldc, a, ai, ak, b, bk, bj, m, n, k);
    return;
  }
  const pa = memory;
  const pb = pa + KC * MC * 4;
  const tile = pb + KC * NC * 4;
  for (let j: usize = 0; j < n; j += NC) {
    const nb = min<usize>(NC, n - j);
    for (let l: usize = 0; l < k; l += KC) {
      const kb = min<usize>(KC, k - l);
      pack8(pb, b + l * bk + j * bj, bj, bk, nb, kb);
      for (let i: usize = 0; i < m; i += MC) {
        const mb = min<usize>(MC, m - i);
        pack4(pa, a + i * ai + l * ak, ai, ak, mb, kb);
        blockTimesPanels(pa, pb, tile, c + i * ldc + (j << 2), ldc, mb, nb, kb);
      }
    }
  }
}

/** Strides in bytes, as in `gemm`. The grid of chunks cuts C only, never k. */
export function matmul(c: usize, ldc: usize, a: usize, ai: usize, ak: usize, b: usize, bk: usize, bj: usize, m: usize, n: usize, k: usize, accumulate: usize): void {
  let chunkRows = m;
  let chunkCols = n;
  if (threads() > 1) {
    const wanted = threads() * 4;
    let count: usize = 1;
    while (count < wanted) {
      if (chunkCols >= chunkRows && chunkCols >= 64) chunkCols = (chunkCols / 2 + 31) & ~31;
      else if (chunkRows >= 64) chunkRows = (chunkRows / 2 + 3) & ~3;
      else if (chunkCols >= 64) chunkCols = (chunkCols / 2 + 31) & ~31;
      else break;
      count = ((m + chunkRows - 1) / chunkRows) * ((n + chunkCols - 1) / chunkCols);
    }
  }
  setPointer(0, c);
  setPointer(1, ldc);
  setPointer(2, a);
  setPointer(3, ai);
  setPointer(4, ak);
  setPointer(5, b);
  setPointer(6, bk);
  setPointer(7, bj);
  setPointer(8, m);
  setPointer(9, n);
  setPointer(10, k);
  setPointer(11, accumulate);
  setPointer(12, chunkRows);
  setPointer(13, chunkCols);
  const grid = ((m + chunkRows - 1) / chunkRows) * ((n + chunkCols - 1) / chunkCols);
  dispatch(MATMUL, grid, 0.25 * <f64>m * <f64>n * <f64>k);
}

export function matmulChunk(chunk: usize): void {
  const m = pointer(8);
  const n = pointer(9);
  const chunkRows = pointer(12);
  const chunkCols = pointer(13);
  const across = (n + chunkCols - 1) / chunkCols;
  const i = (chunk / across) * chunkRows;
  const j = (chunk % across) * chunkCols;
  const rows = min<usize>(chunkRows, m - i);
  const cols = min<usize>(chunkCols, n - j);
  const ldc = pointer(1);
  const c = pointer(0) + i * ldc + (j << 2);
  if (pointer(11) == 0) zeroRect(c, ldc, rows, cols);
  const bj = pointer(7);
  gemm(c, ldc, pointer(2) + i * pointer(3), pointer(3), pointer(4), pointer(5) + j * bj, pointer(6), bj, rows, cols, pointer(10), scratch());
}
