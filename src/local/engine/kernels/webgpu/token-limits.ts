import type { F32, I32 } from "../kernels.js";
import { shaderVariants } from "./shader.js";
import type { GpuContext } from "./webgpu-kernels.js";

/**
 * Words of a distribution in the table that the shaders read: row, 1 / temperature (0: the likeliest token), top-k (0: all tokens)
 * and top-p (1: all weight), and the limit.
 */
export const DISTRIBUTION_WORDS = 6;
/** The limit of a distribution that keeps all tokens: every logit is above the lowest key. */
export const NO_LIMIT = [0, -1] as const;

/**
 * `key_of` has the order of the logits in whole numbers. A distribution keeps the tokens above a key, and of those that have
 * this very key the ones up to a token, its last tie.
 */
export const DISTRIBUTIONS = /* wgsl */ `
const LOWEST = -3.4e38;

fn key_of(logit: f32) -> u32 {
  let bits = bitcast<u32>(select(logit, 0.0, logit == 0.0));
  return select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
}

fn logit_of(key: u32) -> f32 {
  return bitcast<f32>(select(~key, key & 0x7fffffffu, key >= 0x80000000u));
}

fn weight_of(logit: f32, largest: f32, sharpness: f32) -> f32 {
  let exponent = (logit - largest) * sharpness;
  return select(exp(exponent), 0.0, exponent < -45.0);
}

struct Distribution { row: u32, start: u32, sharpness: f32, limit_tokens: u32, limit_weight: f32, lowest_key: u32, last_tie: u32 }

fn distribution_of(index: u32) -> Distribution {
  let at = p.table_at + index * ${DISTRIBUTION_WORDS}u;
  return Distribution(
    table[at],
    p.logits_at + table[at] * p.vocab_size,
    bitcast<f32>(table[at + 1u]),
    table[at + 2u],
    bitcast<f32>(table[at + 3u]),
    table[at + 4u],
    table[at + 5u],
  );
}

fn keeps(distribution: Distribution, logit: f32, token: u32) -> bool {
  let key = key_of(logit);
  return key > distribution.lowest_key || (key == distribution.lowest_key && token <= distribution.last_tie);
}`;

/**
 * Finds the lowest key that top-k, then top-p leave, by its bytes from the highest on: bins of how many tokens, or
 * how much of their weight, each value of the byte has. Weights are whole numbers there, so that they can be added in any order.
 */
