// Causal attention from matrix products on blocks of queries. A row's scores, softmax and weighted sum run in the same
// order in all forward paths (masked entries add exact zeros), so packed, paged, batched and single rows agree bit for bit.
import { GEMM_SCRATCH, gemm, zeroRect } from "./gemm";
import { exp4, log1 } from "./math";
import { float, pointer, scratch } from "./pool";
import { loadPartial, maxLanes, sumLanes } from "./vector";

/** Query rows per block of `attention` and its backward pass. */
export const QUERY_BLOCK: usize = 32;
/** Query rows per chunk of `attentionPaged`. */
export const PAGED_BLOCK: usize = 16;

// @ts-ignore: decorator
@inline
function laneMask(start: usize, count: usize): v128 {
  const index = i32x4.add(i32x4.splat(<i32>start), i32x4(0, 1, 2, 3));
  return i32x4.lt_u(index, i32x4.splat(<i32>count));
}

/** Bytes of a row of scores. */
// @ts-ignore: decorator
@inline
function rowBytes(keys: usize): usize {
  return ((keys + 3) & ~3) << 2;
}

function scaleRow(x: usize, factor: f32, n: usize): void {
  const f = f32x4.splat(factor);
  let i: usize = 0;
  for (; i + 4 <= n; i += 4) v128.store(x + (i << 2), f32x4.mul(v128.load(x + (i << 2)), f));
  for (; i < n; i++) store<f32>(x + (i << 2), load<f32>(x + (i << 2)) * factor);
}

/** Multiplies n values by a factor and returns the largest product. */
function scaleAndMaximum(x: usize, factor: f32, n: usize): f32 {
  const f = f32x4.splat(factor);
  let top = f32x4.splat(-Infinity);
  let i: usize = 0;
  for (; i + 4 <= n; i += 4) {
    const value = f32x4.mul(v128.load(x + (i << 2)), f);
    v128.store(x + (i << 2), value);
    top = f32x4.pmax(top, value);
  }
  let best = maxLanes(top);
  for (; i < n; i++) {
    const value = load<f32>(x + (i << 2)) * factor;
    store<f32>(x + (i << 2), value);
    best = max<f32>(best, value);
  }
  return best;
}

/**
 * Turns the first `count` raw scores into exp(score * scale - max) and the rest of the row into zeros. Returns the sum, taken
 * in four lanes by index modulo 4; writes the log of the sum of exponentials to `lse` unless that is 0.
 */
function softmaxRow(x: usize, count: usize, keys: usize, scale: f32, lse: usize): f32 {
  const top = scaleAndMaximum(x, scale, count);
  const shift = f32x4.splat(top);
  let sum = f32x4.splat(0);
  let i: usize = 0;
  for (; i + 4 <= count; i += 4) {
    const e = exp4(f32x4.sub(v128.load(x + (i << 2)), shift));
    v128.store(x + (i << 2), e);
    sum = f32x4.add(sum, e);
  }
  if (i < count) {
    const e = v128.and(exp4(f32x4.sub(loadPartial(x + (i << 2), count - i), shift)), laneMask(i, count));
    v128.store(x + (i << 2), e);
    sum = f32x4.add(sum, e);
    i += 4;
  }
  for (; i < keys; i += 4) v128.store(x + (i << 2), f32x4.splat(0));
  const total = sumLanes(sum);
  if (lse != 0) store<f32>(lse, top + log1(total));
  return total;
}

export function attention(chunk: usize): void {
  const heads = pointer(9);
  const kvHeads = pointer(10);
  const headDim = pointer(11);
  const offsets = pointer(8);
  const kvHead = chunk % kvHeads;
  let block = chunk / kvHeads;
  let sequence: usize = 0;
  let start: usize = 0;
  let length: usize = 0;
  while (true) {
    start = load<usize>(offsets + (sequence << 2));
    length = load<usize>(offsets + (sequence << 2), 4) - start;
    const blocks = (length + QUERY_BLOCK - 1) / QUERY_BLOCK;
    if (block < blocks) break;
    block -= blocks;
    sequence++;
  }
  const first = block * QUERY_BLOCK;
  const rows = min<usize>(QUERY_BLOCK, length - first);
  const keys = first + rows;
  const memory = scratch();
  const scores = memory + GEMM_SCRATCH;
  const scoreStride = rowBytes(keys);
  const group = heads / kvHeads;
  const qStride = pointer(3);
  const kStride = pointer(5);
  const vStride = pointer(7);
  const outStride = heads * headDim * 4;
  const k = pointer(4) + start * kStride + kvHead * headDim * 4;
  const v = pointer(6) + start * vStride + kvHead * headDim * 4;
  for (let h: usize = 0; h < group; h++) {
    const head = kvHead * group + h;
    const row = start + first;
    const q = pointer(2) + row * qStride + head * headDim * 4;
    const out = pointer(0) + row * outStride + head * headDim * 4;
    gemm(scores, scoreStride, q, qStride, 4, k, 4, kStride, rows, keys, headDim, memory, true);
    // The sums wait behind the scores until the weighted sums are there to be divided.
    const sums = scores + QUERY_BLOCK * scoreStride;
    for (let i: usize = 0; i < rows; i++) {
      const lse = pointer(1) + (((row + i) * heads + head) << 2);
      store<f32>(sums + (i << 2), softmaxRow(scores + i * scoreStride, first + i + 1, keys, float(0), lse));
    }
    gemm(out, outStride, scores, scoreStride, 4, v, vStride, 4, rows, headDim, keys, memory, true);
    for (let i: usize = 0; i < rows; i++) scaleRow(out + i * outStride, 1 / load<f32>(sums + (i << 2)), headDim);
  }
}

