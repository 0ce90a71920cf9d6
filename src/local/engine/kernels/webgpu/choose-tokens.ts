import type { ChooseTokens, Draw, F32, I32, TopTokens } from "../kernels.js";
import { MAX_GREEDY_TEMPERATURE } from "../token-choice.js";
import { defineShader, shaderVariants } from "./shader.js";
import type { GpuContext } from "./webgpu-kernels.js";

/** Tokens whose weights one workgroup adds up. */
const BLOCK_TOKENS = 2048;
const SUM_LANES = 64;
/** Blocks of a vocabulary, as far as workgroup memory holds their sums. */
const MAX_BLOCKS = 1024;
/** Lanes that share the one block from which a token is drawn. */
const PICK_LANES = 32;
/** Words of a distribution in the table that the shaders read: see `drawTable`. */
const WORDS = 6;
/** What holds for a distribution without limits: every logit is above the lowest key. */
const [NO_KEY, NO_TIE] = [0, -1];

/**
 * `key_of` has the order of the logits in whole numbers. A distribution keeps the tokens above a key, and of those that have
 * this very key the ones up to a token, its last tie.
 */
const COMMON = /* wgsl */ `
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

struct Distribution { row: u32, start: u32, sharpness: f32, top_k: u32, top_p: f32, lowest_key: u32, last_tie: u32 }

fn distribution_of(index: u32) -> Distribution {
  let at = p.table_at + index * ${WORDS}u;
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
  params: { distributions: "u32", vocab_size: "u32", columns: "u32" },
  code: /* wgsl */ `
${COMMON}
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

/** The key at which what is wanted is reached, how much of that key is wanted, and how much there is. */
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
      // Rounded weights may fall short of what is wanted by a little: then everything is.
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
  if (limits.top_k == 0u && limits.top_p >= 1.0) { return; }
  var key = 0u;
  var kept = 0u;
  var present = 0u;
  if (limits.top_k > 0u) {
    let limit = find(lane, limits.start, Measure(limits.top_k, 0u, 0u, false, 0.0, 0.0, 0.0, 0.0));
    key = limit.key;
    kept = limit.wanted;
    present = limit.present;
  }
  if (limits.top_p < 1.0) {
    let largest = largest_of(lane, limits.start);
    var total = weight_above(lane, limits.start, key, largest, limits.sharpness);
    if (kept > 0u) { total += f32(kept) * weight_of(logit_of(key), largest, limits.sharpness); }
    // Tokens lighter than the least weigh less than 1 - topP together, so none of them is left.
    let least = max(0.5, (1.0 - limits.top_p) * ALL_WEIGHT / f32(p.vocab_size));
    let wanted = max(1u, u32(max(0.0, limits.top_p) * ALL_WEIGHT));
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
    let at = p.table_at + index * ${WORDS}u;
    table[at + 4u] = key;
    table[at + 5u] = last_tie;
  }
}`,
}));

/** The largest logit of each block that a distribution keeps, and the sum of its weights in relation to that. */
const BLOCK_SUMS = defineShader({
  name: "choose-tokens block sums",
  buffers: { largest_logits: "f32", sums: "f32", table: "u32", logits: "f32" },
  params: { distributions: "u32", blocks: "u32", vocab_size: "u32" },
  code: /* wgsl */ `
${COMMON}
var<workgroup> partial: array<f32, ${SUM_LANES}>;

