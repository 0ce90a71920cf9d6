// Matrix products against OpenBLAS in one run: rounds alternate, so that all see the same noise. Prints one JSON line.
// `openBlas128` is OpenBLAS held to 128-bit vectors without fused multiply-add, which is all that plain WebAssembly has,
// `openBlas256` is held to AVX2. `limit` is what a WebAssembly loop reaches that multiplies and adds (`limitFused`: fuses
// both) in registers and does nothing else: no product can be faster, so `limitRatio` tells the kernel's quality and the
// ratio to `openBlas` how much wider the processor is. A ratio of a few percent above 1 is the noise of the best rounds.
// Needs `npm run build`, a C compiler and libopenblas-dev. `node bench/gemm.mjs [folder of the build]`
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { Worker } from "node:worker_threads";
import asc from "assemblyscript/asc";
import { sized } from "./shared/sized.mjs";

const build = resolve(process.argv[2] ?? "dist");
const { createWasmKernels } = await import(
  pathToFileURL(join(build, "local/engine/kernels/wasm-kernels.node.js")).href
);

const threads = 2;
const rounds = sized(6, 1);
const roundMs = sized(150, 1);
const shapes = [
  { m: 512, n: 2048, k: 512, layout: "NN" },
  { m: 512, n: 2048, k: 512, layout: "NT" },
  { m: 512, n: 2048, k: 512, layout: "TN" },
  { m: 1024, n: 1024, k: 1024, layout: "NN" },
  { m: 256, n: 512, k: 256, layout: "NN" },
  { m: 1024, n: 704, k: 256, layout: "NN" },
  { m: 1024, n: 32, k: 256, layout: "NN" },
  { m: 16, n: 704, k: 256, layout: "NN" },
  { m: 1, n: 704, k: 256, layout: "NN" },
  { m: 1, n: 8192, k: 512, layout: "NN" },
].slice(0, sized(undefined, 3));

const helperSource = `
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
char *openblas_get_corename(void);
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e3 + t.tv_nsec * 1e-6; }
int main(void) {
  int m, n, k, ms; char ta, tb;
  printf("%s\\n", openblas_get_corename()); fflush(stdout);
  while (scanf("%d %d %d %c%c %d", &m, &n, &k, &ta, &tb, &ms) == 6) {
    float *a = malloc(4L * m * k), *b = malloc(4L * n * k), *c = malloc(4L * m * n);
    for (long i = 0; i < (long)m * k; i++) a[i] = (i % 17) * 0.1f;
    for (long i = 0; i < (long)n * k; i++) b[i] = (i % 13) * 0.1f;
    double best = 1e9, end = now() + ms;
    do {
      double t = now();
      cblas_sgemm(CblasRowMajor, ta == 'T' ? CblasTrans : CblasNoTrans, tb == 'T' ? CblasTrans : CblasNoTrans,
        m, n, k, 1, a, ta == 'T' ? m : k, b, tb == 'T' ? k : n, 0, c, n);
      t = now() - t;
      if (t < best) best = t;
    } while (now() < end);
    printf("%f\\n", best); fflush(stdout);
    free(a); free(b); free(c);
  }
}
`;

