// Builds and serialises a forwardBackward of 64 datums x 2,048 tokens with weights: from plain number arrays, from
// typed arrays, and once more through the generic protobuf writer for comparison. Needs a build: npm run build.
// Bar: from typed arrays at least 300 MB/s of wire bytes, and at most 2.5 times the wire bytes allocated.
import { PerformanceObserver, performance } from "node:perf_hooks";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { create, toBinary } from "@bufbuild/protobuf";
import { DType, ForwardBackwardRequestSchema } from "../dist/wire/gen/tinker_public_pb.js";
import { Datum, encodeForwardBackwardRequest } from "../dist/wire/index.js";
import { decodeForwardBackwardRequest } from "../dist/wire/protobuf.js";
import { sized } from "./shared/sized.mjs";

const DATUMS = sized(64, 4);
const TOKENS = 2048;
const ROUNDS = sized(60, 4);
const WARM_UP_ROUNDS = sized(40, 1);
const MEGABYTES_PER_SECOND_BAR = 300;
const ALLOCATION_BAR = 2.5;

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc");

const numbers = Array.from({ length: DATUMS }, (_, datum) => {
  const token = (index) => (datum * 7919 + index * 104729) % 151936;
  return {
    modelInput: Array.from({ length: TOKENS }, (_, index) => token(index)),
    lossFnInputs: {
      targetTokens: Array.from({ length: TOKENS }, (_, index) => token(index + 1)),
      weights: Array.from({ length: TOKENS }, (_, index) => (index < 512 ? 0 : 1 / (1 + index))),
    },
  };
});
const typed = numbers.map(({ modelInput, lossFnInputs }) => ({
  modelInput: Int32Array.from(modelInput),
  lossFnInputs: {
    targetTokens: Int32Array.from(lossFnInputs.targetTokens),
    weights: Float32Array.from(lossFnInputs.weights),
  },
}));

const build = (examples) => ({
  modelId: "bench:train:0",
  seqId: 1,
  lossFn: "cross_entropy",
  forwardOnly: false,
  data: examples.map((example, index) => Datum.from(example, index)),
});
const serialise = (examples) => encodeForwardBackwardRequest(build(examples));

/** The same packing as the SDK's own, so that only the writers differ. */
function packInt64s(values) {
  const view = new DataView(new ArrayBuffer(values.length * 8));
  for (let index = 0; index < values.length; index++) {
    view.setInt32(index * 8, values[index], true);
    view.setInt32(index * 8 + 4, values[index] >> 31, true);
  }
  return new Uint8Array(view.buffer);
}
const bytesOf = (values) => new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
function serialiseGenerically(examples) {
  const { data, ...request } = build(examples);
  const tensor = ({ dtype, data: values, shape }) => {
    const dense = dtype === "float32" ? bytesOf(values) : packInt64s(values);
    const dtypeCode = dtype === "float32" ? DType.DTYPE_FLOAT32 : DType.DTYPE_INT64;
    return { dtype: dtypeCode, shape: shape.map(BigInt), layout: { case: "dense", value: dense } };
  };
  const message = create(ForwardBackwardRequestSchema, {
    ...request,
    data: data.map((datum) => ({
      modelInput: [
        { chunk: { case: "encodedText", value: { tokens: bytesOf(datum.modelInput.chunks[0].tokens) } } },
      ],
      lossFnInputs: {
        target_tokens: tensor(datum.lossFnInputs.targetTokens),
        weights: tensor(datum.lossFnInputs.weights),
      },
    })),
  });
  return toBinary(ForwardBackwardRequestSchema, message);
}

/**
 * Heap and array buffers used by one run, the most of several. A run during which garbage was collected does not
 * count; undefined when there was no other.
 */
async function allocatedBytes(run) {
  let collections = 0;
  const observer = new PerformanceObserver((list) => {
    collections += list.getEntries().length;
  });
  observer.observe({ entryTypes: ["gc"] });
  const settle = () => new Promise((resolve) => setTimeout(resolve, 5));
  let most;
  let counted = 0;
  for (let attempt = 0; attempt < 20 && counted < 8; attempt++) {
    collectGarbage();
    // A forced collection may drop compiled code, whose return would be counted as the run's own memory.
    run();
    await settle();
    collections = 0;
    const before = process.memoryUsage();
    const result = run();
    const after = process.memoryUsage();
    await settle();
    if (collections > 0 || result.length === 0) continue;
    counted++;
    most = Math.max(most ?? 0, after.heapUsed - before.heapUsed + after.arrayBuffers - before.arrayBuffers);
  }
  observer.disconnect();
  return most;
}

async function measure(name, run) {
  let wireBytes = 0;
  for (let round = 0; round < WARM_UP_ROUNDS; round++) wireBytes = run().length;
  const times = Array.from({ length: ROUNDS }, () => {
    const begin = performance.now();
    run();
    return performance.now() - begin;
  }).sort((left, right) => left - right);
  // Other processes can only make a round slower, so the bar looks at the faster quarter; the median is shown too.
  const quartileMs = times[ROUNDS / 4];
  const medianMs = times[ROUNDS / 2];
  const allocated = await allocatedBytes(run);
  const allocationRatio = allocated === undefined ? null : Number((allocated / wireBytes).toFixed(3));
  const megabytesPerSecond = Math.round(wireBytes / 1e6 / (quartileMs / 1e3));
  console.log(
    `${name}: ${wireBytes} bytes in ${quartileMs.toFixed(2)} ms (median ${medianMs.toFixed(2)}), ` +
      `${megabytesPerSecond} MB/s, ${allocationRatio ?? "too many"} times the wire bytes allocated`,
  );
  return {
    wireBytes,
    quartileMs: Number(quartileMs.toFixed(3)),
    medianMs: Number(medianMs.toFixed(3)),
    megabytesPerSecond,
    allocationRatio,
  };
}

const [bytes, generic] = [serialise(typed), serialiseGenerically(typed)];
const isSame = bytes.length === generic.length && bytes.every((byte, index) => byte === generic[index]);
if (!isSame || decodeForwardBackwardRequest(bytes).data.length !== DATUMS) {
  throw new Error("the two writers disagree");
}

const fromTyped = await measure("typed arrays", () => serialise(typed));
const fromNumbers = await measure("number arrays", () => serialise(numbers));
const withGenericWriter = await measure("generic writer", () => serialiseGenerically(typed));
const pass =
  fromTyped.megabytesPerSecond >= MEGABYTES_PER_SECOND_BAR &&
  fromTyped.allocationRatio !== null &&
  fromTyped.allocationRatio <= ALLOCATION_BAR;
console.log(
  JSON.stringify({
    bench: "encode",
    datums: DATUMS,
    tokens: TOKENS,
    fromTyped,
    fromNumbers,
    withGenericWriter,
    pass,
  }),
);
process.exitCode = pass ? 0 : 1;