@compute @workgroup_size(${SUM_LANES})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let index = flat(group);
  if (index >= p.distributions * p.blocks) { return; }
  let distribution = distribution_of(index / p.blocks);
  let first = (index % p.blocks) * ${BLOCK_TOKENS}u + lane;
  var values: array<f32, ${BLOCK_TOKENS / SUM_LANES}>;
  var is_kept: array<bool, ${BLOCK_TOKENS / SUM_LANES}>;
  var largest = LOWEST;
  for (var i = 0u; i < ${BLOCK_TOKENS / SUM_LANES}u; i++) {
    let token = first + i * ${SUM_LANES}u;
    is_kept[i] = false;
    if (token < p.vocab_size) {
      values[i] = max(logits[distribution.start + token], LOWEST);
      is_kept[i] = keeps(distribution, values[i], token);
      if (is_kept[i]) { largest = max(largest, values[i]); }
    }
  }
  partial[lane] = largest;
  for (var width = ${SUM_LANES / 2}u; width > 0u; width /= 2u) {
    workgroupBarrier();
    if (lane < width) { partial[lane] = max(partial[lane], partial[lane + width]); }
  }
  workgroupBarrier();
  largest = partial[0];
  workgroupBarrier();
  var sum = 0.0;
  for (var i = 0u; i < ${BLOCK_TOKENS / SUM_LANES}u; i++) {
    if (is_kept[i]) { sum += weight_of(values[i], largest, distribution.sharpness); }
  }
  partial[lane] = sum;
  for (var width = ${SUM_LANES / 2}u; width > 0u; width /= 2u) {
    workgroupBarrier();
    if (lane < width) { partial[lane] += partial[lane + width]; }
  }
  if (lane == 0u) {
    largest_logits[p.largest_logits_at + index] = largest;
    sums[p.sums_at + index] = partial[0];
  }
}`,
});

/**
 * Goes through the blocks, then through the lanes' parts of one block, then through one part, to the first token behind which
 * the running sum exceeds the random number's share. What weighs nothing is never taken.
 */
const PICK = defineShader({
  name: "choose-tokens pick",
  buffers: {
    tokens: "i32",
    logprobs: "f32",
    largest_logits: "f32",
    sums: "f32",
    table: "u32",
    logits: "f32",
    log_sum_exp: "f32",
  },
  params: { distributions: "u32", draws: "u32", blocks: "u32", vocab_size: "u32" },
  code: /* wgsl */ `
${COMMON}
const LANES = ${PICK_LANES}u;
const PART = ${BLOCK_TOKENS / PICK_LANES}u;
struct Place { at: u32, before: f32, threshold: f32 }

var<workgroup> block_weights: array<f32, ${MAX_BLOCKS}>;
var<workgroup> part_weights: array<f32, LANES>;
var<workgroup> block: Place;
var<workgroup> part: Place;

