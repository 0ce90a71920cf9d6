// Adds products of two low-rank matrices to rows of weights, in float32, and turns weights into float32 and back.
// AssemblyScript: compiled by `npm run generate:kernels`.

/** Columns of the right matrix that lie together, row after row: two vectors. */
const PANEL: usize = 8;
const PANEL_BYTES: usize = PANEL << 2;
/** Bytes of the right matrix that are used for all rows before the next: they stay in the processor's cache. */
const NEAR_BYTES: usize = 1 << 17;

/**
 * target[rows, columns] += left[rows, rank] * right, where `panels` is right[rank, columns] as [columns / 8, rank, 8], the
 * last panel filled up, and `rowBytes` and `columnBytes` are the distances of the target's rows and columns. `sums` has
 * room for 4 rows of a panel.
 */
export function addProduct(
  left: usize,
  panels: usize,
  target: usize,
  rows: usize,
  rank: usize,
  columns: usize,
  rowBytes: usize,
  columnBytes: usize,
  sums: usize,
): void {
  const panelBytes = rank * PANEL_BYTES;
  const leftBytes = rank << 2;
  const near = max<usize>(1, NEAR_BYTES / panelBytes) * PANEL;
  for (let first: usize = 0; first < columns; first += near) {
    const end = min(columns, first + near);
    for (let row: usize = 0; row < rows; ) {
      const count: usize = rows - row >= 4 ? 4 : 1;
      const factors = left + row * leftBytes;
      const to = target + row * rowBytes;
      for (let column = first; column < end; column += PANEL) {
        const panel = panels + (column / PANEL) * panelBytes;
        const at = to + column * columnBytes;
        const width = min(PANEL, end - column);
        if (columnBytes == 4 && width == PANEL) {
          if (count == 4) addFour(factors, leftBytes, panel, at, rowBytes);
          else addOne(factors, leftBytes, panel, at);
          continue;
        }
        memory.fill(sums, 0, 4 * PANEL_BYTES);
        if (count == 4) addFour(factors, leftBytes, panel, sums, PANEL_BYTES);
        else addOne(factors, leftBytes, panel, sums);
        for (let i: usize = 0; i < count; i++) {
          for (let j: usize = 0; j < width; j++) {
            const value = at + i * rowBytes + j * columnBytes;
            store<f32>(value, load<f32>(value) + load<f32>(sums + i * PANEL_BYTES + (j << 2)));
          }
        }
      }
      row += count;
    }
  }
}

/** Four rows of a panel. Each value is the sum of its products, in order, and then added. */
// @ts-ignore: a decorator of AssemblyScript
@inline
function addFour(left: usize, leftBytes: usize, panel: usize, to: usize, rowBytes: usize): void {
  const second = leftBytes;
  const third = leftBytes << 1;
  const fourth = third + leftBytes;
  const end = left + leftBytes;
  let a0 = f32x4.splat(0);
  let a1 = a0;
  let b0 = a0;
  let b1 = a0;
  let c0 = a0;
  let c1 = a0;
  let d0 = a0;
  let d1 = a0;
  for (; left < end; left += 4, panel += PANEL_BYTES) {
    const r0 = v128.load(panel);
    const r1 = v128.load(panel, 16);
    const a = v128.load_splat<f32>(left);
    a0 = f32x4.add(a0, f32x4.mul(a, r0));
    a1 = f32x4.add(a1, f32x4.mul(a, r1));
    const b = v128.load_splat<f32>(left + second);
    b0 = f32x4.add(b0, f32x4.mul(b, r0));
    b1 = f32x4.add(b1, f32x4.mul(b, r1));
    const c = v128.load_splat<f32>(left + third);
    c0 = f32x4.add(c0, f32x4.mul(c, r0));
    c1 = f32x4.add(c1, f32x4.mul(c, r1));
    const d = v128.load_splat<f32>(left + fourth);
    d0 = f32x4.add(d0, f32x4.mul(d, r0));
    d1 = f32x4.add(d1, f32x4.mul(d, r1));
  }
  addPanel(to, a0, a1);
  addPanel(to + rowBytes, b0, b1);
  addPanel(to + 2 * rowBytes, c0, c1);
  addPanel(to + 3 * rowBytes, d0, d1);
}

// @ts-ignore: a decorator of AssemblyScript
@inline
function addOne(left: usize, leftBytes: usize, panel: usize, to: usize): void {
  const end = left + leftBytes;
  let a0 = f32x4.splat(0);
  let a1 = a0;
  for (; left < end; left += 4, panel += PANEL_BYTES) {
    const a = v128.load_splat<f32>(left);
    a0 = f32x4.add(a0, f32x4.mul(a, v128.load(panel)));
    a1 = f32x4.add(a1, f32x4.mul(a, v128.load(panel, 16)));
  }
  addPanel(to, a0, a1);
}

// @ts-ignore: a decorator of AssemblyScript
@inline
function addPanel(to: usize, low: v128, high: v128): void {
  v128.store(to, f32x4.add(v128.load(to), low));
  v128.store(to, f32x4.add(v128.load(to, 16), high), 16);
}

/** `count` values of bfloat16 as float32. */
export function widen(from: usize, to: usize, count: usize): void {
  let i: usize = 0;
  for (; i + 8 <= count; i += 8) {
    const halves = v128.load(from + (i << 1));
    const at = to + (i << 2);
    v128.store(at, i32x4.shl(i32x4.extend_low_i16x8_u(halves), 16));
    v128.store(at, i32x4.shl(i32x4.extend_high_i16x8_u(halves), 16), 16);
  }
  for (; i < count; i++) store<u32>(to + (i << 2), (<u32>load<u16>(from + (i << 1))) << 16);
}

/** `count` values of float32 as bfloat16: rounded to nearest, ties to even; NaN stays NaN. */
export function narrow(from: usize, to: usize, count: usize): void {
  let i: usize = 0;
  for (; i + 8 <= count; i += 8) {
    const at = from + (i << 2);
    v128.store(to + (i << 1), i16x8.narrow_i32x4_u(rounded(v128.load(at)), rounded(v128.load(at, 16))));
  }
  for (; i < count; i++) {
    const bits = v128.load32_zero(from + (i << 2));
    store<u16>(to + (i << 1), <u16>i32x4.extract_lane(rounded(bits), 0));
  }
}

// @ts-ignore: a decorator of AssemblyScript
@inline
function rounded(bits: v128): v128 {
  const odd = v128.and(i32x4.shr_u(bits, 16), i32x4.splat(1));
  const nearest = i32x4.shr_u(i32x4.add(bits, i32x4.add(odd, i32x4.splat(0x7fff))), 16);
  const quiet = v128.or(i32x4.shr_u(bits, 16), i32x4.splat(0x40));
  return v128.bitselect(quiet, nearest, f32x4.ne(bits, bits));
}
