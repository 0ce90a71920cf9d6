// Softmax over the vocabulary: log-probabilities of targets, and the gradient of the logits.
import { exp4, log1 } from "./math";
import { pointer } from "./pool";
import { fetch, loadPartial, maxLanes, put, sumLanes } from "./vector";

/** The largest of n floats. */
export function maximum(x: usize, n: usize): f32 {
  let m0 = f32x4.splat(-Infinity);
  let m1 = m0;
  const pairs = (n & ~7) << 2;
  let i: usize = 0;
  for (; i < pairs; i += 32) {
    m0 = f32x4.pmax(m0, v128.load(x + i));
    m1 = f32x4.pmax(m1, v128.load(x + i, 16));
  }
  let best = maxLanes(f32x4.pmax(m0, m1));
  for (let j = n & ~7; j < n; j++) best = max<f32>(best, load<f32>(x + (j << 2)));
  return best;
}

export function logSoftmaxGather(start: usize, end: usize): void {
  const vocab = pointer(4);
  const perRow = pointer(5);
  const whole = (vocab & ~3) << 2;
  const rest = vocab & 3;
  for (let row = start; row < end; row++) {
    const x = pointer(2) + row * vocab * 4;
    const top = maximum(x, vocab);
    const shift = f32x4.splat(top);
    let s0 = f32x4.splat(0);
    let s1 = s0;
    let i: usize = 0;
    for (; i + 32 <= whole; i += 32) {
      s0 = f32x4.add(s0, exp4(f32x4.sub(v128.load(x + i), shift)));
      s1 = f32x4.add(s1, exp4(f32x4.sub(v128.load(x + i, 16), shift)));
    }
    for (; i < whole; i += 16) s0 = f32x4.add(s0, exp4(f32x4.sub(v128.load(x + i), shift)));
    let sum = sumLanes(f32x4.add(s0, s1));
    if (rest > 0) {
      const tail = exp4(f32x4.sub(loadPartial(x + whole, rest), shift));
      sum += f32x4.extract_lane(tail, 0);
      if (rest > 1) sum += f32x4.extract_lane(tail, 1);
      if (rest > 2) sum += f32x4.extract_lane(tail, 2);
    }
    const value = top + log1(sum);
    store<f32>(pointer(1) + (row << 2), value);
    for (let j: usize = 0; j < perRow; j++) {
      const at = (row * perRow + j) << 2;
      store<f32>(pointer(0) + at, load<f32>(x + (load<usize>(pointer(3) + at) << 2)) - value);
    }
  }
}

// @ts-ignore: decorator
@inline
function gradientFour(x: usize, factor: v128, shift: v128, count: usize): void {
  put(x, f32x4.mul(factor, exp4(f32x4.sub(fetch(x, count), shift))), count);
}

export function logitsGradient(start: usize, end: usize): void {
  const vocab = pointer(4);
  const perRow = pointer(5);
  const whole = (vocab & ~3) << 2;
  const rest = vocab & 3;
  for (let row = start; row < end; row++) {
    const x = pointer(2) + row * vocab * 4;
    let total: f32 = 0;
    for (let j: usize = 0; j < perRow; j++) total += load<f32>(pointer(0) + ((row * perRow + j) << 2));
    if (total == 0 && perRow == 1) {
      // A masked token: nothing flows back.
      memory.fill(x, 0, vocab << 2);
      continue;
    }
    const factor = f32x4.splat(-total);
    const shift = v128.load_splat<f32>(pointer(1) + (row << 2));
    for (let i: usize = 0; i < whole; i += 16) gradientFour(x + i, factor, shift, 4);
    if (rest > 0) gradientFour(x + whole, factor, shift, rest);
    for (let j: usize = 0; j < perRow; j++) {
      const at = (row * perRow + j) << 2;
      const to = x + (load<usize>(pointer(3) + at) << 2);
      store<f32>(to, load<f32>(to) + load<f32>(pointer(0) + at));
    }
  }
}
