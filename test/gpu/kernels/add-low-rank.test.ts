import { afterAll, describe, expect, it } from "vitest";
import type { Kernels } from "../../../src/local/engine/kernels/kernels.js";
import { linearForward } from "../../../src/local/engine/model/linear.js";
import { compare, compareTwice, openKernels, random } from "../gpus.js";

const kernels = await openKernels();
afterAll(() => kernels.close());

/** A linear layer of parts, with adapters on some of its rows. */
const adapted =
  (rows: number, inputs: number, parts: number[], ranks: number[], isKept = false) =>
  (on: Kernels) => {
    const outputs = parts.reduce((sum, cols) => sum + cols, 0);
    const out = on.alloc(rows * outputs);
    const spanRows = Math.ceil(rows / ranks.length);
    const adapters = ranks.map((rank, index) => {
      const b = parts.map((cols, part) => {
        const column = parts.slice(0, part).reduce((sum, each) => sum + each, 0);
        return { start: rank * column, length: rank * cols, column, cols };
      });
      // As in an adapter: one behind the other.
      const all = random(on, rank * outputs, 10 + index);
      const matrices = b.map(({ start, length, ...place }) => ({
        ...place,
        matrix: { ...all, offset: all.offset + 4 * start, length },
      }));
      const a = random(on, inputs * parts.length * rank, 20 + index);
      const start = index * spanRows;
      return {
        adapter: { rank, scaling: 32 / rank, a, b: matrices },
        start,
        rows: Math.min(spanRows, rows - start),
      };
    });
    linearForward(on, {
      layer: { weight: random(on, inputs * outputs, 1), inputs, outputs },
      out,
      x: random(on, rows * inputs, 2),
      rows,
      adapters,
      lowRank: isKept ? on.alloc(rows * parts.length * ranks[0]!) : undefined,
    });
    return [out];
  };

describe("the B's of a group in one run", () => {
  it.each([
    [9, 12, [16, 8, 8], [4]],
    [1, 7, [5], [3]],
    [33, 10, [70, 1, 65], [7]],
    [20, 16, [40, 40], [32, 5, 9]],
    [257, 5, [6, 9], [2]],
  ])("of %i rows of %i values, parts of %j, ranks %j", async (rows, inputs, parts, ranks) => {
    await compare(kernels, 3e-6, adapted(rows, inputs, parts, ranks));
  });

  it("have the same bits again, and where a backward pass keeps what is between", async () => {
    const [rows, parts] = [33, [70, 1, 65]];
    await compareTwice(kernels, adapted(rows, 10, parts, [7]));
    const both = await Promise.all(
      [false, true].map((isKept) => kernels.download(adapted(rows, 10, parts, [7], isKept)(kernels)[0]!)),
    );
    expect(both[0]).toEqual(both[1]);
  });
});
