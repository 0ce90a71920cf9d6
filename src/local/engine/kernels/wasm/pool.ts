// One job at a time is cut into chunks; any free thread takes the next one, the calling thread included, so workers that
// are late (or not started yet) cost nothing. The thread that computes a chunk never changes its bits.
//
// Memory below 1024 belongs to this file, up to 4096 to the constants of math.ts. A ticket is (job number << 32 | chunks left):
// it is taken with one compare-exchange, and a job cannot end before its taken chunks are done, so a taken ticket's parameters
// are stable.
import { writeConstants } from "./math";
import { compute, Operation } from "./operations";

const TICKET: usize = 64;
const SIGNAL: usize = 128;
const SLEEPERS: usize = 192;
const DONE: usize = 256;
const CALLER_SLEEPS: usize = 320;
const STOP: usize = 384;
const FAILED: usize = 388;
const OPERATION: usize = 448;
const CHUNKS: usize = 452;
const ITEMS: usize = 456;
const CHUNK_ITEMS: usize = 460;
const THREADS: usize = 464;
const SCRATCH_BASE: usize = 468;
const SCRATCH_BYTES: usize = 472;
/** The host writes parameters here before it calls `run`: addresses, strides in bytes and counts, then float32. */
const POINTERS: usize = 512;
const FLOATS: usize = 768;

/** Turns of the waiting loop before a thread goes to sleep: about a tenth of a millisecond, for waking it takes nearly as long. */
const SPIN: i32 = 150000;
/** Work (in rough clock cycles) below which waking others costs more than it saves. */
const PARALLEL_WORK: f64 = 40000;

let threadIndex: usize = 0;

// @ts-ignore: decorator
@inline
export function pointer(index: usize): usize {
  return load<usize>(POINTERS + (index << 2));
}

// @ts-ignore: decorator
@inline
export function float(index: usize): f32 {
  return load<f32>(FLOATS + (index << 2));
}

/** This thread's private memory; the host makes it large enough before the job. */
export function scratch(): usize {
  return load<usize>(SCRATCH_BASE) + threadIndex * load<usize>(SCRATCH_BYTES);
}

export function configure(threadCount: usize, scratchBase: usize, scratchBytes: usize): void {
  writeConstants();
  store<usize>(THREADS, threadCount);
  store<usize>(SCRATCH_BASE, scratchBase);
  store<usize>(SCRATCH_BYTES, scratchBytes);
}

// @ts-ignore: decorator
@inline
function computeChunk(operation: Operation, chunk: usize, items: usize, chunkItems: usize): void {
  compute(operation, chunk * chunkItems, min<usize>((chunk + 1) * chunkItems, items));
}

/** Takes and runs chunks until none is left. */
function drain(): void {
  while (true) {
    const ticket = atomic.load<u64>(TICKET);
    const left = ticket & 0xffffffff;
    if (left == 0) return;
    if (atomic.cmpxchg<u64>(TICKET, ticket, ticket - 1) != ticket) continue;
    const chunks = load<u32>(CHUNKS);
    computeChunk(load<i32>(OPERATION), chunks - <u32>left, load<usize>(ITEMS), load<usize>(CHUNK_ITEMS));
    if (atomic.add<u32>(DONE, 1) + 1 == chunks && atomic.load<i32>(CALLER_SLEEPS) != 0) atomic.notify(DONE, 1);
  }
}

/** Computes `items` items of an operation, `chunkItems` at a time, on all threads if it is `work` enough. */
export function run(operation: Operation, items: usize, chunkItems: usize, work: f64): void {
  const chunks = (items + chunkItems - 1) / chunkItems;
  if (chunks <= 1 || work < PARALLEL_WORK || load<usize>(THREADS) == 1) {
    for (let chunk: usize = 0; chunk < chunks; chunk++) computeChunk(operation, chunk, items, chunkItems);
    return;
  }
  store<i32>(OPERATION, operation);
  store<usize>(CHUNKS, chunks);
  store<usize>(ITEMS, items);
  store<usize>(CHUNK_ITEMS, chunkItems);
  atomic.store<u32>(DONE, 0);
  const job = (atomic.load<u64>(TICKET) >> 32) + 1;
  atomic.store<u64>(TICKET, (job << 32) | <u64>chunks);
  atomic.add<i32>(SIGNAL, 1);
  if (atomic.load<i32>(SLEEPERS) != 0) atomic.notify(SIGNAL, -1);
  drain();
  for (let turn = 0; turn < SPIN; turn++) {
    if (atomic.load<usize>(DONE) == chunks) return;
  }
  atomic.store<i32>(CALLER_SLEEPS, 1);
  while (true) {
    const done = atomic.load<usize>(DONE);
    if (done == chunks) break;
    if (atomic.load<i32>(FAILED) != 0) unreachable();
    atomic.wait<usize>(DONE, done, 1000000);
  }
  atomic.store<i32>(CALLER_SLEEPS, 0);
}

/** A worker's life: until `stopWorkers`. */
export function work(index: usize): void {
  threadIndex = index;
  while (true) {
    // Read before STOP, which is stored before SIGNAL changes: so the wait below cannot miss it.
    const signal = atomic.load<i32>(SIGNAL);
    if (atomic.load<i32>(STOP) != 0) return;
    drain();
    let turn = 0;
    while (turn < SPIN && atomic.load<i32>(SIGNAL) == signal) turn++;
    if (turn < SPIN) continue;
    atomic.add<i32>(SLEEPERS, 1);
    atomic.wait<i32>(SIGNAL, signal, -1);
    atomic.sub<i32>(SLEEPERS, 1);
  }
}

/** A worker calls this when it dies, so that the caller does not wait for its chunk for ever. */
export function workerFailed(): void {
  atomic.store<i32>(FAILED, 1);
}

export function stopWorkers(): void {
  atomic.store<i32>(STOP, 1);
  atomic.add<i32>(SIGNAL, 1);
  atomic.notify(SIGNAL, -1);
}
