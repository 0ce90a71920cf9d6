// Matrix products. Every element of C is one chain of multiply-adds in the order of k that starts at the element's old
// value (or zero), so results do not depend on M, on edges, on blocking or on who computes what.
import { fewRows, rowTimesPanels } from "./few-rows";
import { KC, pack4, pack8, packTurned } from "./pack";
import { pointer, scratch } from "./pool";
import { madd } from "./vector";

const MC: usize = 128;
const NC: usize = 512;
/** Panels of B that a row of tiles crosses at a time: they stay in the second-level cache for the next row. */
const SWEEP: usize = 32;
/** Up to so many rows fit the first-level cache beside FEW_SWEEP panels of B, which are then read from afar only once. */
const FEW_ROWS: usize = 32;
const FEW_SWEEP: usize = 2;
/** Bytes a thread needs: packed A, packed B, four rows of C. */
export const GEMM_SCRATCH: usize = (KC * MC + KC * NC + 4 * 8 * SWEEP) * 4;

/**
 * How B is stored: by strides unless packed, or packed and to be read as its transpose. A packed height x width matrix has, for
 * every KC rows, panels of 8 columns; at the end the columns left over, row by row (see panels.ts).
 */
const PACKED: usize = 1;
const PACKED_TURNED: usize = 2;

/**
 * One row of 4x8 tiles across `panels` panels of B. Walking along C's rows lets the processor fetch them ahead. The loop over
 * panels lives here, B's pointer runs on from one to the next, and pointers are sums, because V8 then unrolls the k loop by
 * itself; unrolling it by hand, and larger tiles, run out of registers. `fresh`: sums start at zero, whatever C holds.
 */
