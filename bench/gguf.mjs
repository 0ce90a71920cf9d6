// Writes a model of 440 million parameters with an adapter of rank 32 as GGUF, in each type that people use, each in a process
// of its own. Beside it, llama.cpp's own quantizer works on as many values, on one thread: TINKERTS_PYTHON names a Python
// with numpy, TINKERTS_LLAMA_CPP the folder in which npm has installed node-llama-cpp. Needs a build: npm run build.
// Bar: less than 2 GB of memory.
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { encodeSafetensors } from "../dist/checkpoints/index.js";
import { sized } from "./shared/sized.mjs";

const [HIDDEN, INNER, LAYERS, RANK] = [sized(2048, 256), sized(6144, 512), sized(8, 1), 32];
const MEMORY_BAR_MB = 2000;
const TYPES = sized(["f16", "q8_0", "q6_K", "q4_K_M", "q4_0"], ["q8_0", "q4_K_M"]);
const LIBRARY = "node_modules/@node-llama-cpp/linux-x64/bins/linux-x64/libggml-base.so";
const here = (file) => fileURLToPath(new URL(`./gguf/${file}`, import.meta.url));
const nano = fileURLToPath(new URL("../models/nano", import.meta.url));

/** A Qwen3 with the tokenizer of the package's model, in BF16, and an adapter for all its linear layers. */
function makeModel(folder) {
  const [base, adapter] = ["base", "adapter"].map((name) => join(folder, name));
  for (const each of [base, adapter]) mkdirSync(each, { recursive: true });
  let state = 1;
  const tensor = (...shape) => ({
    shape,
    data: Float32Array.from({ length: shape.reduce((product, size) => product * size) }, () => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      return (state / 2 ** 32 - 0.5) * 0.05;
    }),
  });
  const linear = {
    ...Object.fromEntries(["q", "k", "v", "o"].map((name) => [`self_attn.${name}_proj`, [HIDDEN, HIDDEN]])),
    ...{ "mlp.gate_proj": [INNER, HIDDEN], "mlp.up_proj": [INNER, HIDDEN], "mlp.down_proj": [HIDDEN, INNER] },
  };
  const map = {};
  const write = (file, tensors) => {
    writeFileSync(join(base, file), encodeSafetensors(tensors, { dtype: "BF16" }));
    for (const name of Object.keys(tensors)) map[name] = file;
  };
  write("ends.safetensors", {
    "model.embed_tokens.weight": tensor(512, HIDDEN),
    "model.norm.weight": tensor(HIDDEN),
  });
  const changes = {};
  let parameters = 513 * HIDDEN;
  for (let layer = 0; layer < LAYERS; layer++) {
    const path = `model.layers.${layer}`;
    const tensors = {
      [`${path}.input_layernorm.weight`]: tensor(HIDDEN),
      [`${path}.post_attention_layernorm.weight`]: tensor(HIDDEN),
      [`${path}.self_attn.q_norm.weight`]: tensor(128),
      [`${path}.self_attn.k_norm.weight`]: tensor(128),
    };
    for (const [name, [outputs, inputs]] of Object.entries(linear)) {
      tensors[`${path}.${name}.weight`] = tensor(outputs, inputs);
      changes[`base_model.model.${path}.${name}.lora_A.weight`] = tensor(RANK, inputs);
      changes[`base_model.model.${path}.${name}.lora_B.weight`] = tensor(outputs, RANK);
      parameters += outputs * inputs;
    }
    write(`layer-${layer}.safetensors`, tensors);
  }
  const config = {
    ...{ model_type: "qwen3", hidden_size: HIDDEN, intermediate_size: INNER, num_hidden_layers: LAYERS },
    ...{ num_attention_heads: HIDDEN / 128, num_key_value_heads: HIDDEN / 128, head_dim: 128 },
    ...{ vocab_size: 512, tie_word_embeddings: true },
  };
  writeFileSync(join(base, "config.json"), JSON.stringify(config));
  writeFileSync(
    join(base, "model.safetensors.index.json"),
    JSON.stringify({ metadata: {}, weight_map: map }),
  );
  for (const file of ["tokenizer.json", "tokenizer_config.json"]) cpSync(join(nano, file), join(base, file));
  writeFileSync(join(adapter, "adapter_model.safetensors"), encodeSafetensors(changes));
  const settings = { peft_type: "LORA", r: RANK, lora_alpha: RANK, target_modules: "all-linear" };
  writeFileSync(join(adapter, "adapter_config.json"), JSON.stringify(settings));
  return { base, adapter, parameters };
}

/** Millions of values a second that llama.cpp's own quantizer makes of the same numbers; none where it is not there. */
function peerRates() {
  const library = join(process.env.TINKERTS_LLAMA_CPP ?? "", LIBRARY);
  if (!process.env.TINKERTS_PYTHON || !process.env.TINKERTS_LLAMA_CPP || !existsSync(library))
    return undefined;
  const out = execFileSync(process.env.TINKERTS_PYTHON, [here("quantize.py"), library], { encoding: "utf8" });
  return JSON.parse(out);
}

const folder = mkdtempSync(join(process.env.TINKERTS_BENCH_FOLDER ?? tmpdir(), "tinkerts-gguf-"));
try {
  const { base, adapter, parameters } = makeModel(folder);
  const types = [];
  for (const type of TYPES) {
    const output = join(folder, `${type}.gguf`);
    const out = execFileSync(process.execPath, [here("write.mjs"), base, adapter, output, type], {
      encoding: "utf8",
    });
    rmSync(output);
    const { seconds, megabytes } = JSON.parse(out);
    types.push({
      type,
      seconds: Number(seconds.toFixed(1)),
      megabytes: Math.round(megabytes),
      millionValuesPerSecond: Number((parameters / seconds / 1e6).toFixed(1)),
    });
  }
  const pass = types.every(({ megabytes }) => megabytes < MEMORY_BAR_MB);
  const llamaCpp = peerRates();
  if (llamaCpp === undefined)
    console.error("llama.cpp's quantizer is left out: TINKERTS_LLAMA_CPP names none.");
  console.log(
    JSON.stringify({
      bench: "gguf",
      parameters,
      rank: RANK,
      types,
      llamaCpp,
      bars: { "less than 2 GB of memory": pass },
      pass,
    }),
  );
  process.exitCode = pass ? 0 : 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
