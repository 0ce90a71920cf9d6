// A PPO-like loss on the built-in backend with the nano model, over a socket: stored on the server (one pass) beside the
// same loss in the client (two passes), in turns in one process, so that whatever else the machine does falls on both.
// With TINKERTS_PYTHON (the tinker package and PyTorch), the official client trains with its own loss on the same server.
//   msPerStep  forwardBackwardCustom and optimStep, sent together, their median
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { sized } from "../shared/sized.mjs";

const DATUMS = sized(16, 2);
const TOKENS = sized(128, 32);
const STEPS = sized(15, 2);
const MODEL = "tinkerts/nano";

const python = process.env.TINKERTS_PYTHON;
const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];
const round = (value) => Number(value.toFixed(3));

function datum(index) {
  const tokens = Array.from({ length: TOKENS }, (_, at) => (at * 7 + index * 13) % 60);
  const list = (value) => Float32Array.from({ length: TOKENS }, (_, at) => value(at));
  return {
    modelInput: tokens,
    lossFnInputs: {
      targetTokens: tokens.map((token) => (token * 5 + 1) % 60),
      samplingLogprobs: list((at) => -4 - ((at * 3 + index) % 5) / 8),
      advantages: list((at) => ((at + index) % 3) - 1),
    },
  };
}

/** Milliseconds of a step on the server and in the client, and of the official client where there is one. */
export async function measureServerSide() {
  const { startLocalBackend } = await import("../../dist/local/index.js");
  const { ServiceClient } = await import("../../dist/index.js");
  const { clamp, exp, minimum, mul, neg, stack, sub, sum } = await import(
    "../../dist/training/autograd/index.js"
  );
  const backend = await startLocalBackend({ port: 0 });
  const service = new ServiceClient({ ...backend });
  try {
    const ppo = (logprobs, { samplingLogprobs, advantages }) => {
      const ratio = exp(sub(logprobs, samplingLogprobs));
      const clipped = clamp(ratio, { min: 0.8, max: 1.2 });
      return { loss: neg(sum(minimum(mul(ratio, advantages), mul(clipped, advantages)))) };
    };
    const inputs = { samplingLogprobs: 1, advantages: 1 };
    const stored = await service.createCustomLoss(ppo, { inputs });
    const inClient = (data, logprobs) => ({
      loss: sum(stack(logprobs.map((each, index) => ppo(each, data[index].lossFnInputs).loss))),
    });
    const batch = Array.from({ length: DATUMS }, (_, index) => datum(index));
    const sides = [];
    for (const lossFn of [stored, inClient]) {
      const training = await service.createLoraTrainingClient({ baseModel: MODEL, rank: 16, seed: 1 });
      sides.push({ training, lossFn, timesMs: [], loss: 0 });
    }
    for (let step = 0; step < STEPS + 2; step++) {
      for (const side of sides) {
        const begin = performance.now();
        const pass = side.training.forwardBackwardCustom(batch, side.lossFn);
        const update = side.training.optimStep({ learningRate: 1e-4 });
        side.loss = (await pass).metrics["loss:sum"];
        await update;
        // The first steps compile.
        if (step >= 2) side.timesMs.push(performance.now() - begin);
      }
    }
    const [onServer, twoPasses] = sides;
    if (Math.abs(onServer.loss - twoPasses.loss) > 1e-6 * Math.abs(twoPasses.loss))
      throw new Error(`The losses differ: ${onServer.loss} and ${twoPasses.loss}`);
    const [server, client] = sides.map(({ timesMs }) => median(timesMs));
    return {
      datums: DATUMS,
      tokens: TOKENS,
      serverMsPerStep: round(server),
      twoPassesMsPerStep: round(client),
      ofTwoPasses: round(server / client),
      python: python === undefined ? null : await officialClient(backend),
    };
  } finally {
    await service.close();
    await backend.close();
  }
}

function officialClient({ baseURL, apiKey }) {
  const script = fileURLToPath(new URL("official-client.py", import.meta.url));
  const args = [script, MODEL, DATUMS, TOKENS, STEPS].map(String);
  const env = { ...process.env, TINKER_BASE_URL: baseURL, TINKER_API_KEY: apiKey };
  return new Promise((resolve, reject) => {
    execFile(python, args, { env }, (error, stdout, stderr) => {
      if (error !== null) reject(new Error(`${error.message}\n${stderr}`));
      else resolve(JSON.parse(stdout.trim().split("\n").at(-1)));
    });
  });
}