/** OpenBLAS in a process of its own, asked over a pipe; null where it cannot be built. */
async function startOpenBlas(environment) {
  const folder = mkdtempSync(join(tmpdir(), "openblas-"));
  try {
    writeFileSync(join(folder, "helper.c"), helperSource);
    execFileSync("cc", ["-O2", "-o", join(folder, "helper"), join(folder, "helper.c"), "-lopenblas"]);
  } catch (error) {
    console.error(`OpenBLAS is not measured: ${error.message}`);
    rmSync(folder, { recursive: true });
    return null;
  }
  const child = spawn(join(folder, "helper"), {
    env: { ...process.env, OPENBLAS_NUM_THREADS: String(threads), ...environment },
    stdio: ["pipe", "pipe", "inherit"],
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async () => (await lines.next()).value;
  return {
    core: await next(),
    async measure({ m, n, k, layout }) {
      child.stdin.write(`${m} ${n} ${k} ${layout} ${roundMs}\n`);
      return Number(await next());
    },
    close() {
      child.stdin.end();
      rmSync(folder, { recursive: true });
    },
  };
}

/** As many independent chains as fit the registers; x is 1 and y is 0, so that sums stay what they are. */
async function limitModule(relaxed) {
  const chains = Array.from({ length: 13 }, (_, index) => `s${index}`);
  const step = (name) =>
    relaxed ? `v128.relaxed_madd<f32>(${name}, x, y)` : `f32x4.add(f32x4.mul(${name}, x), y)`;
  const source = `export function loop(turns: i32): f32 {
    const x = f32x4.splat(f32.reinterpret_i32(0x3f800000 + (turns >> 30)));
    const y = f32x4.splat(f32.reinterpret_i32(turns >> 30));
    ${chains.map((name, index) => `let ${name} = f32x4.splat(${index + 1});`).join(" ")}
    for (; turns > 0; turns--) { ${chains.map((name) => `${name} = ${step(name)};`).join(" ")} }
    return f32x4.extract_lane(${chains.reduce((sum, name) => `f32x4.add(${sum}, ${name})`)}, 0);
  }`;
  const options = {
    optimizeLevel: 3,
    runtime: "stub",
    enable: relaxed ? ["simd", "relaxed-simd"] : ["simd"],
  };
  const { error, binary, stderr } = await asc.compileString(source, options);
  if (error) throw new Error(stderr.toString());
  return { module: new WebAssembly.Module(binary), flops: 2 * 4 * chains.length };
}

/** The best rate of many short runs within `roundMs`. Workers get its source, so it uses nothing from around it. */
function limitRound(loop, flops, roundMs) {
  const turns = 20_000;
  let best = 0;
  const end = performance.now() + roundMs;
  for (let start = performance.now(); start < end; ) {
    loop(turns);
    const now = performance.now();
    best = Math.max(best, (turns * flops) / (now - start) / 1e6);
    start = now;
  }
  return best;
}

/** What multiplying and adding in registers reaches on all threads at once. */
async function startLimit(relaxed) {
  const { module, flops } = await limitModule(relaxed);
  const source = `const { parentPort, workerData } = require("node:worker_threads");
    const { loop } = new WebAssembly.Instance(workerData.module).exports;
    ${limitRound}
    parentPort.on("message", (roundMs) => parentPort.postMessage(limitRound(loop, workerData.flops, roundMs)));`;
  const workers = Array.from(
    { length: threads - 1 },
    () => new Worker(source, { eval: true, workerData: { module, flops } }),
  );
  const { loop } = new WebAssembly.Instance(module).exports;
  return {
    async measure() {
      const others = workers.map((worker) => new Promise((resolve) => worker.once("message", resolve)));
      for (const worker of workers) worker.postMessage(roundMs);
      const own = limitRound(loop, flops, roundMs);
      return (await Promise.all(others)).reduce((sum, rate) => sum + rate, own);
    },
    close: () => Promise.all(workers.map((worker) => worker.terminate())),
  };
}

/** Milliseconds of the best of many runs within `roundMs`. */
function measure(kernels, { m, n, k, layout }) {
  const options = { transA: layout[0] === "T", transB: layout[1] === "T" };
  const [a, b, c] = [kernels.alloc(m * k), kernels.alloc(n * k), kernels.alloc(m * n)];
  kernels.view(a).forEach((_, i, view) => {
    view[i] = (i % 17) * 0.1;
  });
  kernels.view(b).forEach((_, i, view) => {
    view[i] = (i % 13) * 0.1;
  });
  let best = Number.POSITIVE_INFINITY;
  const end = performance.now() + roundMs;
  for (let start = performance.now(); start < end; ) {
    kernels.matmul(c, a, b, m, n, k, options);
    const now = performance.now();
    best = Math.min(best, now - start);
    start = now;
  }
  for (const buffer of [a, b, c]) kernels.free(buffer);
  return best;
}

const plain = createWasmKernels({ threads });
// Before the limits: it is this that turns relaxed SIMD on in Node 20.
const relaxed = createWasmKernels({ threads, relaxedSimd: true });
const limits = { limit: await startLimit(false), limitFused: await startLimit(true) };
const openBlas = await startOpenBlas({});
const openBlas128 = openBlas && (await startOpenBlas({ OPENBLAS_CORETYPE: "Nehalem" }));
const openBlas256 = openBlas && (await startOpenBlas({ OPENBLAS_CORETYPE: "Haswell" }));
const runs = {
  plain: async (shape) => measure(plain, shape),
  relaxed: async (shape) => measure(relaxed, shape),
  ...(openBlas && {
    openBlas: (shape) => openBlas.measure(shape),
    openBlas128: (shape) => openBlas128.measure(shape),
    openBlas256: (shape) => openBlas256.measure(shape),
  }),
};
const highest = { limit: 0, limitFused: 0 };
async function measureLimits() {
  for (const [name, limit] of Object.entries(limits)) {
    highest[name] = Math.max(highest[name], await limit.measure());
  }
}
const round = (value) => Math.round(value * 100) / 100;

const results = [];
for (const shape of shapes) {
  const gflop = (2 * shape.m * shape.n * shape.k) / 1e6;
  const rates = Object.fromEntries(Object.keys(runs).map((name) => [name, []]));
  for (const run of Object.values(runs)) await run(shape);
  await measureLimits();
  for (let index = 0; index < rounds; index++) {
    for (const [name, run] of Object.entries(runs)) {
      rates[name].push(gflop / (await run(shape)));
    }
  }
  const result = { shape: `${shape.m}x${shape.n}x${shape.k} ${shape.layout}` };
  for (const [name, each] of Object.entries(rates)) result[name] = round(Math.max(...each));
  if (openBlas) {
    result.plainRatio = round(result.plain / result.openBlas);
    result.plainRatio128 = round(result.plain / result.openBlas128);
    result.plainRatio256 = round(result.plain / result.openBlas256);
    result.relaxedRatio = round(result.relaxed / result.openBlas);
    result.relaxedRatio256 = round(result.relaxed / result.openBlas256);
  }
  results.push(result);
  console.error(JSON.stringify(result));
}
for (const result of results) {
  result.limitRatio = round(result.plain / highest.limit);
  result.relaxedLimitRatio = round(result.relaxed / highest.limitFused);
}
for (const peer of [openBlas, openBlas128, openBlas256]) peer?.close();
await Promise.all([...Object.values(limits), plain, relaxed].map((side) => side.close()));
/** The bars are for large products; without OpenBLAS there is nothing to hold them against. */
const large = results.filter(({ shape }) => shape.startsWith("512x2048x512"));
const pass = openBlas
  ? large.every(({ plainRatio, relaxedRatio }) => plainRatio >= 0.5 && relaxedRatio >= 0.65)
  : null;
console.log(
  JSON.stringify({
    bench: "gemm",
    unit: "GFLOP/s",
    threads,
    openBlasCore: openBlas?.core ?? null,
    limit: round(highest.limit),
    limitFused: round(highest.limitFused),
    /** The highest that any product in this WebAssembly could reach beside OpenBLAS on this processor. */
    reachable: openBlas && {
      plain: round(highest.limit / Math.max(...large.map(({ openBlas: rate }) => rate))),
      relaxed: round(highest.limitFused / Math.max(...large.map(({ openBlas: rate }) => rate))),
    },
    results,
    pass,
  }),
);
