// Deterministic exp and log: the same bits on every machine (in the plain build), unlike Math.exp.
import { madd, nmadd } from "./vector";

// V8 rebuilds vector constants from immediates inside every loop, which takes half of the time of `exp4`. Loading them
// costs next to nothing, so they lie in the memory that the pool reserves (see pool.ts).
const CONSTANTS: usize = 1024;

export function writeConstants(): void {
  store<f32>(CONSTANTS, -104);
  store<f32>(CONSTANTS, 89, 4);
  store<f32>(CONSTANTS, 1.44269504088896341, 8);
  store<f32>(CONSTANTS, 12582912, 12);
  store<f32>(CONSTANTS, 0.693359375, 16);
  store<f32>(CONSTANTS, -2.12194440e-4, 20);
  store<f32>(CONSTANTS, 1.9875691500e-4, 24);
  store<f32>(CONSTANTS, 1.3981999507e-3, 28);
  store<f32>(CONSTANTS, 8.3334519073e-3, 32);
  store<f32>(CONSTANTS, 4.1665795894e-2, 36);
  store<f32>(CONSTANTS, 1.6666665459e-1, 40);
  store<f32>(CONSTANTS, 5.0000001201e-1, 44);
  store<f32>(CONSTANTS, 1, 48);
  store<i32>(CONSTANTS, 127, 52);
}

// @ts-ignore: decorator
@inline
export function one4(): v128 {
  return v128.load_splat<f32>(CONSTANTS + 48);
}

/** e^x to about one unit in the last place (range reduction and polynomial of Cephes' expf). */
// @ts-ignore: decorator
@inline
export function exp4(value: v128): v128 {
  // pmax and pmin are one instruction each where max and min are ten; in this order they let NaN through.
  const x = f32x4.pmin(f32x4.pmax(value, v128.load_splat<f32>(CONSTANTS)), v128.load_splat<f32>(CONSTANTS + 4));
  // Adding 1.5 * 2^23 rounds to a whole number and leaves that number in the low bits.
  const magic = v128.load_splat<f32>(CONSTANTS + 12);
  const shifted = madd(x, v128.load_splat<f32>(CONSTANTS + 8), magic);
  const n = f32x4.sub(shifted, magic);
  let r = nmadd(n, v128.load_splat<f32>(CONSTANTS + 16), x);
  r = nmadd(n, v128.load_splat<f32>(CONSTANTS + 20), r);
  // By pairs rather than by Horner's rule: the shorter chain of dependences is what counts here.
  const r2 = f32x4.mul(r, r);
  const low = madd(v128.load_splat<f32>(CONSTANTS + 40), r, v128.load_splat<f32>(CONSTANTS + 44));
  const middle = madd(v128.load_splat<f32>(CONSTANTS + 32), r, v128.load_splat<f32>(CONSTANTS + 36));
  const high = madd(v128.load_splat<f32>(CONSTANTS + 24), r, v128.load_splat<f32>(CONSTANTS + 28));
  let p = madd(high, f32x4.mul(r2, r2), madd(middle, r2, low));
  p = f32x4.add(madd(p, r2, r), one4());
  // Two factors, so that results below the smallest normal number and above the largest come out right.
  const exponent = i32x4.sub(shifted, magic);
  const half = i32x4.shr_s(exponent, 1);
  const rest = i32x4.sub(exponent, half);
  const bias = v128.load_splat<i32>(CONSTANTS + 52);
  p = f32x4.mul(p, i32x4.shl(i32x4.add(half, bias), 23));
  return f32x4.mul(p, i32x4.shl(i32x4.add(rest, bias), 23));
}

/** Natural logarithm of a positive normal number, computed in float64 and rounded once. */
export function log1(x: f32): f32 {
  if (x == Infinity) return Infinity;
  const bits = reinterpret<i32>(x);
  let exponent = ((bits >> 23) & 255) - 127;
  let mantissa = <f64>reinterpret<f32>((bits & 0x7fffff) | 0x3f800000);
  if (mantissa > 1.4142135623730951) {
    mantissa *= 0.5;
    exponent += 1;
  }
  const s = (mantissa - 1) / (mantissa + 1);
  const z = s * s;
  const series = 1 + z * (1 / 3.0 + z * (1 / 5.0 + z * (1 / 7.0 + z * (1 / 9.0 + z * (1 / 11.0 + z * (1 / 13.0))))));
  return <f32>(2 * s * series + <f64>exponent * 0.6931471805599453);
}

/** For tests: out[i] = exp(x[i]), n a multiple of 4; then out[i] = log(x[i]). */
export function expArray(out: usize, x: usize, n: usize): void {
  for (let i: usize = 0; i < n; i += 4) v128.store(out + (i << 2), exp4(v128.load(x + (i << 2))));
}

export function logArray(out: usize, x: usize, n: usize): void {
  for (let i: usize = 0; i < n; i++) store<f32>(out + (i << 2), log1(load<f32>(x + (i << 2))));
}
