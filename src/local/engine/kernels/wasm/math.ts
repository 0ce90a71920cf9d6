// Deterministic exp and log: the same bits on every machine, unlike Math.exp.

/** e^x to about one unit in the last place (range reduction and polynomial of Cephes' expf). */
// @ts-ignore: decorator
@inline
export function exp4(value: v128): v128 {
  const x = f32x4.min(f32x4.max(value, f32x4.splat(-104)), f32x4.splat(89));
  const n = f32x4.nearest(f32x4.mul(x, f32x4.splat(1.44269504088896341)));
  let r = f32x4.sub(x, f32x4.mul(n, f32x4.splat(0.693359375)));
  r = f32x4.sub(r, f32x4.mul(n, f32x4.splat(-2.12194440e-4)));
  let p = f32x4.splat(1.9875691500e-4);
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(1.3981999507e-3));
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(8.3334519073e-3));
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(4.1665795894e-2));
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(1.6666665459e-1));
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(5.0000001201e-1));
  p = f32x4.add(f32x4.add(f32x4.mul(p, f32x4.mul(r, r)), r), f32x4.splat(1));
  // Two factors, so that results below the smallest normal number and above the largest come out right.
  const exponent = i32x4.trunc_sat_f32x4_s(n);
  const half = i32x4.shr_s(exponent, 1);
  const rest = i32x4.sub(exponent, half);
  const bias = i32x4.splat(127);
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
