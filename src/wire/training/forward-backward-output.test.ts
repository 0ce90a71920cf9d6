import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { TinkerError, ValidationError } from "../../errors.js";
import { DType, ForwardBackwardOutputSchema } from "../gen/tinker_public_pb.js";
import { packInt64s, packWords } from "../tensors/packed.js";
import { TensorData } from "../tensors/tensor-data.js";
import { decodeForwardBackwardOutput, encodeForwardBackwardOutput } from "./forward-backward-output-proto.js";
import type { ForwardBackwardOutput } from "./training-types.js";

type OutputInit = MessageInitShape<typeof ForwardBackwardOutputSchema>;
const encode = (init: OutputInit) =>
  toBinary(ForwardBackwardOutputSchema, create(ForwardBackwardOutputSchema, init));
const floats = (...values: number[]) => packWords(Float32Array.from(values));
const offsets = (...values: number[]) => packInt64s(Float64Array.from(values));
const withField = (field: object): Uint8Array =>
  encode({
    lossFnOutputs: [{ numDatums: 2n, fields: { logprobs: { dtype: DType.DTYPE_FLOAT32, ...field } } }],
  } as OutputInit);

const output = (lossFnOutputs: ForwardBackwardOutput["lossFnOutputs"]): ForwardBackwardOutput => {
  return {
    lossFnOutputType: "ArrayRecord",
    lossFnOutputs,
    metrics: { "loss:sum": 1.5, "a_b:mean": Number.NaN },
  };
};

describe("ForwardBackwardOutput", () => {
  it("comes back as it was written, whatever the layout of its neighbours", () => {
    const written = output([
      {
        logprobs: TensorData.from([-1, -2.5]),
        elementwiseLoss: TensorData.from(
          [
            [1, 2],
            [3, 4],
          ],
          { dtype: "int64" },
        ),
      },
      {
        logprobs: TensorData.from([-0.5]),
        elementwiseLoss: TensorData.from([[5, 2 ** 40]], { dtype: "int64" }),
      },
      {
        logprobs: TensorData.from(new Float32Array(0)),
        elementwiseLoss: TensorData.from([[5, 6, 7]], { dtype: "int64" }),
      },
      {},
      {},
    ]);
    const read = decodeForwardBackwardOutput(encodeForwardBackwardOutput(written));
    const nested = (value: ForwardBackwardOutput) =>
      value.lossFnOutputs.map((record) =>
        Object.fromEntries(
          Object.entries(record).map(([key, tensor]) => [key, [tensor.dtype, tensor.toNested()]]),
        ),
      );
    expect(nested(read)).toEqual(nested(written));
    expect(read.metrics).toEqual(written.metrics);
    expect(read.lossFnOutputType).toBe("ArrayRecord");
  });

  it("writes sparse tensors dense", () => {
    const sparse = TensorData.sparse([[0, 0, 0, 0, 0, 2]], { dtype: "float32" });
    expect(sparse.isSparse).toBe(true);
    const read = decodeForwardBackwardOutput(encodeForwardBackwardOutput(output([{ weights: sparse }])));
    expect(read.lossFnOutputs[0]!["weights"]!.toNested()).toEqual([[0, 0, 0, 0, 0, 2]]);
  });

  it("counts datums by num_datums, or by the fields where that is missing", () => {
    expect(decodeForwardBackwardOutput(encode({ lossFnOutputs: [{ numDatums: 3n }] })).lossFnOutputs).toEqual(
      [{}, {}, {}],
    );
    const fields = {
      logprobs: { dtype: DType.DTYPE_FLOAT32, data: floats(1, 2, 3), offsets: offsets(0, 4, 12) },
    };
    const older = decodeForwardBackwardOutput(encode({ lossFnOutputs: [{ fields }] }));
    expect(older.lossFnOutputs.map((record) => record["logprobs"]!.toArray())).toEqual([[1], [2, 3]]);
  });

  it("shows the type without its module, and ArrayRecord where there is none", () => {
    const typeOf = (lossFnOutputType: string) =>
      decodeForwardBackwardOutput(encode({ lossFnOutputType })).lossFnOutputType;
    expect([typeOf("a.b:c:Record"), typeOf("Record"), typeOf("")]).toEqual([
      "Record",
      "Record",
      "ArrayRecord",
    ]);
  });

  it("read in place, has its values in the answer's memory, wherever they lie in it", () => {
    const values = Float32Array.from({ length: 2000 }, (_, index) => index / 3);
    for (const typeName of ["A", "AB", "ABC", "ABCD"]) {
      const written = output([
        { logprobs: TensorData.from(values), few: TensorData.from([1.5]) },
        { logprobs: TensorData.from(values.subarray(7)), few: TensorData.from([2.5]) },
      ]);
      const bytes = encodeForwardBackwardOutput({ ...written, lossFnOutputType: typeName });
      const before = bytes.slice();
      const plain = decodeForwardBackwardOutput(bytes);
      expect(bytes).toEqual(before);
      const inPlace = decodeForwardBackwardOutput(bytes, { inPlace: true });
      expect(inPlace).toEqual(plain);
      expect(inPlace.lossFnOutputs.map(({ logprobs }) => logprobs!.data)).toEqual([
        values,
        values.subarray(7),
      ]);
      for (const { logprobs } of inPlace.lossFnOutputs) expect(logprobs!.data.buffer).toBe(bytes.buffer);
    }
  });

  it("reads an empty row shape", () => {
    const read = decodeForwardBackwardOutput(withField({ offsets: offsets(0, 0, 0), trailingShape: [0n] }));
    expect(read.lossFnOutputs[0]!["logprobs"]!.shape).toEqual([0, 0]);
  });

  it.each<[string, Uint8Array, string]>([
    ["garbage", Uint8Array.of(255), "cannot be read"],
    [
      "offsets beyond the data",
      withField({ data: floats(1), offsets: offsets(0, 4, 8) }),
      "has the offsets 4 to 8, out of its data",
    ],
    [
      "falling offsets",
      withField({ data: floats(1, 2), offsets: offsets(0, 8, 4) }),
      "has the offsets 8 to 4",
    ],
    [
      "offsets within a number",
      withField({ data: floats(1, 2), offsets: offsets(0, 2, 8) }),
      "has the offsets 0 to 2",
    ],
    [
      "too few tensors",
      withField({ data: floats(1), offsets: offsets(0, 4) }),
      "field logprobs has 1 tensors for 2 datums",
    ],
    [
      "rows that are not whole",
      withField({ data: floats(1, 2), offsets: offsets(0, 4, 8), trailingShape: [2n] }),
      "invalid shape [0.5, 2]",
    ],
    ["an unknown dtype", withField({ dtype: 9 as DType }), "unknown tensor dtype 9"],
  ])("with %s is the server's fault", (_, bytes, message) => {
    const decode = () => decodeForwardBackwardOutput(bytes);
    expect(decode).toThrow(message);
    expect(decode).toThrow("The server's ForwardBackwardOutput cannot be read");
    expect(decode).toThrow(TinkerError);
    expect(decode).not.toThrow(ValidationError);
  });
});
