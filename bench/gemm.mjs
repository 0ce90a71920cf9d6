// Matrix products against OpenBLAS in one run: rounds alternate, so that both see the same noise. Prints one JSON line.
// `openBlas128` is OpenBLAS held to 128-bit vectors without fused multiply-add, which is all that WebAssembly has: the ratio
// to it tells the kernel's quality, the ratio to `openBlas` also tells how much wider the processor is.
// Needs `npm run build`, a C compiler and libopenblas-dev. `node bench/gemm.mjs [folder of the build]`
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const build = resolve(process.argv[2] ?? "dist");
const { createWasmKernels } = await import(pathToFileURL(join(build, "local/engine/kernels/index.js")).href);

const threads = 2;
const rounds = 6;
const roundMs = 150;
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
];

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
    double best = 1e9, end = now() + ms; long count = 0; double start = now();
    do {
      double t = now();
      cblas_sgemm(CblasRowMajor, ta == 'T' ? CblasTrans : CblasNoTrans, tb == 'T' ? CblasTrans : CblasNoTrans,
        m, n, k, 1, a, ta == 'T' ? m : k, b, tb == 'T' ? k : n, 0, c, n);
      t = now() - t; count++;
      if (t < best) best = t;
    } while (now() < end);
    printf("%f %f\\n", best, (now() - start) / count); fflush(stdout);
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
      const [best, mean] = (await next()).split(" ").map(Number);
      return { best, mean };
    },
    close() {
      child.stdin.end();
      rmSync(folder, { recursive: true });
    },
  };
}

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
  let count = 0;
  const start = performance.now();
  let end = start;
  do {
    kernels.matmul(c, a, b, m, n, k, options);
    const now = performance.now();
    best = Math.min(best, now - end);
    end = now;
    count++;
  } while (end - start < roundMs);
  for (const buffer of [a, b, c]) kernels.free(buffer);
  return { best, mean: (end - start) / count };
}

const openBlas = await startOpenBlas({});
const openBlas128 = openBlas && (await startOpenBlas({ OPENBLAS_CORETYPE: "Nehalem" }));
const plain = createWasmKernels({ threads });
const relaxed = createWasmKernels({ threads, relaxedSimd: true });
const runs = {
  plain: async (shape) => measure(plain, shape),
  relaxed: async (shape) => measure(relaxed, shape),
  ...(openBlas && {
    openBlas: (shape) => openBlas.measure(shape),
    openBlas128: (shape) => openBlas128.measure(shape),
  }),
};
const round = (value) => Math.round(value * 100) / 100;
const median = (values) => values.sort((x, y) => x - y)[values.length >> 1];

const results = [];
for (const shape of shapes) {
  const gflop = (2 * shape.m * shape.n * shape.k) / 1e6;
  const rates = Object.fromEntries(Object.keys(runs).map((name) => [name, { best: [], mean: [] }]));
  for (const run of Object.values(runs)) await run(shape);
  for (let index = 0; index < rounds; index++) {
    for (const [name, run] of Object.entries(runs)) {
      const { best, mean } = await run(shape);
      rates[name].best.push(gflop / best);
      rates[name].mean.push(gflop / mean);
    }
  }
  const result = { shape: `${shape.m}x${shape.n}x${shape.k} ${shape.layout}` };
  for (const [name, { best, mean }] of Object.entries(rates)) {
    result[name] = round(Math.max(...best));
    result[`${name}Typical`] = round(median(mean));
  }
  if (openBlas) {
    result.plainRatio = round(result.plain / result.openBlas);
    result.plainRatio128 = round(result.plain / result.openBlas128);
    result.relaxedRatio = round(result.relaxed / result.openBlas);
  }
  results.push(result);
  console.error(JSON.stringify(result));
}
openBlas?.close();
openBlas128?.close();
await Promise.all([plain.close(), relaxed.close()]);
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
    results,
    pass,
  }),
);
