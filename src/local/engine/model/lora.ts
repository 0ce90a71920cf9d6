import { EngineInputError, LORA_ALPHA, type LoraSettings } from "../engine.js";
import type { LowRankGroup } from "../kernels/few-rows.js";
import { type F32, type Kernels, sliceBuffer } from "../kernels/kernels.js";
import { uniformArray } from "../philox.js";
import {
  blockLinears,
  type FusedLinear,
  headLinear,
  type LinearName,
  mapLinears,
} from "./decoder-weights.js";
import type { ModelConfig } from "./model-config.js";
import { LayoutBuilder, type Range, sizeOf, type TensorPlace, writeTensors } from "./tensor-layout.js";

/** Adapters of the linear layers that read the same input. */
export type LoraGroup = LowRankGroup;

/** The adapters of one block; absent where nothing is trained. */
export type LoraLayer = Record<LinearName, LoraGroup | undefined>;

/** One adapter's low-rank matrices. */
export interface LoraWeights {
  layers: LoraLayer[];
  head: LoraGroup | undefined;
}

/** Where they sit in one flat buffer. */
export interface LoraLayout {
  places: TensorPlace[];
  length: number;
  bind(flat: F32): LoraWeights;
}

interface GroupRange {
  a: Range;
  b: (Range & { column: number; cols: number })[];
}

const MAX_RANK = 1024;

/** Lays out an adapter's tensors under the names that PEFT gives them. */
export function loraLayout(config: ModelConfig, lora: LoraSettings): LoraLayout {
  const { rank, trainAttn, trainMlp, trainUnembed } = lora;
  if (!Number.isInteger(rank) || rank < 1 || rank > MAX_RANK) {
    throw new EngineInputError(`an adapter's rank must be a whole number from 1 to ${MAX_RANK}, got ${rank}`);
  }
  const trained = { qkv: trainAttn, output: trainAttn, gateUp: trainMlp, down: trainMlp };
  const builder = new LayoutBuilder();
  const group = (prefix: string, { inputs, parts }: FusedLinear): GroupRange => {
    const name = (part: string, matrix: "A" | "B") =>
      `base_model.model.${prefix}${part}.lora_${matrix}.weight`;
    const a = builder.linear(
      inputs,
      parts.map((part) => ({ name: name(part.name, "A"), cols: rank })),
    );
    let column = 0;
    const b = parts.map((part) => {
      const range = builder.linear(rank, [{ name: name(part.name, "B"), cols: part.cols }]);
      column += part.cols;
      return { ...range, column: column - part.cols, cols: part.cols };
    });
    return { a, b };
  };
  const linears = blockLinears(config);
  const layers = Array.from({ length: config.layers }, (_, layer) =>
    mapLinears((name) => (trained[name] ? group(`model.layers.${layer}.`, linears[name]) : undefined)),
  );
  const head = trainUnembed ? group("", headLinear(config)) : undefined;
  if (builder.length === 0) {
    throw new EngineInputError("the adapter trains nothing: neither attention, nor MLP, nor unembedding");
  }
  return {
    places: builder.places,
    length: builder.length,
    bind(flat) {
      const part = (range: Range) => sliceBuffer(flat, range.start, range.length);
      const bindGroup = (range: GroupRange | undefined): LoraGroup | undefined =>
        range && {
          rank,
          scaling: LORA_ALPHA / rank,
          a: part(range.a),
          b: range.b.map(({ column, cols, ...matrix }) => ({ matrix: part(matrix), column, cols })),
        };
      return {
        layers: layers.map((layer) => mapLinears((name) => bindGroup(layer[name]))),
        head: bindGroup(head),
      };
    },
  };
}

/** Fills a buffer of zeros with PEFT's defaults: A uniform within 1 / sqrt(in), B zero, so that a new adapter changes nothing. */
export function initialiseLora(kernels: Kernels, flat: F32, layout: LoraLayout, seed: number): void {
  function* initialTensors() {
    for (const [index, place] of layout.places.entries()) {
      if (!place.name.endsWith("lora_A.weight")) continue;
      yield [place, { shape: place.shape, data: initialA(place, index, seed) }] as const;
    }
  }
  writeTensors(kernels, flat, initialTensors());
}

/** The values that the A at this position of a layout begins with. */
export function initialA(place: TensorPlace, index: number, seed: number): Float32Array {
  const [, inputs] = place.shape as [number, number];
  return uniformArray(sizeOf(place), 1 / Math.sqrt(inputs), seed, index);
}
