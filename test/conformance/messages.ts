/** Makers of tensors, prompts, datums and the hot messages, and of the JSON types that have codecs of their own. */
import {
  Datum,
  type ForwardBackwardOutput,
  type ForwardBackwardRequest,
  ModelInput,
  type ModelInputChunkLike,
  type ProvenanceSpan,
  type SampleRequest,
  type SampleResponse,
  TensorData,
  type TensorDtype,
  type TopkLogprobs,
} from "../../src/wire/index.js";
import {
  boolean,
  bytes,
  count,
  finite,
  integer,
  type Make,
  optional,
  type Random,
  text,
  tokens,
  wellFormedText,
} from "./random.js";
import { shapes } from "./shapes.js";

const SPECIAL = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0, -0, 1e-45, 3.4e38].map(
  Math.fround,
);

type Numbers = "any" | "finite";

function float32(random: Random, numbers: Numbers): number {
  if (numbers === "any" && random.chance(0.2)) return random.pick(SPECIAL);
  return Math.fround((random.next() - 0.7) * 10);
}

function values(random: Random, dtype: TensorDtype, size: number, numbers: Numbers) {
  if (dtype === "float32") return Float32Array.from(random.times(size, (each) => float32(each, numbers)));
  // Small ones are kept in 32 bits, so both kinds of storage are seen.
  return random.chance(0.5)
    ? Int32Array.from(random.times(size, (each) => each.integer(-(2 ** 31), 2 ** 31 - 1)))
    : Float64Array.from(random.times(size, integer));
}

export const tensor =
  (numbers: Numbers = "any", fixedDtype?: TensorDtype): Make<TensorData> =>
  (random) => {
    const dtype = fixedDtype ?? random.pick<TensorDtype>(["float32", "int64"]);
    if (random.chance(0.3)) {
      const [rows, columns] = [random.integer(0, 5), random.integer(1, 6)];
      const crow = [0];
      const col: number[] = [];
      for (let row = 0; row < rows; row++) {
        for (let column = 0; column < columns; column++) if (random.chance(0.4)) col.push(column);
        crow.push(col.length);
      }
      return new TensorData({
        dtype,
        data: values(random, dtype, col.length, numbers),
        shape: [rows, columns],
        sparseCrowIndices: Int32Array.from(crow),
        sparseColIndices: Int32Array.from(col),
      });
    }
    return denseTensor(random, dtype, random.pick([0, 1, 1, 1, 2, 2, 3]), numbers);
  };

function denseTensor(random: Random, dtype: TensorDtype, rank: number, numbers: Numbers): TensorData {
  const shape = random.times(rank, (each) => each.pick([0, 1, 2, 3, 7]));
  const size = shape.reduce((product, each) => product * each, 1);
  return new TensorData({ dtype, data: values(random, dtype, size, numbers), shape });
}

/** A header (optional constant marker, dtype, dimensions) and any bytes after it. */
const dmel: Make<Uint8Array> = (random) => {
  const marker = random.chance(0.3) ? [254] : [];
  const shape = random.times(random.integer(1, 3), (each) => each.integer(0, 127));
  return Uint8Array.from([...marker, random.integer(0, 7), shape.length, ...shape, ...bytes(random)]);
};
const format: Make<"png" | "jpeg"> = (random) => random.pick(["png", "jpeg"]);
const expectedTokens = optional<number>((random) => random.pick([0, 1, 300, 2 ** 31 - 1]));

export const chunks = {
  EncodedTextChunk: (random: Random) => ({ type: "encoded_text" as const, tokens: tokens(random) }),
  ImageChunk: (random: Random) => ({
    type: "image" as const,
    data: bytes(random),
    format: format(random),
    expectedTokens: expectedTokens(random),
  }),
  ImageAssetPointerChunk: (random: Random) => ({
    type: "image_asset_pointer" as const,
    format: format(random),
    location: `${text(random)}x`,
    expectedTokens: expectedTokens(random),
  }),
  DmelChunk: (random: Random) => ({ type: "dmel" as const, dmel: dmel(random) }),
} satisfies Record<string, Make<ModelInputChunkLike>>;

/** Protobuf has no pointers to assets. */
export const modelInput =
  (assets: boolean): Make<ModelInput> =>
  (random) => {
    const kinds: Make<ModelInputChunkLike>[] = [
      chunks.EncodedTextChunk,
      chunks.EncodedTextChunk,
      chunks.ImageChunk,
      chunks.DmelChunk,
    ];
    if (assets) kinds.push(chunks.ImageAssetPointerChunk);
    return ModelInput.from({ chunks: random.times(random.integer(0, 4), (each) => each.pick(kinds)(each)) });
  };

const span: Make<ProvenanceSpan> = (random) => ({
  type: random.pick(["prompt", "sampled"]),
  sequenceId: `${wellFormedText(random)}x`,
  offset: random.chance(0.3) ? undefined : count(random),
  length: count(random),
});

/** Names in order, none the beginning of another: then both writers of a map, which has no order, write the same bytes. */
function someNames(random: Random, names: readonly string[]): string[] {
  return names.filter(() => random.chance(0.4));
}

