// A DPO loss and its gradients over 64 x 1,024 logprobs: the built-in autograd beside jax-js, each in fresh processes.
// One contract for all: 32-bit logprobs per datum go in, as the server sends them, the loss and 32-bit gradients per datum
// come out. jax-js is measured as a custom loss through the adapter of tinkerts/jax (`peers`: written per datum, over
// the stacked datums, and that compiled with jit), and past our contract at its very best (`bestCase`: one compiled
// program from a matrix to a matrix). Its constants are put on its side once, before the first call.
//   importMs  loading what the loss needs beside tinkerts itself, which is there before on both sides
//   firstMs   the first call after that: compilation, by V8 or by jax-js, and evaluation
//   tenthMs   calls nine to eleven, their median
// Bar: the built-in autograd at least 3 times faster than every peer at the first call, with the loading and without it,
// and no slower at the tenth; and a loss stored on the server (custom-loss/server-side.mjs) at most 0.7 of the time of two
// passes for each step. jax-js is an optional peer; JAX_JS names another copy of its module.
// Needs a build: npm run build.
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { measureServerSide } from "./custom-loss/server-side.mjs";
import { sized } from "./shared/sized.mjs";

const DATUMS = sized(64, 8);
const TOKENS = sized(1024, 128);
const CALLS = 12;
const ROUNDS = sized(7, 1);
const BETA = 0.1;
const FIRST_CALL_BAR = 3;
const SERVER_BAR = 0.7;
const OURS = "autograd";
const BEST_CASE = "jax-js matrix jit";

const rows = (seed) =>
  Array.from({ length: DATUMS }, (_, datum) =>
    Float32Array.from({ length: TOKENS }, (_, token) => {
      const wave = Math.abs(Math.sin(seed + datum * 12.9898 + token * 78.233) * 43758.5453) % 1;
      return -0.01 - 3 * wave;
    }),
  );
const masks = Array.from({ length: DATUMS }, (_, datum) =>
  Float32Array.from({ length: TOKENS }, (_, token) => (token < 100 + datum ? 0 : 1)),
);
const references = rows(1);

const { evaluateCustomLoss } = await import("../dist/training/custom-loss.js");

/** Each loads what it needs and returns a way to make a function from logprobs to the loss and its gradients. */
const variants = {
  async [OURS]() {
    const { logSigmoid, mean, mul, neg, stack, sub, sum, variable } = await import(
      "../dist/training/autograd/index.js"
    );
    const data = masks.map((mask, index) => ({
      reference: tensorData(references[index]),
      mask: tensorData(mask),
    }));
    const lossFn = (_, logprobs) => {
      const gains = logprobs.map((each, index) =>
        sum(mul(sub(each, data[index].reference), data[index].mask)),
      );
      const chosen = stack(gains.filter((_, index) => index % 2 === 0));
      const rejected = stack(gains.filter((_, index) => index % 2 === 1));
      return { loss: neg(mean(logSigmoid(mul(sub(chosen, rejected), BETA)))) };
    };
    return () => customLoss(variable, lossFn);
  },
  "jax-js per datum": () => throughAdapter(jaxPerDatum),
  "jax-js stacked": () => throughAdapter((jax) => jaxStacked(jax)),
  "jax-js stacked jit": () => throughAdapter((jax) => jaxStacked(jax, jax.jit)),
  async [BEST_CASE]() {
    const jax = await importJax();
    return () => {
      const run = jax.jit(jax.valueAndGrad(matrixLoss(jax)));
      const [reference, mask] = [matrixOf(jax, references), matrixOf(jax, masks)];
      return async (values) => {
        const [loss, gradient] = run(matrixOf(jax, values), reference.ref, mask.ref);
        const [value] = await loss.data();
        const flat = await gradient.data();
        return {
          loss: value,
          gradients: values.map((_, index) => flat.subarray(index * TOKENS, (index + 1) * TOKENS)),
        };
      };
    };
  },
};

/** As the inputs of a datum and the outputs of a forward pass are. */
const tensorData = (data) => ({ data, shape: [data.length] });

const importJax = () => import(process.env.JAX_JS ?? "@jax-js/jax");

function customLoss(variable, lossFn) {
  return async (values) => {
    const logprobs = values.map((each) => variable(tensorData(each)));
    const { loss, gradients } = await evaluateCustomLoss(lossFn, [], logprobs);
    return { loss, gradients: gradients.map((each) => new Float32Array(each)) };
  };
}

async function throughAdapter(write) {
  const jax = await importJax();
  const { jaxLoss } = await import("../dist/training/jax.js");
  const { variable } = await import("../dist/training/autograd/index.js");
  return () => customLoss(variable, jaxLoss(write(jax), { jax }));
}

function jaxPerDatum({ numpy: np, nn }) {
  const [reference, mask] = [references, masks].map((arrays) => arrays.map((each) => np.array(each)));
  return (_, logprobs) => {
    const gains = logprobs.map((each, index) => np.sum(each.sub(reference[index].ref).mul(mask[index].ref)));
    const chosen = np.stack(gains.filter((_, index) => index % 2 === 0));
    const rejected = np.stack(gains.filter((_, index) => index % 2 === 1));
    return np.mean(nn.logSigmoid(chosen.sub(rejected).mul(BETA))).mul(-1);
  };
}

