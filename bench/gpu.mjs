// The engine on a graphics card beside PyTorch and transformers on the same one: training, sampling, products, the
// quickstart, a large model. Every part is a process of its own with a time limit, so that one failure costs no other.
// `npm run bench -- gpu [--parts train,sample,products,nano,large] [--peer FILE] [--tiny]`
// `--result FILE` measures nothing: it prints what a run on another machine printed, for --report.
// TORCH_PYTHON names a Python with torch and transformers; --peer has what bench/gpu/peer.py printed before on this machine.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { openMachineGpu } from "../dist/local/engine/kernels/webgpu/dawn.node.js";

const PARTS = ["train", "sample", "products", "nano", "large"];
const PEER_PARTS = { train: "train", sample: "generate", products: "products" };
const TIME_LIMIT_MS = 240_000;
/** Products at least this large count for the bar. */
const MIN_PRODUCT = 2048 * 4096 * 1024;

/** For one text: on weak machines, the number of runs is the time. */
const MAX_RUNS = 200;

const { values } = parseArgs({
  options: {
    parts: { type: "string", default: PARTS.join(",") },
    peer: { type: "string" },
    result: { type: "string" },
    tiny: { type: "boolean", default: false },
  },
});
const lastLineOf = (text) => text.trim().split("\n").at(-1);
if (values.result !== undefined) {
  console.log(lastLineOf(readFileSync(values.result, "utf8")));
  process.exit(0);
}
const parts = values.parts.split(",");
const unknown = parts.find((part) => !PARTS.includes(part));
if (unknown !== undefined) throw new Error(`--parts: ${unknown} is not one of ${PARTS.join(", ")}`);

/** Without a real card there is nothing to measure. */
async function cardName() {
  const { device, info } = await openMachineGpu({});
  device.destroy();
  if (info.isSoftware && !values.tiny)
    throw new Error(`${info.name} is no graphics card, it computes on the CPU`);
  return info.name;
}

/** The JSON of a program's last line; `{ error }` where there is none in time. */
function lastLine(command, args) {
  return new Promise((resolve) => {
    const started = performance.now();
    const child = spawn(command, args, {
      stdio: ["ignore", "pipe", "pipe"],
      timeout: TIME_LIMIT_MS,
      killSignal: "SIGKILL",
    });
    let [stdout, stderr] = ["", ""];
    child.stdout.on("data", (text) => (stdout += text));
    child.stderr.on("data", (text) => (stderr += text));
    child.on("error", (error) => resolve({ error: error.message }));
    child.on("close", (code, signal) => {
      const seconds = Math.round((performance.now() - started) / 1000);
      console.error(`${args.map((part) => part.replace(/^.*\//, "")).join(" ")}: ${seconds} s`);
      try {
        resolve(JSON.parse(lastLineOf(stdout)));
      } catch {
        const end =
          signal === "SIGKILL" ? `not done in ${TIME_LIMIT_MS / 1000} s` : `ended with ${code ?? signal}`;
        resolve({ error: `${end}: ${stderr.trim().slice(-400)}` });
      }
    });
  });
}

const here = (file) => fileURLToPath(new URL(`gpu/${file}`, import.meta.url));
const ours = (part) =>
  lastLine(process.execPath, [here("measure.mjs"), part, ...(values.tiny ? ["--tiny"] : [])]);

async function peers() {
  if (values.peer !== undefined) return JSON.parse(lastLineOf(readFileSync(values.peer, "utf8")));
  const python = process.env.TORCH_PYTHON;
  if (!python) {
    console.error("PyTorch is left out: set TORCH_PYTHON to a Python with torch and transformers.");
    return undefined;
  }
  const wanted = parts.flatMap((part) => PEER_PARTS[part] ?? []);
  if (wanted.length === 0) return undefined;
  const size = values.tiny ? ["--tiny", "--device", "cpu"] : [];
  return lastLine(python, [here("peer.py"), "--parts", wanted.join(","), ...size]);
}