const LIMITS = shaderVariants((threads: number) => ({
  name: `choose-tokens limits ${threads}`,
  buffers: { table: "u32", logits: "f32" },
  ints: ["distributions", "vocab_size", "columns"],
  code: /* wgsl */ `
${DISTRIBUTIONS}
const ALL_WEIGHT = 1073741824.0;

/** Tokens above the floor count, each as one or by its weight; those at the floor have one amount together. */
struct Measure {
  wanted: u32,
  floor: u32,
  floor_amount: u32,
  by_weight: bool,
  largest: f32,
  sharpness: f32,
  scale: f32,
  least: f32,
}
struct Found { key: u32, wanted: u32, present: u32 }

var<workgroup> asked: Distribution;
var<workgroup> found: Found;
var<workgroup> bins: array<atomic<u32>, 256>;
var<workgroup> partial: array<f32, ${threads}>;
var<workgroup> counts: array<u32, ${threads}>;

fn amount_of(logit: f32, measure: Measure) -> u32 {
  if (!measure.by_weight) { return 1u; }
  let amount = weight_of(logit, measure.largest, measure.sharpness) * measure.scale;
  return select(u32(amount + 0.5), 0u, amount < measure.least);
}

/** The key at which the wanted amount is reached, how much of that key is taken, and how much there is. */
fn find(lane: u32, start: u32, measure: Measure) -> Found {
  if (lane == 0u) { found = Found(0u, measure.wanted, 0u); }
  var mask = 0u;
  for (var byte = 0u; byte < 4u; byte++) {
    let shift = 24u - 8u * byte;
    for (var bin = lane; bin < 256u; bin += ${threads}u) { atomicStore(&bins[bin], 0u); }
    let so_far = workgroupUniformLoad(&found);
    if (lane == 0u && (measure.floor & mask) == so_far.key) {
      atomicAdd(&bins[(measure.floor >> shift) & 255u], measure.floor_amount);
    }
    for (var token = lane; token < p.vocab_size; token += ${threads}u) {
      let logit = logits[start + token];
      let key = key_of(logit);
      if (key > measure.floor && (key & mask) == so_far.key) {
        let amount = amount_of(logit, measure);
        if (amount > 0u) { atomicAdd(&bins[(key >> shift) & 255u], amount); }
      }
    }
    workgroupBarrier();
    if (lane == 0u) {
      var wanted = so_far.wanted;
      var digit = 0u;
      var present = 0u;
      var is_reached = false;
      for (var down = 0u; down < 256u; down++) {
        let amount = atomicLoad(&bins[255u - down]);
        if (amount > 0u) {
          digit = 255u - down;
          present = amount;
          is_reached = amount >= wanted;
          if (is_reached) { break; }
          wanted -= amount;
        }
      }
      // Rounded weights may be slightly less than the wanted amount: then everything is taken.
      found = Found(so_far.key | (digit << shift), select(present, wanted, is_reached), present);
    }
    mask |= 255u << shift;
  }
  return workgroupUniformLoad(&found);
}

fn largest_of(lane: u32, start: u32) -> f32 {
  var largest = LOWEST;
  for (var token = lane; token < p.vocab_size; token += ${threads}u) { largest = max(largest, logits[start + token]); }
  partial[lane] = largest;
  for (var width = ${threads / 2}u; width > 0u; width /= 2u) {
    workgroupBarrier();
    if (lane < width) { partial[lane] = max(partial[lane], partial[lane + width]); }
  }
  return workgroupUniformLoad(&partial[0]);
}

fn weight_above(lane: u32, start: u32, key: u32, largest: f32, sharpness: f32) -> f32 {
  var sum = 0.0;
  for (var token = lane; token < p.vocab_size; token += ${threads}u) {
    let logit = logits[start + token];
    if (key_of(logit) > key) { sum += weight_of(logit, largest, sharpness); }
  }
  partial[lane] = sum;
  for (var width = ${threads / 2}u; width > 0u; width /= 2u) {
    workgroupBarrier();
    if (lane < width) { partial[lane] += partial[lane + width]; }
  }
  return workgroupUniformLoad(&partial[0]);
}

/** The token that is number \`count\` among those with this key. */
fn last_tie_of(lane: u32, start: u32, key: u32, count: u32) -> u32 {
  let part = (p.vocab_size + ${threads - 1}u) / ${threads}u;
  let end = min(p.vocab_size, (lane + 1u) * part);
  var ties = 0u;
  for (var token = lane * part; token < end; token++) { ties += u32(key_of(logits[start + token]) == key); }
  counts[lane] = ties;
  workgroupBarrier();
  if (lane == 0u) {
    var before = 0u;
    var at = 0u;
    while (at < ${threads - 1}u && before + counts[at] < count) {
      before += counts[at];
      at++;
    }
    found = Found(at, count - before, 0u);
  }
  let place = workgroupUniformLoad(&found);
  var token = place.key * part;
  var left = place.wanted;
  loop {
    if (token >= p.vocab_size) { break; }
    left -= u32(key_of(logits[start + token]) == key);
    if (left == 0u) { break; }
    token++;
  }
  return token;
}

@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let index = flat(group);
  if (index >= p.distributions) { return; }
  if (lane == 0u) {
    if (p.columns > 0u) { asked = Distribution(index, p.logits_at + index * p.vocab_size, 0.0, p.columns, 1.0, 0u, 0u); }
    else { asked = distribution_of(index); }
  }
  let limits = workgroupUniformLoad(&asked);
  if (limits.limit_tokens == 0u && limits.limit_weight >= 1.0) { return; }
  var key = 0u;
  var kept = 0u;
  var present = 0u;
  if (limits.limit_tokens > 0u) {
    let limit = find(lane, limits.start, Measure(limits.limit_tokens, 0u, 0u, false, 0.0, 0.0, 0.0, 0.0));
    key = limit.key;
    kept = limit.wanted;
    present = limit.present;
  }
  if (limits.limit_weight < 1.0) {
    let largest = largest_of(lane, limits.start);
    var total = weight_above(lane, limits.start, key, largest, limits.sharpness);
    if (kept > 0u) { total += f32(kept) * weight_of(logit_of(key), largest, limits.sharpness); }
    // Tokens lighter than the least weigh less than 1 - topP together, so none of them is left.
    let least = max(0.5, (1.0 - limits.limit_weight) * ALL_WEIGHT / f32(p.vocab_size));
    let wanted = max(1u, u32(max(0.0, limits.limit_weight) * ALL_WEIGHT));
    var measure = Measure(wanted, key, 0u, true, largest, limits.sharpness, ALL_WEIGHT / total, least);
    if (kept > 0u) { measure.floor_amount = kept * amount_of(logit_of(key), measure); }
    let limit = find(lane, limits.start, measure);
    let unit = max(1u, amount_of(logit_of(limit.key), measure));
    let needed = (limit.wanted + unit - 1u) / unit;
    if (limit.key == key) { kept = min(needed, kept); }
    else {
      key = limit.key;
      kept = needed;
      present = limit.present / unit;
    }
  }
  var last_tie = 0xffffffffu;
  if (kept < present) { last_tie = last_tie_of(lane, limits.start, key, kept); }
  if (lane == 0u) {
    let at = p.table_at + index * ${DISTRIBUTION_WORDS}u;
    table[at + 4u] = key;
    table[at + 5u] = last_tie;
  }
}`,
}));

/** Where the limits are written, and what they are found in. */
export interface LimitSearch {
  table: I32;
  logits: F32;
  distributions: number;
  vocabSize: number;
  /** If not 0, this many tokens of every row are taken, and the table is only written. */
  columns: number;
}

/** One workgroup a distribution. */
export function findLimits({ queue, gpu }: GpuContext, search: LimitSearch): void {
  const { table, logits, distributions, vocabSize, columns } = search;
  const { maxComputeInvocationsPerWorkgroup, maxComputeWorkgroupSizeX } = gpu.device.limits;
  const isWide = Math.min(maxComputeInvocationsPerWorkgroup, maxComputeWorkgroupSizeX) >= 1024;
  queue.run(LIMITS(isWide ? 1024 : 256), {
    buffers: { table, logits },
    params: { distributions, vocab_size: vocabSize, columns },
    workgroups: distributions,
  });
}
