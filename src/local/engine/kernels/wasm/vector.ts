// Vector helpers shared by all kernels. `madd` and `nmadd` are all that differs between the plain and relaxed builds.

// @ts-ignore: decorator
@inline
export function madd(a: v128, b: v128, sum: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return v128.relaxed_madd<f32>(a, b, sum);
  return f32x4.add(sum, f32x4.mul(a, b));
}

/** sum - a * b */
// @ts-ignore: decorator
@inline
export function nmadd(a: v128, b: v128, sum: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return v128.relaxed_nmadd<f32>(a, b, sum);
  return f32x4.sub(sum, f32x4.mul(a, b));
}

// @ts-ignore: decorator
@inline
export function zip64low(a: v128, b: v128): v128 {
  return v128.shuffle<i64>(a, b, 0, 2);
}

// @ts-ignore: decorator
@inline
export function zip64high(a: v128, b: v128): v128 {
  return v128.shuffle<i64>(a, b, 1, 3);
}

// @ts-ignore: decorator
@inline
export function zip32low(a: v128, b: v128): v128 {
  return v128.shuffle<f32>(a, b, 0, 4, 1, 5);
}

// @ts-ignore: decorator
@inline
export function zip32high(a: v128, b: v128): v128 {
  return v128.shuffle<f32>(a, b, 2, 6, 3, 7);
}

/** The first `count` (1 to 3) floats at `pointer`; the other lanes are zero. */
export function loadPartial(pointer: usize, count: usize): v128 {
  if (count == 1) return v128.load32_zero(pointer);
  const pair = v128.load64_zero(pointer);
  return count == 2 ? pair : v128.load32_lane(pointer, pair, 2, 8);
}

export function storePartial(pointer: usize, value: v128, count: usize): void {
  if (count == 1) {
    v128.store32_lane(pointer, value, 0);
    return;
  }
  v128.store64_lane(pointer, value, 0);
  if (count == 3) v128.store32_lane(pointer, value, 2, 8);
}

/** The first `count` floats at `pointer`, at most four; where `count` is known to the compiler, nothing is decided at run time. */
// @ts-ignore: decorator
@inline
export function fetch(pointer: usize, count: usize): v128 {
  return count >= 4 ? v128.load(pointer) : loadPartial(pointer, count);
}

// @ts-ignore: decorator
@inline
export function put(pointer: usize, value: v128, count: usize): void {
  if (count >= 4) v128.store(pointer, value);
  else storePartial(pointer, value, count);
}

/** (l0 + l1) + (l2 + l3) */
// @ts-ignore: decorator
@inline
export function sumLanes(x: v128): f32 {
  return f32x4.extract_lane(x, 0) + f32x4.extract_lane(x, 1) + (f32x4.extract_lane(x, 2) + f32x4.extract_lane(x, 3));
}

// @ts-ignore: decorator
@inline
export function maxLanes(x: v128): f32 {
  return max<f32>(
    max<f32>(f32x4.extract_lane(x, 0), f32x4.extract_lane(x, 1)),
    max<f32>(f32x4.extract_lane(x, 2), f32x4.extract_lane(x, 3)),
  );
}
