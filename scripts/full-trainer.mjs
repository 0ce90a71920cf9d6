import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { decodeSafetensors, encodeSafetensors, toFloat32 } from "../dist/checkpoints/safetensors.js";
import { sliceBuffer } from "../dist/local/engine/kernels/kernels.js";
import { storedNames } from "../dist/local/engine/model/base-model.js";
import { decoderLayout } from "../dist/local/engine/model/decoder-weights.js";
import { modelConfigOf, parseModelConfig } from "../dist/local/engine/model/model-config.js";
import { openModelFolder } from "../dist/local/engine/model/model-folder.node.js";
import { RopeTables } from "../dist/local/engine/model/rope.js";
import { readTensors, sizeOf, writeTensors } from "../dist/local/engine/model/tensor-layout.js";
import { normalArray } from "../dist/local/engine/philox.js";
import { clipScale } from "../dist/local/engine/training/adapter.js";
import { forwardBackwardStep } from "../dist/local/engine/training/forward-backward-step.js";
import { crossEntropyInputs } from "../dist/local/engine/training/loss-inputs.js";

const STATE_FILE = "training-state.safetensors";
/** Pretraining: the same decoder with every weight trainable, saved as a Hugging Face folder that can be continued. */
export class FullTrainer {
  model;
  #kernels;
  #configJson;
  #layout;
  #flat;
  #flatGradients;
  #first;
  #second;
  #gradients;
  /** With a tied head its part of the embedding's gradient is kept apart, so that splitting a batch changes nothing. */
  #tiedHeadGradient;
  #microTokens;
  #step = 0;
  constructor(kernels, configJson, config, options) {
    this.#kernels = kernels;
    this.#configJson = configJson;
    this.#layout = decoderLayout(config);
    this.#flat = kernels.alloc(this.#layout.length);
    this.#flatGradients = kernels.alloc(this.#layout.length);
    this.#first = kernels.alloc(this.#layout.length);
    this.#second = kernels.alloc(this.#layout.length);
    this.#gradients = this.#layout.bind(this.#flatGradients);
    this.#tiedHeadGradient = config.tiedHead
      ? kernels.alloc(config.vocabSize * config.hiddenSize)
      : undefined;
    this.#microTokens = options.microTokens ?? 2048;
    this.model = {
      config,
      weights: this.#layout.bind(this.#flat),
      rope: new RopeTables(kernels, config),
    };
  }
  /** A fresh model: normal weights, those that write to the residual stream smaller by the root of their number. */
  static create(kernels, configJson, options) {
    const config = parseModelConfig(configJson, "new model");
    const trainer = new FullTrainer(kernels, configJson, config, options);
    const { seed, deviation = 0.02 } = options;
    function* initialTensors() {
      for (const [index, place] of trainer.#layout.places.entries()) {
        const { name, shape } = place;
        const isResidual = /\.(o_proj|down_proj)\.weight$/.test(name);
        const spread = isResidual ? deviation / Math.sqrt(2 * config.layers) : deviation;
        const data =
          shape.length === 2
            ? normalArray(sizeOf(place), spread, seed, index)
            : new Float32Array(sizeOf(place)).fill(name.endsWith(".bias") ? 0 : 1);
        yield [place, { shape, data }];
      }
    }
    writeTensors(kernels, trainer.#flat, initialTensors());
    return trainer;
  }
  /** A saved model; goes on exactly where it stopped when the folder holds the training state too. */
  static load(kernels, folder, options = {}) {
    const files = openModelFolder(folder);
    try {
      const configJson = files.config;
      const trainer = new FullTrainer(kernels, configJson, modelConfigOf(files), options);
      const { places } = trainer.#layout;
      const state = join(folder, STATE_FILE);
      if (existsSync(state)) trainer.#restore(state);
      else {
        const names = storedNames(files, places);
        function* tensors() {
          for (const place of places) {
            const { shape, bytes, dtype } = files.read(names.get(place));
            yield [place, { shape, data: toFloat32(bytes, dtype, place.name) }];
          }
        }
        writeTensors(kernels, trainer.#flat, tensors());
      }
      return trainer;
    } finally {
      files.close();
    }
  }
  #restore(state) {
    const { tensors, metadata } = decodeSafetensors(readFileSync(state));
    for (const [prefix, buffer] of this.#savedBuffers()) {
      const placed = this.#layout.places.map((place) => {
        const tensor = tensors[`${prefix}.${place.name}`];
        if (!tensor) throw new Error(`${state} lacks ${prefix}.${place.name}`);
        return [place, tensor];
      });
      writeTensors(this.#kernels, buffer, placed);
    }
    this.#step = Number(metadata["step"]);
  }
  get step() {
    return this.#step;
  }
  get parameters() {
    return this.#layout.length;
  }
  /** One optimizer step on the mean loss of the examples. */
  async train(examples, adam) {
    const kernels = this.#kernels;
    const total = examples.reduce((sum, example) => sum + weightOf(example), 0);
    const loss = await this.#pass(examples, 1 / total, true);
    if (this.#tiedHeadGradient) {
      kernels.add(this.#gradients.embedding, this.#gradients.embedding, this.#tiedHeadGradient);
      kernels.zero(this.#tiedHeadGradient);
    }
    const gradNorm = Math.sqrt(await kernels.sumSquares(this.#flatGradients));
    const gradScale = clipScale(gradNorm, adam.gradClipNorm);
    this.#step += 1;
    const { matrixLength, length } = this.#layout;
    const ranges = [
      [0, matrixLength, adam.weightDecay],
      [matrixLength, length - matrixLength, 0],
    ];
    for (const [start, count, weightDecay] of ranges) {
      const part = (buffer) => sliceBuffer(buffer, start, count);
      kernels.adamw(part(this.#flat), part(this.#flatGradients), part(this.#first), part(this.#second), {
        ...adam,
        weightDecay,
        step: this.#step,
        gradScale,
      });
    }
    kernels.zero(this.#flatGradients);
    return { loss, tokens: examples.reduce((sum, example) => sum + example.tokens.length, 0), gradNorm };
  }
  /** The mean loss, without learning. */
  async evaluate(examples) {
    const total = examples.reduce((sum, example) => sum + weightOf(example), 0);
    return this.#pass(examples, 1 / total, false);
  }
  /** Writes config.json and model.safetensors (f16 by default), and with `state` everything needed to continue. */
  async save(folder, options = {}) {
    mkdirSync(folder, { recursive: true });
    const { dtype = "F16", state = false } = options;
    const { places } = this.#layout;
    const config = { ...this.#configJson, torch_dtype: dtype === "F16" ? "float16" : "float32" };
    writeFileSync(join(folder, "config.json"), `${JSON.stringify(config, null, 2)}\n`);
    const weights = await readTensors(this.#kernels, this.#flat, places);
    writeFileSync(join(folder, "model.safetensors"), encodeSafetensors(weights, { dtype }));
    if (!state) return;
    const everything = {};
    for (const [prefix, buffer] of this.#savedBuffers()) {
      const tensors = await readTensors(this.#kernels, buffer, places);
      for (const [name, tensor] of Object.entries(tensors)) everything[`${prefix}.${name}`] = tensor;
    }
    const metadata = { format: "pt", step: String(this.#step) };
    writeFileSync(join(folder, STATE_FILE), encodeSafetensors(everything, { metadata }));
  }
  /** By their prefix in the state's file. */
  #savedBuffers() {
    return [
      ["weights", this.#flat],
      ["first", this.#first],
      ["second", this.#second],
    ];
  }
  async #pass(examples, scale, learn) {
    const sums = { loss: 0, clippedTokens: 0 };
    const head = { ...this.#gradients.head, weight: this.#tiedHeadGradient ?? this.#gradients.head.weight };
    const gradients = learn ? { weights: { ...this.#gradients, head } } : undefined;
    for (const group of microBatches(examples, this.#microTokens)) {
      const tokens = group.reduce((sum, example) => sum + example.tokens.length, 0);
      const targets = new Int32Array(tokens);
      const weights = new Float32Array(tokens).fill(scale);
      let at = 0;
      for (const example of group) {
        targets.set(example.targets, at);
        if (example.weights)
          weights.set(
            example.weights.map((weight) => weight * scale),
            at,
          );
        at += example.tokens.length;
      }
      await forwardBackwardStep(this.#kernels, {
        model: this.model,
        lora: undefined,
        sequences: group.map((example) => example.tokens),
        targets,
        targetsPerToken: 1,
        loss: { kind: "token", name: "cross_entropy", inputs: crossEntropyInputs(weights), sums },
        gradients,
        recompute: false,
      });
    }
    return sums.loss;
  }
}
function weightOf(example) {
  return example.weights?.reduce((sum, weight) => sum + weight, 0) ?? example.tokens.length;
}
/** Consecutive items of at most so many tokens together, at least one each. */
export function microBatches(items, maxTokens) {
  const groups = [];
  let tokens = 0;
  for (const item of items) {
    const last = groups.at(-1);
    if (last && tokens + item.tokens.length <= maxTokens) {
      last.push(item);
      tokens += item.tokens.length;
    } else {
      groups.push([item]);
      tokens = item.tokens.length;
    }
  }
  return groups;
}
