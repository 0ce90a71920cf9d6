// The product of two low-rank matrices, in float32. AssemblyScript: compiled by `npm run generate:kernels`.

/** out[rows, columns] = left[rows, rank] * right[rank, columns]. */
export function multiply(left: usize, right: usize, out: usize, rows: usize, rank: usize, columns: usize): void {
  const rowBytes = columns << 2;
  const leftBytes = rank << 2;
  let column: usize = 0;
  // 16 columns of `right` stay in the fastest cache for all rows.
  for (; column + 16 <= columns; column += 16) {
    const from = right + (column << 2);
    const to = out + (column << 2);
    let row: usize = 0;
    for (; row + 2 <= rows; row += 2) {
      let a0 = f32x4.splat(0);
      let a1 = a0;
      let a2 = a0;
      let a3 = a0;
      let b0 = a0;
      let b1 = a0;
      let b2 = a0;
      let b3 = a0;
      let factor = left + row * leftBytes;
      const end = factor + leftBytes;
      for (let at = from; factor < end; factor += 4, at += rowBytes) {
        const f = v128.load_splat<f32>(factor);
        const g = v128.load_splat<f32>(factor + leftBytes);
        const r0 = v128.load(at);
        const r1 = v128.load(at, 16);
        const r2 = v128.load(at, 32);
        const r3 = v128.load(at, 48);
        a0 = f32x4.add(a0, f32x4.mul(f, r0));
        a1 = f32x4.add(a1, f32x4.mul(f, r1));
        a2 = f32x4.add(a2, f32x4.mul(f, r2));
        a3 = f32x4.add(a3, f32x4.mul(f, r3));
        b0 = f32x4.add(b0, f32x4.mul(g, r0));
        b1 = f32x4.add(b1, f32x4.mul(g, r1));
        b2 = f32x4.add(b2, f32x4.mul(g, r2));
        b3 = f32x4.add(b3, f32x4.mul(g, r3));
      }
      const first = to + row * rowBytes;
      v128.store(first, a0);
      v128.store(first, a1, 16);
      v128.store(first, a2, 32);
      v128.store(first, a3, 48);
      const second = first + rowBytes;
      v128.store(second, b0);
      v128.store(second, b1, 16);
      v128.store(second, b2, 32);
      v128.store(second, b3, 48);
    }
    if (row < rows) {
      for (let i: usize = 0; i < 16; i++) one(left, right, out, row, column + i, rank, columns);
    }
  }
  for (; column < columns; column++) {
    for (let row: usize = 0; row < rows; row++) one(left, right, out, row, column, rank, columns);
  }
}

/** One value, with the same order of sums. */
function one(left: usize, right: usize, out: usize, row: usize, column: usize, rank: usize, columns: usize): void {
  let sum: f32 = 0;
  for (let k: usize = 0; k < rank; k++) {
    sum += load<f32>(left + ((row * rank + k) << 2)) * load<f32>(right + ((k * columns + column) << 2));
  }
  store<f32>(out + ((row * columns + column) << 2), sum);
}
