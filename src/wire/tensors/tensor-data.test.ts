import { describe, expect, it } from "vitest";
import { ValidationError } from "../../errors.js";
import { TensorData, type TensorLike } from "./tensor-data.js";

describe("TensorData.from", () => {
  it.each<[string, TensorLike, "float32" | "int64"]>([
    ["Float32Array", Float32Array.of(1, 2), "float32"],
    ["Float64Array", Float64Array.of(1, 2), "float32"],
    ["Int8Array", Int8Array.of(1, 2), "int64"],
    ["Int16Array", Int16Array.of(1, 2), "int64"],
    ["Int32Array", Int32Array.of(1, 2), "int64"],
    ["Uint8Array", Uint8Array.of(1, 2), "int64"],
    ["Uint8ClampedArray", Uint8ClampedArray.of(1, 2), "int64"],
    ["Uint16Array", Uint16Array.of(1, 2), "int64"],
    ["Uint32Array", Uint32Array.of(1, 2), "int64"],
    ["BigInt64Array", BigInt64Array.of(1n, 2n), "int64"],
    ["BigUint64Array", BigUint64Array.of(1n, 2n), "int64"],
    ["whole numbers", [1, 2], "int64"],
    ["parts", { data: [1, 2], dtype: "float32" }, "float32"],
  ])("reads a list from %s", (_, value, dtype) => {
    const tensor = TensorData.from(value);
    expect(tensor.dtype).toBe(dtype);
    expect(tensor.shape).toEqual([2]);
    expect(tensor.toArray()).toEqual([1, 2]);
    expect(tensor.data).toBeInstanceOf(dtype === "float32" ? Float32Array : Int32Array);
  });

  it("takes the dtype of plain lists from their numbers, or the given one", () => {
    expect(TensorData.from([1, 2.5]).dtype).toBe("float32");
    expect(TensorData.from([]).dtype).toBe("float32");
    expect(TensorData.from([[1, 2.5]]).dtype).toBe("float32");
    expect(TensorData.from([1], { dtype: "float32" }).data).toEqual(Float32Array.of(1));
    expect(TensorData.from(Int32Array.of(3), { dtype: "float32" }).data).toEqual(Float32Array.of(3));
    expect(TensorData.from(Float64Array.of(3), { dtype: "int64" }).data).toEqual(Int32Array.of(3));
    expect(TensorData.from(BigInt64Array.of(3n), { dtype: "float32" }).data).toEqual(Float32Array.of(3));
  });

  it("does not copy arrays that are already of the right kind", () => {
    const floats = Float32Array.of(1);
    const integers = Int32Array.of(1);
    expect(TensorData.from(floats).data).toBe(floats);
    expect(TensorData.from(integers).data).toBe(integers);
    const tensor = TensorData.from(floats);
    expect(TensorData.from(tensor)).toBe(tensor);
  });

  it("moves to a Float64Array when an integer needs more than 32 bits", () => {
    const wide = [1, -5, 2 ** 40, Number.MAX_SAFE_INTEGER];
    for (const value of [wide, BigInt64Array.from(wide, BigInt), [wide]] as TensorLike[]) {
      const tensor = TensorData.from(value, { dtype: "int64" });
      expect(tensor.data).toEqual(Float64Array.from(wide));
    }
    expect(TensorData.from([-(2 ** 31), 2 ** 31 - 1]).data).toBeInstanceOf(Int32Array);
    expect(TensorData.from([2 ** 31]).data).toBeInstanceOf(Float64Array);
  });

  it("keeps the shape of nested lists, also of typed rows, and of scalars", () => {
    const cube = [
      [[1], [2]],
      [[3], [4]],
      [[5], [6]],
    ];
    const tensor = TensorData.from(cube);
    expect(tensor.shape).toEqual([3, 2, 1]);
    expect(tensor.toNested()).toEqual(cube);
    expect(TensorData.from([Float32Array.of(1, 2), Float32Array.of(3, 4)]).toNested()).toEqual([
      [1, 2],
      [3, 4],
    ]);
    expect(TensorData.from(5).shape).toEqual([]);
    expect(TensorData.from(5).toNested()).toBe(5);
    expect(TensorData.from([[], []]).shape).toEqual([2, 0]);
    expect(TensorData.from([1, 2, 3, 4], { shape: [2, 2] }).toNested()).toEqual([
      [1, 2],
      [3, 4],
    ]);
  });

  it.each<[string, unknown, string]>([
    ["ragged rows", [[1, 2], [3]], "w[1] must be rectangular: expected 2 values, got 1 values"],
    ["a number among rows", [[1], 2], "w[1] must be rectangular: expected 1 values, got 2"],
    ["a row among numbers", [1, [2]], "w[1] must be a number, got a list of 1"],
    ["deeper rows later", [[1], [[2]]], "w[1] must be rectangular: expected a number, got a list of 1"],
    ["a text", [1, "2"], 'w[1] must be a number, got "2"'],
    ["null", [null], "w[0] must be a number, got null"],
    ["a hole", [1, undefined, 2.5], "w[1] must be a number, got undefined"],
    ["true", [true], "w[0] must be a number, got true"],
    ["a DataView", new DataView(new ArrayBuffer(4)), "w must be a numeric typed array, got a DataView"],
    ["a text instead of numbers", "abc", 'w must be numbers, a typed array or a TensorData, got "abc"'],
    ["a misspelt part", { data: [1], dtyp: "int64" }, "unknown field w.dtyp; did you mean dtype?"],
    ["an unknown dtype", { data: [1], dtype: "int32" }, 'w.dtype must be "float32" or "int64", got "int32"'],
    ["no data", { dtype: "int64" }, "w.data must be a list of numbers, got undefined"],
    ["a wrong shape", { data: [1, 2], shape: [3] }, "w has 2 values, which do not fill the shape [3]"],
    [
      "a shape that is no list",
      { data: [1], shape: "1" },
      'w must have a list of sizes as its shape, got "1"',
    ],
    ["a negative shape", { data: [], shape: [-1] }, "w has the invalid shape [-1]"],
  ])("refuses %s", (_, value, message) => {
    const convert = () => TensorData.from(value as TensorLike, { field: "w" });
    expect(convert).toThrow(message);
    expect(convert).toThrow(ValidationError);
  });

  it("refuses integers that are none, and those a number cannot hold", () => {
    const asInt64 = (value: TensorLike) => () => TensorData.from(value, { dtype: "int64", field: "w" });
    expect(asInt64([1, 1.5])).toThrow("w[1] must be an integer that a number holds exactly, got 1.5");
    expect(asInt64([Number.NaN])).toThrow("w[0] must be an integer");
    expect(asInt64(Float32Array.of(0.5))).toThrow("w[0] must be an integer");
    expect(asInt64(BigInt64Array.of(2n ** 60n))).toThrow("got 1152921504606846976n");
    expect(asInt64([[1], [2.5]])).toThrow("w[1][0] must be an integer");
    expect(asInt64(TensorData.from([0.5]))).toThrow("w must be int64, got a float32 tensor");
    expect(asInt64({ data: [1], dtype: "float32" })).toThrow("w must be int64, got a float32 tensor");
  });
});

