// Rows copied to and from tables by index.
import { pointer } from "./pool";
import { fetch, put } from "./vector";

export function gatherRows(start: usize, end: usize): void {
  const bytes = pointer(3) << 2;
  for (let row = start; row < end; row++) {
    memory.copy(pointer(0) + row * bytes, pointer(1) + load<usize>(pointer(2) + (row << 2)) * bytes, bytes);
  }
}

export function scatterRows(start: usize, end: usize): void {
  const bytes = pointer(4) << 2;
  for (let row = start; row < end; row++) {
    memory.copy(pointer(0) + load<usize>(pointer(3) + (row << 2)) * bytes, pointer(1) + row * pointer(2), bytes);
  }
}

// @ts-ignore: decorator
@inline
function addTo(to: usize, from: usize, count: usize): void {
  put(to, f32x4.add(fetch(to, count), fetch(from, count)), count);
}

/** Cut by columns, so that rows are added in order on any number of threads. */
export function scatterAddRows(start: usize, end: usize): void {
  const cols = pointer(3);
  const rows = pointer(4);
  const whole = ((end - start) & ~3) << 2;
  const rest = (end - start) & 3;
  for (let row: usize = 0; row < rows; row++) {
    const to = pointer(0) + ((load<usize>(pointer(2) + (row << 2)) * cols + start) << 2);
    const from = pointer(1) + ((row * cols + start) << 2);
    for (let i: usize = 0; i < whole; i += 16) addTo(to + i, from + i, 4);
    if (rest > 0) addTo(to + whole, from + whole, rest);
  }
}