// @ts-ignore: decorator
@inline
function tiles(pa: usize, ao: usize, pb: usize, bo: usize, kb: usize, c: usize, ldc: usize, panels: usize, fresh: bool, fetch: bool, next: usize, step: usize): u32 {
  let touched: u32 = 0;
  let b = pb + bo;
  for (; panels > 0; panels--) {
    const c1 = c + ldc;
    const c2 = c1 + ldc;
    const c3 = c2 + ldc;
    let a = pa + ao;
    const end = a + (kb << 4);
    let s00 = f32x4.splat(0);
    let s01 = s00;
    let s10 = s00;
    let s11 = s00;
    let s20 = s00;
    let s21 = s00;
    let s30 = s00;
    let s31 = s00;
    if (!fresh) {
      s00 = v128.load(c);
      s01 = v128.load(c, 16);
      s10 = v128.load(c1);
      s11 = v128.load(c1, 16);
      s20 = v128.load(c2);
      s21 = v128.load(c2, 16);
      s30 = v128.load(c3);
      s31 = v128.load(c3, 16);
    }
    while (a != end) {
      if (fetch) {
        touched |= load<u32>(next);
        next += step;
      }
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
    c += 32;
  }
  return touched;
}

function strip(pa: usize, ao: usize, pb: usize, bo: usize, kb: usize, c: usize, ldc: usize, panels: usize, fresh: bool): void {
  tiles(pa, ao, pb, bo, kb, c, ldc, panels, fresh, false, 0, 0);
}

/**
 * Also touches memory from `next` on, `step` bytes further for every step of k: WebAssembly cannot ask for memory ahead of its
 * use, but a load whose value is not used at once has that effect. (The values are stored, or the compiler would drop the loads.)
 */
function stripFetching(pa: usize, ao: usize, pb: usize, bo: usize, kb: usize, c: usize, ldc: usize, panels: usize, fresh: bool, next: usize, step: usize, sink: usize): void {
  store<u32>(sink, tiles(pa, ao, pb, bo, kb, c, ldc, panels, fresh, true, next, step));
}

/** A strip where C has no whole tiles: works on a copy of its rows, padded to 4 x 8 * panels. */
function stripEdge(padded: usize, pa: usize, ao: usize, pb: usize, bo: usize, kb: usize, c: usize, ldc: usize, rows: usize, cols: usize, fresh: bool): void {
  const panels = (cols + 7) >> 3;
  const stride = panels << 5;
  const bytes = cols << 2;
  if (!fresh) {
    memory.fill(padded, 0, stride << 2);
    for (let i: usize = 0; i < rows; i++) memory.copy(padded + i * stride, c + i * ldc, bytes);
  }
  strip(pa, ao, pb, bo, kb, padded, stride, panels, fresh);
  for (let i: usize = 0; i < rows; i++) memory.copy(c + i * ldc, padded + i * stride, bytes);
}

/** Multiplies one packed block of A (rows x kb) with panels of B (kb x n) onto C. */
function blockTimesPanels(pa: usize, pb: usize, padded: usize, c: usize, ldc: usize, rows: usize, n: usize, kb: usize, fresh: bool): void {
  // With few rows a panel of B is needed sooner than it comes by itself: each row of tiles fetches its share of the next.
  const few = rows <= FEW_ROWS;
  const sweep: usize = few ? FEW_SWEEP : SWEEP;
  const step: usize = 32 / ((rows + 3) >> 2);
  for (let j: usize = 0; j < n; j += 8 * sweep) {
    const cols = min<usize>(8 * sweep, n - j);
    const panels = cols >> 3;
    const restCols = cols & 7;
    const bo = (j * kb) << 2;
    const hasNext = j + 16 * sweep <= n;
    for (let i: usize = 0; i < rows; i += 4) {
      const ao = (i * kb) << 2;
      const target = c + i * ldc + (j << 2);
      if (i + 4 > rows) {
        stripEdge(padded, pa, ao, pb, bo, kb, target, ldc, rows - i, cols, fresh);
        continue;
      }
      if (few && hasNext) {
        const next = pb + bo + ((8 * sweep * kb) << 2) + (i >> 2) * FEW_SWEEP * kb * step;
        stripFetching(pa, ao, pb, bo, kb, target, ldc, panels, fresh, next, step, padded);
      } else if (panels > 0) {
        strip(pa, ao, pb, bo, kb, target, ldc, panels, fresh);
      }
      if (restCols > 0) {
        stripEdge(padded, pa, ao, pb, bo + ((panels * kb) << 5), kb, target + (panels << 5), ldc, 4, restCols, fresh);
      }
    }
  }
}

export function zeroRect(c: usize, ldc: usize, m: usize, n: usize): void {
  for (let i: usize = 0; i < m; i++) {
    memory.fill(c, 0, n << 2);
    c += ldc;
  }
}

/**
 * C[m,n] += (with `fresh`, =) A * B on one thread. Strides in bytes: element (i,k) of A lies at a + i*ai + k*ak, (k,j) of B at
 * b + k*bk + j*bj.
 */
export function gemm(c: usize, ldc: usize, a: usize, ai: usize, ak: usize, b: usize, bk: usize, bj: usize, m: usize, n: usize, k: usize, memory: usize, fresh: bool): void {
  if (m < 4 || k == 0) {
    if (fresh) zeroRect(c, ldc, m, n);
    fewRows(c, ldc, a, ai, ak, b, bk, bj, m, n, k);
    return;
  }
  const pb = memory + KC * MC * 4;
  for (let j: usize = 0; j < n; j += NC) {
    const nb = min<usize>(NC, n - j);
    for (let l: usize = 0; l < k; l += KC) {
      const kb = min<usize>(KC, k - l);
      pack8(pb, b + l * bk + j * bj, bj, bk, nb, kb);
      rowsTimesPanels(c + (j << 2), ldc, a + l * ak, ai, ak, pb, m, nb, kb, memory, fresh && l == 0);
    }
  }
}

/** C += A * (kb steps of B in panels), a block of A's rows at a time. */
function rowsTimesPanels(c: usize, ldc: usize, a: usize, ai: usize, ak: usize, pb: usize, m: usize, n: usize, kb: usize, memory: usize, fresh: bool): void {
  const padded = memory + (KC * MC + KC * NC) * 4;
  for (let i: usize = 0; i < m; i += MC) {
    const mb = min<usize>(MC, m - i);
    pack4(memory, a + i * ai, ai, ak, mb, kb);
    blockTimesPanels(memory, pb, padded, c + i * ldc, ldc, mb, n, kb, fresh);
  }
}

/** C += or = A * (columns `column`.. of a packed height x width matrix); `column` is a multiple of 8. */
function gemmPacked(c: usize, ldc: usize, a: usize, ai: usize, ak: usize, b: usize, height: usize, width: usize, column: usize, m: usize, n: usize, memory: usize, fresh: bool): void {
  const whole = width & ~7;
  const cols = column < whole ? min<usize>(n, whole - column) : 0;
  if (cols > 0) {
    if (fresh && (m == 1 || height == 0)) zeroRect(c, ldc, m, cols);
    for (let l: usize = 0; l < height; l += KC) {
      const kb = min<usize>(KC, height - l);
      const panels = b + ((l * whole + column * kb) << 2);
      if (m == 1) rowTimesPanels(c, a + l * ak, ak, panels, cols >> 3, kb);
      else rowsTimesPanels(c, ldc, a + l * ak, ai, ak, panels, m, cols, kb, memory, fresh && l == 0);
    }
  }
  if (n > cols) {
    const rest = b + ((whole * height) << 2);
    gemm(c + (cols << 2), ldc, a, ai, ak, rest, (width & 7) << 2, 4, m, n - cols, height, memory, fresh);
  }
}

/** C += or = A * (rows `row`.. of a packed height x width matrix, transposed); `row` is a multiple of 8. */
function gemmTurned(c: usize, ldc: usize, a: usize, ai: usize, ak: usize, b: usize, height: usize, width: usize, row: usize, m: usize, n: usize, memory: usize, fresh: bool): void {
  const whole = width & ~7;
  const pb = memory + KC * MC * 4;
  for (let j: usize = 0; j < n; j += NC) {
    const nb = min<usize>(NC, n - j);
    for (let l: usize = 0; l < whole; l += KC) {
      const kb = min<usize>(KC, whole - l);
      packTurned(pb, b, height, whole, row + j, nb, l, kb);
      rowsTimesPanels(c + (j << 2), ldc, a + l * ak, ai, ak, pb, m, nb, kb, memory, fresh && l == 0);
    }
  }
  const rest = (width & 7) << 2;
  if (rest > 0 || whole == 0) {
    const from = b + ((whole * height) << 2) + row * rest;
    gemm(c, ldc, a + whole * ak, ai, ak, from, 4, rest, m, n, width & 7, memory, fresh && whole == 0);
  }
}

/**
 * One piece of C = or += A * B. Strides in bytes, as in `gemm`; for packed layouts `bk` and `bj` are the packed matrix' height
 * and width. The grid of chunks cuts C only, never k.
 */
export function matmul(chunk: usize): void {
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
  const fresh = pointer(11) == 0;
  const ai = pointer(3);
  const ak = pointer(4);
  const a = pointer(2) + i * ai;
  const b = pointer(5);
  const bk = pointer(6);
  const bj = pointer(7);
  const layout = pointer(14);
  if (layout == PACKED) gemmPacked(c, ldc, a, ai, ak, b, bk, bj, j, rows, cols, scratch(), fresh);
  else if (layout == PACKED_TURNED) gemmTurned(c, ldc, a, ai, ak, b, bk, bj, j, rows, cols, scratch(), fresh);
  else gemm(c, ldc, a, ai, ak, b + j * bj, bk, bj, rows, cols, pointer(10), scratch(), fresh);
}