/** sum of a[i] * b[i] in four lanes by index modulo 4 */
function dotRow(a: usize, b: usize, n: usize): f32 {
  let sum = f32x4.splat(0);
  const whole = (n & ~3) << 2;
  for (let i: usize = 0; i < whole; i += 16) sum = f32x4.add(sum, f32x4.mul(v128.load(a + i), v128.load(b + i)));
  const rest = n & 3;
  if (rest > 0) sum = f32x4.add(sum, f32x4.mul(loadPartial(a + whole, rest), loadPartial(b + whole, rest)));
  return sumLanes(sum);
}

/**
 * One sequence and one kv head per chunk, so that no other thread adds to its dk and dv. Rows of scores become probabilities,
 * rows of dp become gradients of the scores; then five products per block of queries.
 */
export function attentionBackward(chunk: usize): void {
  const heads = pointer(9);
  const kvHeads = pointer(10);
  const headDim = pointer(11);
  const kvHead = chunk % kvHeads;
  const sequence = chunk / kvHeads;
  const start = load<usize>(pointer(8) + (sequence << 2));
  const length = load<usize>(pointer(8) + (sequence << 2), 4) - start;
  const qStride = pointer(3);
  const kStride = pointer(5);
  const vStride = pointer(7);
  const dqStride = pointer(13);
  const dkStride = pointer(15);
  const dvStride = pointer(17);
  const outStride = heads * headDim * 4;
  const kvAt = kvHead * headDim * 4;
  const k = pointer(4) + start * kStride + kvAt;
  const v = pointer(6) + start * vStride + kvAt;
  const dk = pointer(14) + start * dkStride + kvAt;
  const dv = pointer(16) + start * dvStride + kvAt;
  zeroRect(dk, dkStride, length, headDim);
  zeroRect(dv, dvStride, length, headDim);
  const memory = scratch();
  const group = heads / kvHeads;
  for (let h: usize = 0; h < group; h++) {
    const head = kvHead * group + h;
    for (let first: usize = 0; first < length; first += QUERY_BLOCK) {
      const rows = min<usize>(QUERY_BLOCK, length - first);
      const keys = first + rows;
      const stride = rowBytes(keys);
      const probabilities = memory + GEMM_SCRATCH;
      const gradients = probabilities + QUERY_BLOCK * stride;
      const row = start + first;
      const q = pointer(2) + row * qStride + head * headDim * 4;
      const dout = pointer(18) + row * outStride + head * headDim * 4;
      const out = pointer(0) + row * outStride + head * headDim * 4;
      gemm(probabilities, stride, q, qStride, 4, k, 4, kStride, rows, keys, headDim, memory, true);
      gemm(gradients, stride, dout, outStride, 4, v, 4, vStride, rows, keys, headDim, memory, true);
      for (let i: usize = 0; i < rows; i++) {
        const delta = dotRow(dout + i * outStride, out + i * outStride, headDim);
        const lse = load<f32>(pointer(1) + (((row + i) * heads + head) << 2));
        gradientRow(probabilities + i * stride, gradients + i * stride, first + i + 1, keys, lse, delta, float(0));
      }
      const dq = pointer(12) + row * dqStride + head * headDim * 4;
      gemm(dq, dqStride, gradients, stride, 4, k, kStride, 4, rows, headDim, keys, memory, true);
      gemm(dk, dkStride, gradients, 4, stride, q, qStride, 4, keys, headDim, rows, memory, false);
      gemm(dv, dvStride, probabilities, 4, stride, dout, outStride, 4, keys, headDim, rows, memory, false);
    }
  }
}

