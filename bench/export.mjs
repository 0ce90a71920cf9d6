// Merges an adapter into a model of 400 million parameters, here and with the Python cookbook's build_hf_model on the same
// files; then reads a merged model of 30 billion parameters, in sparse files of zeros, to its end. Each in a process of
// its own. TINKERTS_PYTHON names a Python with tinker_cookbook and torch. Needs a build: npm run build.
// `seconds` are those of the merge alone, `processSeconds` also of starting and importing, which people wait for as well;
// `cpuSeconds` are those of all cores in the whole process.
// Bars: the merge at least as fast as the Python cookbook's, and less than 2 GB of memory for either model.
import { execFileSync, spawnSync } from "node:child_process";
import { randomFillSync } from "node:crypto";
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  rmSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { encodeHeader, encodeSafetensors } from "../dist/checkpoints/safetensors.js";
import { sized } from "./shared/sized.mjs";

const ROUNDS = sized(3, 1);
const RANK = 32;
const MEMORY_BAR_MB = 2000;
const MERGED = { hidden: sized(2048, 128), inter: sized(6144, 256), layers: sized(8, 2), isSparse: false };
const LARGE = { hidden: sized(5120, 128), inter: sized(25_600, 256), layers: sized(64, 2), isSparse: true };
const here = (file) => fileURLToPath(new URL(`./export/${file}`, import.meta.url));
const python = process.env.TINKERTS_PYTHON;

/** A folder with the weights of a Qwen3, a file a layer, and an adapter of rank 32 for them. */
function makeModel(folder, { hidden, inter, layers, isSparse }) {
  const [base, adapter] = ["base", "adapter"].map((name) => join(folder, name));
  for (const each of [base, adapter]) mkdirSync(each, { recursive: true });
  const shapes = {
    ...Object.fromEntries(["q", "k", "v", "o"].map((part) => [`self_attn.${part}_proj`, [hidden, hidden]])),
    ...{ "mlp.gate_proj": [inter, hidden], "mlp.up_proj": [inter, hidden], "mlp.down_proj": [hidden, inter] },
  };
  const map = {};
  const tensors = {};
  let parameters = 0;
  for (let layer = 0; layer < layers; layer++) {
    const entries = Object.entries(shapes).map(([name, shape]) => ({
      name: `model.layers.${layer}.${name}.weight`,
      dtype: "BF16",
      shape,
    }));
    const { header, dataBytes } = encodeHeader(entries, { format: "pt" });
    const file = `model-${String(layer + 1).padStart(5, "0")}-of-${String(layers).padStart(5, "0")}.safetensors`;
    const handle = openSync(join(base, file), "w");
    writeSync(handle, header);
    if (!isSparse) {
      const values = new Uint16Array(dataBytes / 2);
      for (let at = 0; at < dataBytes; at += 1 << 30)
        randomFillSync(values, at / 2, Math.min(1 << 29, (dataBytes - at) / 2));
      // Below 2, and finite.
      for (let i = 0; i < values.length; i++) values[i] &= 0xbfff;
      writeSync(handle, values);
    }
    closeSync(handle);
    truncateSync(join(base, file), header.length + dataBytes);
    parameters += dataBytes / 2;
    for (const { name } of entries) map[name] = file;
    // Of a sparse model, few layers are changed: what counts is that all are read.
    if (isSparse && layer % 16 !== 0) continue;
    for (const [name, [outputs, inputs]] of Object.entries(shapes)) {
      const matrix = (shape) => ({ shape, data: new Float32Array(shape[0] * shape[1]).fill(0.01) });
      const path = `base_model.model.model.layers.${layer}.${name}`;
      tensors[`${path}.lora_A.weight`] = matrix([RANK, inputs]);
      tensors[`${path}.lora_B.weight`] = matrix([outputs, RANK]);
    }
  }
  const config = { model_type: "qwen3", architectures: ["Qwen3ForCausalLM"], tie_word_embeddings: false };
  writeFileSync(join(base, "config.json"), JSON.stringify(config));
  writeFileSync(join(base, "tokenizer_config.json"), "{}");
  writeFileSync(
    join(base, "model.safetensors.index.json"),
    JSON.stringify({ metadata: {}, weight_map: map }),
  );
  writeFileSync(join(adapter, "adapter_model.safetensors"), encodeSafetensors(tensors));
  const settings = { peft_type: "LORA", r: RANK, lora_alpha: RANK, target_modules: "all-linear" };
  writeFileSync(join(adapter, "adapter_config.json"), JSON.stringify(settings));
  return { base, adapter, parameters };
}

const lastLine = (text) => JSON.parse(text.trim().split("\n").at(-1));
const hasPeer = () =>
  python !== undefined && spawnSync(python, ["-c", "import torch, tinker_cookbook.weights"]).status === 0;
const rounded = ({ megabytes, ...times }) => ({
  ...Object.fromEntries(Object.entries(times).map(([name, seconds]) => [name, Number(seconds.toFixed(1))])),
  megabytes: Math.round(megabytes),
});
const best = (rounds) => {
  const least = (name) => Math.min(...rounds.map((round) => round[name]));
  return {
    ...{ processSeconds: least("processSeconds"), seconds: least("seconds") },
    cpuSeconds: least("cpuSeconds"),
    megabytes: Math.max(...rounds.map(({ megabytes }) => megabytes)),
  };
};

const folder = mkdtempSync(join(process.env.TINKERTS_BENCH_FOLDER ?? tmpdir(), "tinkerts-export-"));
try {
  const { base, adapter, parameters } = makeModel(join(folder, "model"), MERGED);
  const output = join(folder, "merged");
  const rounds = { ours: [], theirs: [] };
  const isCompared = hasPeer();
  for (let round = 0; round < ROUNDS; round++) {
    const run = (program, file, args) => {
      const begin = performance.now();
      const result = lastLine(
        execFileSync(program, [here(file), ...args], { encoding: "utf8", stdio: "pipe" }),
      );
      const processSeconds = (performance.now() - begin) / 1000;
      rmSync(output, { recursive: true });
      return { ...result, processSeconds };
    };
    rounds.ours.push(run(process.execPath, "merge.mjs", ["merge", base, adapter, output]));
    if (isCompared) rounds.theirs.push(run(python, "merge.py", [base, adapter, output]));
  }
  const large = makeModel(join(folder, "large"), LARGE);
  const read = lastLine(
    execFileSync(process.execPath, [here("merge.mjs"), "read", large.base, large.adapter], {
      encoding: "utf8",
    }),
  );
  const ours = best(rounds.ours);
  const theirs = isCompared ? best(rounds.theirs) : undefined;
  if (!isCompared)
    console.error("The Python cookbook is left out: TINKERTS_PYTHON names no Python with it and torch.");
  const bars = {
    "at least as fast as the Python cookbook": theirs === undefined ? null : ours.seconds <= theirs.seconds,
    "less than 2 GB of memory": Math.max(ours.megabytes, read.megabytes) < MEMORY_BAR_MB,
  };
  const pass = Object.values(bars).every((met) => met !== false);
  console.log(
    JSON.stringify({
      bench: "export",
      parameters,
      rank: RANK,
      merge: rounded(ours),
      pythonMerge: theirs && rounded(theirs),
      largeParameters: large.parameters,
      largeRead: rounded(read),
      bars,
      pass: bars["at least as fast as the Python cookbook"] === null && pass ? null : pass,
    }),
  );
  process.exitCode = pass ? 0 : 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
