import type { ChooseTokens, Draw, TopTokensOperation } from "../kernels.js";
import { MAX_GREEDY_TEMPERATURE } from "../token-choice.js";
import { defineShader } from "./shader.js";
import { DISTRIBUTION_WORDS, DISTRIBUTIONS, findLimits, NO_LIMIT } from "./token-limits.js";
import type { GpuContext } from "./webgpu-kernels.js";

/** Tokens whose weights one workgroup adds up. */
const BLOCK_TOKENS = 2048;
const SUM_LANES = 64;
/** Blocks of a vocabulary, as far as workgroup memory holds their sums. */
const MAX_BLOCKS = 1024;
/** Lanes that share the one block from which a token is drawn. */
const PICK_LANES = 32;

/** The largest logit of each block that a distribution keeps, and the sum of its weights in relation to that. */
const BLOCK_SUMS = defineShader({
  name: "choose-tokens block sums",
  buffers: { largest_logits: "f32", sums: "f32", table: "u32", logits: "f32" },
  ints: ["distributions", "blocks", "vocab_size"],
  code: /* wgsl */ `
${DISTRIBUTIONS}
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
  ints: ["distributions", "draws", "blocks", "vocab_size"],
  code: /* wgsl */ `
${DISTRIBUTIONS}
const LANES = ${PICK_LANES}u;
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
  let at = p.table_at + p.distributions * ${DISTRIBUTION_WORDS}u + 2u * index;
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

  let block_start = block.at * ${BLOCK_TOKENS}u;
  let part_length = (min(${BLOCK_TOKENS}u, p.vocab_size - block_start) + LANES - 1u) / LANES;
  let first = block_start + lane * part_length;
  var sum = 0.0;
  for (var i = 0u; i < part_length; i++) { sum += token_weight(distribution, first + i, largest); }
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
  for (var i = 0u; i < part_length; i++) {
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
  ints: ["rows", "vocab_size", "columns"],
  code: /* wgsl */ `
${DISTRIBUTIONS}
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
  const largestLogits = context.scratch(distributions * blocks);
  const sums = context.scratch(distributions * blocks);
  context.queue.run(BLOCK_SUMS, {
    buffers: { largest_logits: largestLogits, sums, table, logits },
    params: { distributions, blocks, vocab_size: vocabSize },
    workgroups: distributions * blocks,
  });
  context.queue.run(PICK, {
    buffers: { tokens, logprobs, largest_logits: largestLogits, sums, table, logits, log_sum_exp: logSumExp },
    params: { distributions, draws: draws.length, blocks, vocab_size: vocabSize },
    workgroups: draws.length,
  });
  context.release(mark);
}

/** The limit that leaves as many tokens as there are columns, and a workgroup that puts them in order. */
export function topTokens(context: GpuContext, operation: TopTokensOperation): void {
  const { tokens, logprobs, logits, logSumExp, rows, vocabSize, columns } = operation;
  if (rows === 0 || columns === 0) return;
  const mark = context.mark();
  const table = context.scratchInts(rows * DISTRIBUTION_WORDS);
  findLimits(context, { table, logits, distributions: rows, vocabSize, columns });
  const gathered = context.scratchInts(rows * columns);
  context.queue.run(LIST, {
    buffers: { tokens, logprobs, gathered, table, logits, log_sum_exp: logSumExp },
    params: { rows, vocab_size: vocabSize, columns },
    workgroups: rows,
  });
  context.release(mark);
}

/** First the distributions, which neighbours share; then for each draw its distribution and its random number. */
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
      table.push(row, bitsOf(isGreedy ? 0 : 1 / temperature), limitK, bitsOf(limitP), ...NO_LIMIT);
    }
    picks[2 * index] = table.length / DISTRIBUTION_WORDS - 1;
    picks[2 * index + 1] = bitsOf(isGreedy ? 0 : Math.min(random, 1 - 2 ** -24));
  });
  return {
    words: Int32Array.from([...table, ...picks]),
    distributions: table.length / DISTRIBUTION_WORDS,
    isLimited,
  };
}