fn token_weight(distribution: Distribution, token: u32, largest: f32) -> f32 {
  if (token >= p.vocab_size) { return 0.0; }
  let logit = max(logits[distribution.start + token], LOWEST);
  if (!keeps(distribution, logit, token)) { return 0.0; }
  if (distribution.sharpness == 0.0) { return f32(logit == largest); }
  return weight_of(logit, largest, distribution.sharpness);
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let index = flat(group);
  if (index >= p.draws) { return; }
  let at = p.table_at + p.distributions * ${WORDS}u + 2u * index;
  let distribution = distribution_of(table[at]);
  let blocks_at = table[at] * p.blocks;

  for (var i = lane; i < p.blocks; i += LANES) {
    block_weights[i] = largest_logits[p.largest_logits_at + blocks_at + i];
  }
  workgroupBarrier();
  var largest = LOWEST;
  for (var i = 0u; i < p.blocks; i++) { largest = max(largest, block_weights[i]); }
  workgroupBarrier();
  for (var i = lane; i < p.blocks; i += LANES) {
    let block_largest = block_weights[i];
    if (distribution.sharpness == 0.0) { block_weights[i] = f32(block_largest == largest); }
    else {
      let share = weight_of(block_largest, largest, distribution.sharpness);
      block_weights[i] = share * sums[p.sums_at + blocks_at + i];
    }
  }
  workgroupBarrier();
  if (lane == 0u) {
    var total = 0.0;
    for (var i = 0u; i < p.blocks; i++) { total += block_weights[i]; }
    let threshold = bitcast<f32>(table[at + 1u]) * total;
    var running = 0.0;
    block = Place(0u, 0.0, threshold);
    for (var i = 0u; i < p.blocks; i++) {
      if (block_weights[i] > 0.0) {
        block = Place(i, running, threshold);
        running += block_weights[i];
        if (running > threshold) { break; }
      }
    }
  }
  workgroupBarrier();

  let first = block.at * ${BLOCK_TOKENS}u + lane * PART;
  var sum = 0.0;
  for (var i = 0u; i < PART; i++) { sum += token_weight(distribution, first + i, largest); }
  part_weights[lane] = sum;
  workgroupBarrier();
  if (lane == 0u) {
    var running = block.before;
    part = Place(0u, running, block.threshold);
    for (var i = 0u; i < LANES; i++) {
      if (part_weights[i] > 0.0) {
        part = Place(i, running, block.threshold);
        running += part_weights[i];
        if (running > block.threshold) { break; }
      }
    }
  }
  workgroupBarrier();
  if (lane != part.at) { return; }
  var token = first;
  var running = part.before;
  for (var i = 0u; i < PART; i++) {
    let weight = token_weight(distribution, first + i, largest);
    if (weight > 0.0) {
      token = first + i;
      running += weight;
      if (running > part.threshold) { break; }
    }
  }
  tokens[p.tokens_at + index] = i32(token);
  let logprob = logits[distribution.start + token] - log_sum_exp[p.log_sum_exp_at + distribution.row];
  logprobs[p.logprobs_at + index] = logprob;
}`,
});

/** Gathers the tokens that a limit leaves, then gives each its place. */
const LIST = defineShader({
  name: "top-tokens list",
  buffers: {
    tokens: "i32",
    logprobs: "f32",
    gathered: "u32",
    table: "u32",
    logits: "f32",
    log_sum_exp: "f32",
  },
  params: { rows: "u32", vocab_size: "u32", columns: "u32" },
  code: /* wgsl */ `
