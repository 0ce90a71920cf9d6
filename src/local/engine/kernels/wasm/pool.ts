// One job at a time is cut into chunks; whoever is free takes the next one, the calling thread included, so workers that
// are late (or not started yet) cost nothing. Who computes a chunk never changes its bits.
//
// Memory below 1024 belongs to this file, up to 4096 to the constants of math.ts. A ticket is (job number << 32 | chunks left): it is taken with one
// compare-exchange, and a job cannot end before its taken chunks are done, so a taken ticket's parameters are stable.
import { writeConstants } from "./math";
import { runChunk } from "./operations";

const TICKET: usize = 64;
const SIGNAL: usize = 128;
const SLEEPERS: usize = 192;
const DONE: usize = 256;
const CALLER_SLEEPS: usize = 320;
const STOP: usize = 384;
const FAILED: usize = 388;
const OPERATION: usize = 448;
const CHUNKS: usize = 452;
const THREADS: usize = 456;
const SCRATCH_BASE: usize = 460;
const SCRATCH_BYTES: usize = 464;
const PARAMETERS: usize = 512;

/** Turns of the waiting loop before a thread goes to sleep: about a tenth of a millisecond, for waking it takes nearly as long. */
const SPIN: i32 = 150000;
/** Work (in rough clock cycles) below which waking others costs more than it saves. */
const PARALLEL_WORK: f64 = 40000;

let threadIndex: usize = 0;

// @ts-ignore: decorator
@inline
export function pointer(index: usize): usize {
  return load<usize>(PARAMETERS + (index << 2));
}

// @ts-ignore: decorator
@inline
export function float(index: usize): f32 {
  return load<f32>(PARAMETERS + (index << 2));
}

// @ts-ignore: decorator
@inline
export function setPointer(index: usize, value: usize): void {
  store<usize>(PARAMETERS + (index << 2), value);
}

// @ts-ignore: decorator
@inline
export function setFloat(index: usize, value: f32): void {
  store<f32>(PARAMETERS + (index << 2), value);
}

/** This thread's private memory; the host makes it large enough before the job. */
export function scratch(): usize {
  return load<usize>(SCRATCH_BASE) + threadIndex * load<usize>(SCRATCH_BYTES);
}

export function threads(): usize {
  return load<usize>(THREADS);
}

export function configure(threadCount: usize, scratchBase: usize, scratchBytes: usize): void {
  writeConstants();
  store<usize>(THREADS, threadCount);
  store<usize>(SCRATCH_BASE, scratchBase);
  store<usize>(SCRATCH_BYTES, scratchBytes);
}

/** Takes and runs chunks until none is left. */
function drain(): void {
  while (true) {
    const ticket = atomic.load<u64>(TICKET);
    const left = ticket & 0xffffffff;
    if (left == 0) return;
    if (atomic.cmpxchg<u64>(TICKET, ticket, ticket - 1) != ticket) continue;
    const chunks = load<u32>(CHUNKS);
    runChunk(load<u32>(OPERATION), chunks - <u32>left);
    if (atomic.add<u32>(DONE, 1) + 1 == chunks && atomic.load<i32>(CALLER_SLEEPS) != 0) atomic.notify(DONE, 1);
  }
}

export function dispatch(operation: u32, chunks: usize, work: f64): void {
  if (chunks <= 1 || work < PARALLEL_WORK || load<usize>(THREADS) == 1) {
    for (let chunk: usize = 0; chunk < chunks; chunk++) runChunk(operation, chunk);
    return;
  }
  store<u32>(OPERATION, operation);
  store<usize>(CHUNKS, chunks);
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