/** p = exp(score * scale - lse), ds = p * (dp - delta) * scale; zeros from `count` on. */
function gradientRow(p: usize, dp: usize, count: usize, keys: usize, lse: f32, delta: f32, scale: f32): void {
  const factor = f32x4.splat(scale);
  const shift = f32x4.splat(lse);
  const d = f32x4.splat(delta);
  let i: usize = 0;
  for (; i < count; i += 4) {
    const at = i << 2;
    const e = exp4(f32x4.sub(f32x4.mul(v128.load(p + at), factor), shift));
    v128.store(p + at, e);
    v128.store(dp + at, f32x4.mul(f32x4.mul(e, f32x4.sub(v128.load(dp + at), d)), factor));
  }
  if ((count & 3) != 0) {
    const at = (i - 4) << 2;
    const mask = laneMask(i - 4, count);
    v128.store(p + at, v128.and(v128.load(p + at), mask));
    v128.store(dp + at, v128.and(v128.load(dp + at), mask));
  }
  for (; i < keys; i += 4) {
    v128.store(p + (i << 2), f32x4.splat(0));
    v128.store(dp + (i << 2), f32x4.splat(0));
  }
}

/** How many rows from `row` on (at most up to `end`) read the same pages. */
function sameTable(row: usize, end: usize): usize {
  const maxPages = pointer(8);
  const pageSize = pointer(9);
  const table = pointer(5) + row * maxPages * 4;
  let longest = load<usize>(pointer(6) + (row << 2));
  let next = row + 1;
  for (; next < end; next++) {
    longest = max<usize>(longest, load<usize>(pointer(6) + (next << 2)));
    const pages = (longest + pageSize - 1) / pageSize;
    const other = pointer(5) + next * maxPages * 4;
    let page: usize = 0;
    while (page < pages && load<i32>(table + (page << 2)) == load<i32>(other + (page << 2))) page++;
    if (page < pages) break;
  }
  return next - row;
}

export function attentionPaged(chunk: usize): void {
  const heads = pointer(10);
  const kvHeads = pointer(11);
  const headDim = pointer(12);
  const group = heads / kvHeads;
  const kvHead = chunk % kvHeads;
  const start = (chunk / kvHeads) * PAGED_BLOCK;
  const end = min<usize>(start + PAGED_BLOCK, pointer(7));
  const headBytes = headDim * 4;
  const outStride = heads * headBytes;
  for (let row = start; row < end; ) {
    const run = sameTable(row, end);
    const head = kvHead * group;
    const q = pointer(1) + row * pointer(2) + head * headBytes;
    const out = pointer(0) + row * outStride + head * headBytes;
    if (run == 1) {
      // The heads of the group are the rows: they share keys.
      attendPages(out, headBytes, q, headBytes, row, 0, kvHead, group);
    } else {
      for (let h: usize = 0; h < group; h++) {
        attendPages(out + h * headBytes, outStride, q + h * headBytes, pointer(2), row, 1, kvHead, run);
      }
    }
    row += run;
  }
}

/** `count` query rows over the pages of `row`'s table; query i sees lengths[row + i * step] keys. */
function attendPages(out: usize, outStride: usize, q: usize, qStride: usize, row: usize, step: usize, kvHead: usize, count: usize): void {
  const headDim = pointer(12);
  const pageSize = pointer(9);
  const keyBytes = pointer(11) * headDim * 4;
  const table = pointer(5) + row * pointer(8) * 4;
  const lengths = pointer(6) + (row << 2);
  let keys: usize = 0;
  for (let i: usize = 0; i < count; i++) keys = max<usize>(keys, load<usize>(lengths + ((i * step) << 2)));
  const memory = scratch();
  const sums = memory + GEMM_SCRATCH;
  const scores = sums + (((count + 15) & ~15) << 2);
  const stride = rowBytes(keys);
  for (let key: usize = 0; key < keys; key += pageSize) {
    const page = load<usize>(table + ((key / pageSize) << 2));
    const k = pointer(3) + page * pageSize * keyBytes + kvHead * headDim * 4;
    gemm(scores + (key << 2), stride, q, qStride, 4, k, 4, keyBytes, count, min<usize>(pageSize, keys - key), headDim, memory, true);
  }
  for (let i: usize = 0; i < count; i++) {
    const length = load<usize>(lengths + ((i * step) << 2));
    store<f32>(sums + (i << 2), softmaxRow(scores + i * stride, length, keys, float(0), 0));
  }
  for (let key: usize = 0; key < keys; key += pageSize) {
    const page = load<usize>(table + ((key / pageSize) << 2));
    const v = pointer(4) + page * pageSize * keyBytes + kvHead * headDim * 4;
    gemm(out, outStride, scores + (key << 2), stride, 4, v, keyBytes, 4, count, headDim, min<usize>(pageSize, keys - key), memory, key == 0);
  }
  for (let i: usize = 0; i < count; i++) scaleRow(out + i * outStride, 1 / load<f32>(sums + (i << 2)), headDim);
}
