// A DPO loss and its gradients over 64 x 1,024 logprobs: the built-in autograd beside jax-js, each in fresh processes.
// jax-js is an optional peer; JAX_JS names another copy of its module. It gets the best of several ways to write the
// loss: one array per datum or all in one matrix, compiled with jit or not. Needs a build: npm run build.
// Bar: the built-in autograd at least 3 times faster at the first call and no slower at the tenth.
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const DATUMS = 64;
const TOKENS = 1024;
const CALLS = 12;
const ROUNDS = 7;
const BETA = 0.1;
const FIRST_CALL_BAR = 3;

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

/** Each returns a function from logprobs (one Float32Array per datum) to the loss and one gradient per datum. */
const variants = {
  async autograd() {
    const { evaluateCustomLoss } = await import("../dist/training/index.js");
    const { logSigmoid, mean, mul, neg, stack, sub, sum, variable } = await import(
      "../dist/training/autograd/index.js"
    );
    const lossFn = (_, logprobs) => {
      const gains = logprobs.map((each, index) => sum(mul(sub(each, references[index]), masks[index])));
      const chosen = stack(gains.filter((_, index) => index % 2 === 0));
      const rejected = stack(gains.filter((_, index) => index % 2 === 1));
      return { loss: neg(mean(logSigmoid(mul(sub(chosen, rejected), BETA)))) };
    };
    return async (values) => {
      const logprobs = values.map((each) => variable(each));
      const { loss, gradients } = await evaluateCustomLoss(lossFn, [], logprobs);
      return { loss, gradients: gradients.map((each) => new Float32Array(each)) };
    };
  },
  "jax matrix": (jax) => jaxVariant(jax, { isList: false, isCompiled: false }),
  "jax matrix jit": (jax) => jaxVariant(jax, { isList: false, isCompiled: true }),
  "jax list": (jax) => jaxVariant(jax, { isList: true, isCompiled: false }),
  "jax list jit": (jax) => jaxVariant(jax, { isList: true, isCompiled: true }),
};

const flatten = (arrays) => {
  const flat = new Float32Array(DATUMS * TOKENS);
  for (const [index, array] of arrays.entries()) flat.set(array, index * TOKENS);
  return flat;
};

function jaxVariant({ numpy: np, nn, valueAndGrad, jit }, { isList, isCompiled }) {
  const matrix = (arrays) => np.array(flatten(arrays)).reshape([DATUMS, TOKENS]);
  const lossFn = (logprobs, reference, mask) => {
    const all = isList ? np.stack(logprobs) : logprobs;
    const gains = np.sum(all.sub(reference).mul(mask), 1).reshape([DATUMS / 2, 2]);
    const margins = np.sum(gains.mul(np.array([[1, -1]])), 1);
    return np.mean(nn.logSigmoid(margins.mul(BETA))).mul(-1);
  };
  const differentiate = valueAndGrad(lossFn);
  const run = isCompiled ? jit(differentiate) : differentiate;
  const [reference, mask] = [matrix(references), matrix(masks)];
  return async (values) => {
    const logprobs = isList ? values.map((each) => np.array(each)) : matrix(values);
    const [loss, gradient] = run(logprobs, reference.ref, mask.ref);
    const [value] = await loss.data();
    if (isList) return { loss: value, gradients: await Promise.all(gradient.map((each) => each.data())) };
    const flat = await gradient.data();
    return {
      loss: value,
      gradients: values.map((_, index) => flat.subarray(index * TOKENS, (index + 1) * TOKENS)),
    };
  };
}

async function measure(name) {
  const jax = name === "autograd" ? undefined : await import(process.env.JAX_JS ?? "@jax-js/jax");
  const evaluate = await variants[name](jax);
  const inputs = Array.from({ length: CALLS }, (_, call) => rows(call + 2));
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
  console.log(JSON.stringify({ timesMs, loss: last.loss, gradientSum }));
}

const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];
const round = (value) => Number(value.toFixed(3));

function compare() {
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
  if (runs.autograd === undefined) throw new Error(failures.autograd);
  const results = Object.fromEntries(
    Object.entries(runs).map(([name, all]) => [
      name,
      {
        firstMs: round(median(all.map(({ timesMs }) => timesMs[0]))),
        tenthMs: round(median(all.map(({ timesMs }) => median(timesMs.slice(8, 11))))),
        loss: all[0].loss,
        gradientSum: all[0].gradientSum,
      },
    ]),
  );
  const { autograd, ...others } = results;
  for (const [name, { loss, gradientSum }] of Object.entries(others)) {
    const agrees =
      Math.abs(loss - autograd.loss) < 1e-3 * Math.abs(autograd.loss) &&
      Math.abs(gradientSum - autograd.gradientSum) < 1e-3 * autograd.gradientSum;
    if (!agrees)
      throw new Error(`${name} computes another loss: ${JSON.stringify({ autograd, [name]: others[name] })}`);
  }
  const peers = Object.values(others);
  const hasPeer = peers.length > 0;
  const best = (key) => Math.min(...peers.map((each) => each[key]));
  const firstRatio = hasPeer ? round(best("firstMs") / autograd.firstMs) : null;
  const tenthRatio = hasPeer ? round(best("tenthMs") / autograd.tenthMs) : null;
  const pass = hasPeer ? firstRatio >= FIRST_CALL_BAR && tenthRatio >= 1 : null;
  console.log(
    JSON.stringify({
      bench: "custom-loss",
      datums: DATUMS,
      tokens: TOKENS,
      results,
      ...(Object.keys(failures).length === 0 ? {} : { notMeasured: failures }),
      firstRatio,
      tenthRatio,
      pass,
    }),
  );
  process.exitCode = pass === false ? 1 : 0;
}

const [mode, name] = process.argv.slice(2);
if (mode === "--measure") await measure(name);
else compare();