/** Anything that may travel; a client of ours would refuse some of it. */
export const datum =
  (kind: "proto" | "json"): Make<Datum> =>
  (random) => {
    const inputs = ["advantages", "clipLowThreshold", "logprobs", "ownInput", "targetTokens", "weights", "x"];
    const make = tensor(kind === "json" ? "finite" : "any");
    const spans = (each: Random) => each.times(each.integer(1, 3), span);
    return Datum.received({
      modelInput: modelInput(kind === "json")(random),
      lossFnInputs: Object.fromEntries(someNames(random, inputs).map((name) => [name, make(random)])),
      ...(kind === "proto" &&
        random.chance(0.3) && { modelInputSpans: spans(random), lossFnInputSpans: spans(random) }),
    });
  };

const LOSSES = [
  "cross_entropy",
  "importance_sampling",
  "ppo",
  "cispo",
  "dro",
  "gspo",
  "stable_reinforce",
  "custom",
];

export const forwardBackwardRequest =
  (kind: "proto" | "json"): Make<ForwardBackwardRequest> =>
  (random) => {
    const names = someNames(random, ["beta", "clipLowThreshold", "klCoeff", "lossId", "mode"]);
    return {
      modelId: wellFormedText(random) || (kind === "json" ? "m" : ""),
      seqId: random.pick([0, 1, 127, 128, 2 ** 31 - 1, random.integer(0, 10_000)]),
      data: random.times(random.pick([0, 1, 2, 5]), datum(kind)),
      lossFn: random.pick(kind === "json" ? LOSSES : [...LOSSES, "a_new_loss"]),
      forwardOnly: boolean(random),
      ...(names.length > 0 && {
        lossFnConfig: Object.fromEntries(
          names.map((name) => [name, random.chance(0.3) ? wellFormedText(random) : finite(random)]),
        ),
      }),
    };
  };

export const sampleRequest: Make<SampleRequest> = (random) => {
  const fields = {
    prompt: modelInput(true)(random),
    numSamples: optional(integer)(random),
    samplingParams: shapes.SamplingParams(random),
    baseModel: optional(text)(random),
    modelPath: optional(text)(random),
    samplingSessionId: optional(text)(random),
    seqId: optional(integer)(random),
    promptLogprobs: optional(boolean)(random),
    topkPromptLogprobs: optional(integer)(random),
    topkSampleLogprobs: optional(integer)(random),
    targetPromptLogprobs: optional(tensor("finite", "int64"))(random),
    promptAltTokensK: optional(integer)(random),
    promptLogprobsLastN: optional(integer)(random),
    recordStabilityInfo: optional(boolean)(random),
  };
  return Object.fromEntries(
    Object.entries(fields).filter(([, value]) => value !== undefined),
  ) as unknown as SampleRequest;
};

const topk: Make<TopkLogprobs> = (random) => {
  return random.times<TopkLogprobs[number]>(random.integer(1, 6), (each) =>
    each.chance(0.3)
      ? null
      : each.times(each.integer(1, 3), (cell): [number, number] => [
          cell.integer(0, 200_000),
          Math.fround(-cell.next() * 20),
        ]),
  );
};

export const sampleResponse: Make<SampleResponse> = (random) => ({
  sequences: random.times(random.pick([0, 1, 2, 5]), (each) => {
    const drawn = tokens(each);
    return {
      stopReason: each.pick(["stop", "length"]),
      sequenceId: null,
      tokens: Int32Array.from(drawn),
      logprobs:
        drawn.length > 0 && each.chance(0.7) ? Float32Array.from(drawn, () => float32(each, "any")) : null,
      topkLogprobs: each.chance(0.3) ? topk(each) : null,
    };
  }),
  promptLogprobs: random.chance(0.5)
    ? random.times(random.integer(1, 30), (each) => {
        const value = float32(each, "any");
        return Number.isNaN(value) ? null : value;
      })
    : null,
  topkPromptLogprobs: random.chance(0.3) ? topk(random) : null,
  targetPromptLogprobs: random.chance(0.3) ? tensor("any", "float32")(random) : null,
  promptCacheHitTokens: random.integer(0, 2 ** 31 - 1),
  promptAltTokens: random.chance(0.3)
    ? { tokens: denseTensor(random, "int64", 2, "any"), logprobs: denseTensor(random, "float32", 2, "any") }
    : null,
});

export const forwardBackwardOutput: Make<ForwardBackwardOutput> = (random) => {
  const names = someNames(random, ["entropy", "logprobs", "ownField"]);
  const ranks = names.map(() => random.integer(1, 3));
  const metrics = someNames(random, ["a:max", "b:min", "loss:sum", "mfu:mean", "plain", "ünï:sum"]);
  return {
    lossFnOutputType: "ArrayRecord",
    lossFnOutputs: random.times(names.length === 0 ? 0 : random.pick([0, 1, 4, 9]), (each) =>
      Object.fromEntries(
        names.map((name, index) => {
          const dtype = name === "ownField" ? "int64" : "float32";
          const made = denseTensor(each, dtype, ranks[index]!, "any");
          // A row of no numbers leaves no trace of how many rows there were.
          return [
            name,
            made.shape.slice(1).includes(0)
              ? new TensorData({ dtype, data: made.data, shape: [0, ...made.shape.slice(1)] })
              : made,
          ];
        }),
      ),
    ),
    metrics: Object.fromEntries(
      metrics.map((name) => [name, random.chance(0.1) ? random.pick(SPECIAL) : finite(random)]),
    ),
  };
};
