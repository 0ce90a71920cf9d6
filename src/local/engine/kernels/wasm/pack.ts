// Rearranging matrices into panels that `strip` reads straight through.
import { zip32high, zip32low, zip64high, zip64low } from "./vector";

/** Steps of k that are packed, and multiplied, at a time. */
export const KC: usize = 256;

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

/** A in panels of 4 rows. */
export function pack4(target: usize, source: usize, laneStride: usize, stepStride: usize, lanes: usize, steps: usize): void {
  for (let l: usize = 0; l < lanes; l += 4) {
    packQuad(target, 16, source + l * laneStride, laneStride, stepStride, lanes - l, steps);
    target += steps << 4;
  }
}

/** B in panels of 8 columns. */
export function pack8(target: usize, source: usize, laneStride: usize, stepStride: usize, lanes: usize, steps: usize): void {
  let l: usize = 0;
  const panelBytes = steps << 5;
  if (laneStride == 4) {
    // Four panels at a time, so that whole cache lines are read.
    const t1 = panelBytes;
    const t2 = panelBytes * 2;
    const t3 = panelBytes * 3;
    for (; l + 32 <= lanes; l += 32) {
      let s = source + (l << 2);
      let t = target;
      for (let k: usize = 0; k < steps; k++) {
        v128.store(t, v128.load(s));
        v128.store(t, v128.load(s, 16), 16);
        v128.store(t + t1, v128.load(s, 32));
        v128.store(t + t1, v128.load(s, 48), 16);
        v128.store(t + t2, v128.load(s, 64));
        v128.store(t + t2, v128.load(s, 80), 16);
        v128.store(t + t3, v128.load(s, 96));
        v128.store(t + t3, v128.load(s, 112), 16);
        t += 32;
        s += stepStride;
      }
      target += panelBytes * 4;
    }
    for (; l + 8 <= lanes; l += 8) {
      let s = source + (l << 2);
      let t = target;
      for (let k: usize = 0; k < steps; k++) {
        v128.store(t, v128.load(s));
        v128.store(t, v128.load(s, 16), 16);
        t += 32;
        s += stepStride;
      }
      target += panelBytes;
    }
  }
  for (; l < lanes; l += 8) {
    const rest = lanes - l;
    const from = source + l * laneStride;
    packQuad(target, 32, from, laneStride, stepStride, rest, steps);
    packQuad(target + 16, 32, from + laneStride * 4, laneStride, stepStride, rest > 4 ? rest - 4 : 0, steps);
    target += panelBytes;
  }
}

/**
 * Panels of a packed matrix' transpose: lanes are its rows from `row` on, steps its columns from `column` on, among the first
 * `whole`. Rows and columns come in eights but for the last rows.
 */
export function packTurned(target: usize, matrix: usize, height: usize, whole: usize, row: usize, lanes: usize, column: usize, steps: usize): void {
  for (let l: usize = 0; l < lanes; l += 8) {
    const rest = lanes - l;
    const block = (row + l) & ~(KC - 1);
    const kb = min<usize>(KC, height - block);
    let s = matrix + ((block * whole + column * kb + ((row + l - block) << 3)) << 2);
    for (let k: usize = 0; k < steps; k += 8) {
      if (rest >= 8) {
        const t = s + 128;
        transposeInto(target, 32, s, s + 32, s + 64, s + 96);
        transposeInto(target + 128, 32, s + 16, s + 48, s + 80, s + 112);
        transposeInto(target + 16, 32, t, t + 32, t + 64, t + 96);
        transposeInto(target + 144, 32, t + 16, t + 48, t + 80, t + 112);
      } else {
        packQuad(target, 32, s, 32, 4, rest, 8);
        packQuad(target + 16, 32, s + 128, 32, 4, rest > 4 ? rest - 4 : 0, 8);
      }
      target += 256;
      s += kb << 5;
    }
  }
}