${COMMON}
var<workgroup> count: atomic<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = flat(group);
  if (row >= p.rows) { return; }
  let distribution = distribution_of(row);
  let start = p.logits_at + row * p.vocab_size;
  let list_at = p.gathered_at + row * p.columns;
  for (var token = lane; token < p.vocab_size; token += 256u) {
    if (keeps(distribution, logits[start + token], token)) {
      let at = atomicAdd(&count, 1u);
      if (at < p.columns) { gathered[list_at + at] = token; }
    }
  }
  storageBarrier();
  workgroupBarrier();
  let length = min(p.columns, atomicLoad(&count));
  for (var entry = lane; entry < length; entry += 256u) {
    let token = gathered[list_at + entry];
    let logit = logits[start + token];
    let key = key_of(logit);
    var place = 0u;
    for (var other = 0u; other < length; other++) {
      let other_token = gathered[list_at + other];
      let other_key = key_of(logits[start + other_token]);
      place += u32(other_key > key || (other_key == key && other_token < token));
    }
    let at = row * p.columns + place;
    tokens[p.tokens_at + at] = i32(token);
    logprobs[p.logprobs_at + at] = logit - log_sum_exp[p.log_sum_exp_at + row];
  }
}`,
});

/** Sums of blocks, then one workgroup a draw; where tokens are left out, their limit is found before. */
export function chooseTokens(context: GpuContext, operation: ChooseTokens): void {
  const { tokens, logprobs, logits, logSumExp, vocabSize, draws } = operation;
  if (draws.length === 0) return;
  const blocks = Math.ceil(vocabSize / BLOCK_TOKENS);
  if (blocks > MAX_BLOCKS)
    throw new RangeError(`${vocabSize} tokens: at most ${MAX_BLOCKS * BLOCK_TOKENS} can be drawn from`);
  const mark = context.mark();
  const { words, distributions, isLimited } = drawTable(draws, vocabSize);
  const table = context.scratchInts(words.length);
  context.uploadInts(table, words);
  if (isLimited) findLimits(context, { table, logits, distributions, vocabSize, columns: 0 });
  const largest_logits = context.scratch(distributions * blocks);
  const sums = context.scratch(distributions * blocks);
  context.queue.run(BLOCK_SUMS, {
    buffers: { largest_logits, sums, table, logits },
    params: { distributions, blocks, vocab_size: vocabSize },
    workgroups: distributions * blocks,
  });
  context.queue.run(PICK, {
    buffers: { tokens, logprobs, largest_logits, sums, table, logits, log_sum_exp: logSumExp },
    params: { distributions, draws: draws.length, blocks, vocab_size: vocabSize },
    workgroups: draws.length,
  });
  context.release(mark);
}

/** The limit that leaves as many tokens as there are columns, and a workgroup that puts them in order. */
export function topTokens(context: GpuContext, operation: TopTokens): void {
  const { tokens, logprobs, logits, logSumExp, rows, vocabSize, columns } = operation;
  if (rows === 0 || columns === 0) return;
  const mark = context.mark();
  const table = context.scratchInts(rows * WORDS);
  findLimits(context, { table, logits, distributions: rows, vocabSize, columns });
  const gathered = context.scratchInts(rows * columns);
  context.queue.run(LIST, {
    buffers: { tokens, logprobs, gathered, table, logits, log_sum_exp: logSumExp },
    params: { rows, vocab_size: vocabSize, columns },
    workgroups: rows,
  });
  context.release(mark);
}

interface LimitSearch {
  table: I32;
  logits: F32;
  distributions: number;
  vocabSize: number;
  /** Where not 0, this many tokens of every row are wanted, and the table is only written. */
  columns: number;
}

function findLimits({ queue, gpu }: GpuContext, search: LimitSearch): void {
  const { table, logits, distributions, vocabSize, columns } = search;
  const { maxComputeInvocationsPerWorkgroup, maxComputeWorkgroupSizeX } = gpu.device.limits;
  const isWide = Math.min(maxComputeInvocationsPerWorkgroup, maxComputeWorkgroupSizeX) >= 1024;
  queue.run(LIMITS(isWide ? 1024 : 256), {
    buffers: { table, logits },
    params: { distributions, vocab_size: vocabSize, columns },
    workgroups: distributions,
  });
}

/**
 * First the distributions: row, 1 / temperature (0: the likeliest token), top-k and top-p where they leave something out, and
 * their limit. Then for each draw its distribution, which neighbours share, and its random number.
 */
function drawTable(
  draws: readonly Draw[],
  vocabSize: number,
): { words: Int32Array; distributions: number; isLimited: boolean } {
  const table: number[] = [];
  const floats = new Float32Array(1);
  const bits = new Int32Array(floats.buffer);
  const bitsOf = (value: number) => {
    floats[0] = value;
    return bits[0]!;
  };
  const picks = new Int32Array(2 * draws.length);
  let isLimited = false;
  draws.forEach(({ row, temperature, topK, topP, random }, index) => {
    const isGreedy = temperature < MAX_GREEDY_TEMPERATURE || topK === 1;
    const before = draws[index - 1];
    const isShared =
      before?.row === row &&
      before.temperature === temperature &&
      before.topK === topK &&
      before.topP === topP;
    if (!isShared) {
      const limitK = !isGreedy && topK > 0 && topK < vocabSize ? topK : 0;
      const limitP = isGreedy ? 1 : Math.min(1, topP);
      isLimited ||= limitK > 0 || limitP < 1;
      table.push(row, bitsOf(isGreedy ? 0 : 1 / temperature), limitK, bitsOf(limitP), NO_KEY, NO_TIE);
    }
    picks[2 * index] = table.length / WORDS - 1;
    picks[2 * index + 1] = bitsOf(isGreedy ? 0 : Math.min(random, 1 - 2 ** -24));
  });
  return {
    words: Int32Array.from([...table, ...picks]),
    distributions: table.length / WORDS,
    isLimited,
  };
}