const sizeOf = (shape) => shape.split("x").reduce((product, side) => product * side, 1);
const ratio = (own, peer) => (own > 0 && peer > 0 ? Number((own / peer).toPrecision(3)) : undefined);
/** Both precisions of a part, one after the other; a failure stands in the list. */
async function eachPrecision(part) {
  const results = [];
  for (const precision of ["exact", "fast"]) {
    const result = await ours(`${part}-${precision}`);
    results.push(...(Array.isArray(result) ? result : [{ precision, ...result }]));
  }
  return results;
}

/** null where the peer, or the part, was not measured. */
const atLeast = (row, least) => (row?.error ? false : row?.ratio === undefined ? null : row.ratio >= least);
const figures = {};
const bars = {};

let card;
try {
  card = await cardName();
} catch (error) {
  console.error(`Not measured: ${error.message}`);
  console.log(JSON.stringify({ bench: "gpu", notMeasured: error.message, pass: null }));
  process.exit(0);
}
const peer = await peers();

if (parts.includes("train")) {
  const { f32, tf32 } = peer?.train ?? {};
  figures.training = (await eachPrecision("train")).map((row) => ({
    ...row,
    torchF32: f32?.tokens_per_s,
    torchTf32: tf32?.tokens_per_s,
    ratio: ratio(row.tokensPerSecond, f32?.tokens_per_s),
  }));
  const [exact, fast] = figures.training;
  bars["training at 0.6 of PyTorch f32, exact"] = atLeast(exact, 0.6);
  bars["training at 1.2 of PyTorch f32, tensor cores"] = atLeast(fast, 1.2);
}
if (parts.includes("sample")) {
  figures.sampling = (await eachPrecision("sample")).map((row) => {
    // The peer samples without an adapter.
    const generate =
      row.adapter === "none" ? peer?.generate?.[`batch_${row.batch}`]?.tokens_per_s : undefined;
    return { ...row, generate, ratio: ratio(row.tokensPerSecond, generate) };
  });
  for (const [batch, least] of [
    [1, 5],
    [64, 2],
  ]) {
    const exact = figures.sampling.find(
      (row) => row.precision === "exact" && (row.error || row.batch === batch),
    );
    bars[`sampling ${batch} at ${least} times generate`] = atLeast(exact, least);
  }
  const adapted = figures.sampling.filter((row) => row.error || (row.batch === 1 && row.adapter !== "none"));
  bars["at most 200 runs per token with an adapter"] = adapted.every((row) => row.runsPerToken <= MAX_RUNS);
}
if (parts.includes("products")) {
  const [exact, fast] = [await ours("products-exact"), await ours("products-fast")];
  const rows = Array.isArray(exact) ? exact : [exact];
  figures.products = rows.map((row, index) => {
    const cublas = peer?.products?.[row.shape];
    return {
      ...row,
      ...(Array.isArray(fast) && fast[index]),
      cublasF32: cublas?.f32,
      cublasTf32: cublas?.tf32,
      ratio: ratio(row.exact, cublas?.f32),
    };
  });
  figures.fastProductsError = fast.error;
  const large = figures.products.filter((row) => row.error || sizeOf(row.shape) >= MIN_PRODUCT);
  const met = large.map((row) => atLeast(row, 0.6));
  bars["products at 0.6 of cuBLAS f32 from 2048x4096x1024 up"] = met.includes(null)
    ? null
    : !met.includes(false);
}
if (parts.includes("nano")) {
  figures.nano = await ours("nano");
  bars["the quickstart trains in under 15 s"] =
    (figures.nano.trainingSeconds ?? Number.POSITIVE_INFINITY) < 15;
}
if (parts.includes("large")) {
  figures.large = await eachPrecision("large");
  bars["8 billion parameters in bf16 train"] = figures.large.every(({ loss }) => Number.isFinite(loss));
}

const outcomes = Object.values(bars);
console.log(
  JSON.stringify({
    bench: "gpu",
    unit: "tokens/s; products in TFLOP/s",
    card,
    torch: peer?.torch,
    peerError: peer?.error,
    ...figures,
    bars,
    pass: values.tiny || outcomes.includes(null) ? null : !outcomes.includes(false),
  }),
);