function jaxStacked(jax, compile = (lossFn) => lossFn) {
  const [reference, mask] = [matrixOf(jax, references), matrixOf(jax, masks)];
  const lossFn = compile(matrixLoss(jax));
  return (_, logprobs) => lossFn(jax.numpy.stack(logprobs), reference.ref, mask.ref);
}

function matrixLoss({ numpy: np, nn }) {
  return (logprobs, reference, mask) => {
    const gains = np.sum(logprobs.sub(reference).mul(mask), 1).reshape([DATUMS / 2, 2]);
    const margins = np.sum(gains.mul(np.array([[1, -1]])), 1);
    return np.mean(nn.logSigmoid(margins.mul(BETA))).mul(-1);
  };
}

function matrixOf({ numpy: np }, arrays) {
  const flat = new Float32Array(DATUMS * TOKENS);
  for (const [index, array] of arrays.entries()) flat.set(array, index * TOKENS);
  return np.array(flat).reshape([DATUMS, TOKENS]);
}

async function measure(name) {
  const inputs = Array.from({ length: CALLS }, (_, call) => rows(call + 2));
  const start = performance.now();
  const prepare = await variants[name]();
  const importMs = performance.now() - start;
  const evaluate = prepare();
  const timesMs = [];
  let last;
  for (const values of inputs) {
    const begin = performance.now();
    last = await evaluate(values);
    timesMs.push(performance.now() - begin);
  }
  const gradientSum = last.gradients.reduce(
    (all, each) => all + each.reduce((a, b) => a + Math.abs(b), 0),
    0,
  );
  console.log(JSON.stringify({ importMs, timesMs, loss: last.loss, gradientSum }));
}

const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];
const round = (value) => Number(value.toFixed(3));

async function compare() {
  const runs = {};
  const failures = {};
  // In turns, so that whatever else the machine does falls on all alike.
  for (let count = 0; count < ROUNDS; count++) {
    for (const name of Object.keys(variants)) {
      if (failures[name] !== undefined) continue;
      const child = spawnSync(process.execPath, [fileURLToPath(import.meta.url), "--measure", name], {
        encoding: "utf8",
      });
      if (child.status === 0) runs[name] = [...(runs[name] ?? []), JSON.parse(child.stdout)];
      else failures[name] = child.stderr.split("\n").find((line) => line.includes("Error")) ?? child.stderr;
    }
  }
  if (runs[OURS] === undefined) throw new Error(failures[OURS]);
  const results = Object.fromEntries(
    Object.entries(runs).map(([name, all]) => [
      name,
      {
        importMs: round(median(all.map(({ importMs }) => importMs))),
        firstMs: round(median(all.map(({ timesMs }) => timesMs[0]))),
        tenthMs: round(median(all.map(({ timesMs }) => median(timesMs.slice(8, 11))))),
        loss: all[0].loss,
        gradientSum: all[0].gradientSum,
      },
    ]),
  );
  const { [OURS]: ours, [BEST_CASE]: bestCase, ...peers } = results;
  for (const [name, { loss, gradientSum }] of Object.entries(results)) {
    const agrees =
      Math.abs(loss - ours.loss) < 1e-3 * Math.abs(ours.loss) &&
      Math.abs(gradientSum - ours.gradientSum) < 1e-3 * ours.gradientSum;
    if (!agrees)
      throw new Error(`${name} computes another loss: ${JSON.stringify({ ours, [name]: results[name] })}`);
  }
  /** How many times faster ours is than the fastest of them. */
  const ratios = (others) => {
    if (others.length === 0) return null;
    const ratio = (cost) => round(Math.min(...others.map(cost)) / cost(ours));
    return {
      first: ratio(({ firstMs }) => firstMs),
      firstWithImport: ratio(({ importMs, firstMs }) => importMs + firstMs),
      tenth: ratio(({ tenthMs }) => tenthMs),
    };
  };
  const toPeers = ratios(Object.values(peers));
  const serverSide = await measureServerSide();
  const beatsPeers =
    toPeers === null ||
    (Math.min(toPeers.first, toPeers.firstWithImport) >= FIRST_CALL_BAR && toPeers.tenth >= 1);
  const pass = beatsPeers && serverSide.ofTwoPasses <= SERVER_BAR;
  console.log(
    JSON.stringify({
      bench: "custom-loss",
      datums: DATUMS,
      tokens: TOKENS,
      results,
      ...(Object.keys(failures).length === 0 ? {} : { notMeasured: failures }),
      timesFaster: { peers: toPeers, bestCase: ratios(bestCase === undefined ? [] : [bestCase]) },
      serverSide,
      pass,
    }),
  );
  process.exitCode = pass === false ? 1 : 0;
}

const [mode, name] = process.argv.slice(2);
if (mode === "--measure") await measure(name);
else await compare();