describe("sparse tensors", () => {
  const dense = [
    [0, 0, 0, 0, 7],
    [0, 0, 0, 0, 0],
    [3, 0, 0, 4, 0],
  ];

  it("store what differs from the pad value and expand to the same matrix", () => {
    const tensor = TensorData.sparse(dense, { dtype: "int64" });
    expect(tensor.isSparse).toBe(true);
    expect([...tensor.data]).toEqual([7, 3, 4]);
    expect([...tensor.sparseCrowIndices!]).toEqual([0, 1, 1, 3]);
    expect([...tensor.sparseColIndices!]).toEqual([4, 0, 3]);
    expect(tensor.toNested()).toEqual(dense);
    expect(tensor.toArray()).toEqual(dense.flat());
    expect(tensor.toDense().isSparse).toBe(false);
  });

  it("keep their kind of numbers, and can be padded with another integer", () => {
    const padded = dense.map((row) => row.map((value) => value || -1));
    const tensor = TensorData.sparse(padded, { dtype: "int64", padValue: -1 });
    expect(tensor.isSparse).toBe(true);
    expect(tensor.toNested({ padValue: -1 })).toEqual(padded);
    expect(TensorData.sparse(dense, { dtype: "float32" }).data).toBeInstanceOf(Float32Array);
    expect(TensorData.sparse(dense.map((row) => row.map((value) => value * 2 ** 40))).data).toBeInstanceOf(
      Float64Array,
    );
    expect(() => TensorData.sparse(dense, { padValue: 0.5 })).toThrow("padValue must be an integer, got 0.5");
  });

  it("stay dense where that is not larger, and where there are no two dimensions", () => {
    expect(TensorData.sparse([[1, 2]]).isSparse).toBe(false);
    expect(TensorData.sparse([0, 0, 0, 0, 0, 0]).isSparse).toBe(false);
    // (rows + 1) + 2 * stored: 3 + 2 < 6 is sparse, 3 + 4 is not.
    expect(
      TensorData.sparse([
        [0, 0, 0],
        [0, 0, 1],
      ]).isSparse,
    ).toBe(true);
    expect(
      TensorData.sparse([
        [0, 0, 2],
        [0, 0, 1],
      ]).isSparse,
    ).toBe(false);
  });

  it.each<[string, object, string]>([
    [
      "crow indices alone",
      { sparseColIndices: undefined },
      "needs both sparseCrowIndices and sparseColIndices",
    ],
    ["too few rows", { sparseCrowIndices: [0, 2] }, "2 rows need 3 sparseCrowIndices, got 2"],
    ["a first index that is not 0", { sparseCrowIndices: [1, 1, 2] }, "must begin with 0, got 1"],
    [
      "a last index that is not the count",
      { sparseCrowIndices: [0, 1, 1] },
      "must end with the number of values, 2, got 1",
    ],
    ["falling indices", { sparseCrowIndices: [0, 3, 2] }, "falls from 0 to 3 at row 0"],
    [
      "a column out of range",
      { sparseColIndices: [0, 3] },
      "row 1 has column 3, expected rising columns below 3",
    ],
    ["a negative column", { sparseColIndices: [-1, 0] }, "row 0 has column -1"],
    [
      "a column twice",
      { sparseCrowIndices: [0, 2, 2], sparseColIndices: [1, 1] },
      "row 0 has column 1, expected rising",
    ],
    ["a missing column", { sparseColIndices: [0] }, "2 values need as many sparseColIndices, got 1"],
    ["one dimension", { shape: [6] }, "its shape must have 2 dimensions, got [6]"],
    [
      "an index that is no integer",
      { sparseColIndices: [0.5, 1] },
      "w.sparseColIndices[0] must be an integer",
    ],
  ])("with %s are refused", (_, change, message) => {
    const valid = {
      data: [5, 6],
      dtype: "int64" as const,
      shape: [2, 3],
      sparseCrowIndices: [0, 1, 2],
      sparseColIndices: [0, 2],
    };
    expect(TensorData.from(valid).toNested()).toEqual([
      [5, 0, 0],
      [0, 0, 6],
    ]);
    expect(() => TensorData.from({ ...valid, ...change }, { field: "w" })).toThrow(message);
  });
});
