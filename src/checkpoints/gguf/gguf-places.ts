import type { MergedTensor, MergedWeights } from "../merged-weights.node.js";
import { ggufModel } from "./architectures.js";
import type { GgufSettings } from "./gguf-settings.js";
import { TensorBook } from "./tensor-book.js";

/** Where a matrix of a model is in its GGUF file, and in which order. */
export interface GgufPlace {
  readonly name: string;
  /** For each row in the file, its number in the Hugging Face tensor. */
  readonly rows: Int32Array;
  readonly columns: Int32Array;
}

/**
 * The places of some matrices by their Hugging Face names; matrices of experts have none here. They are found by building
 * the model with numbers of tensors, rows and columns in place of the weights.
 */
export function ggufPlaces(
  folder: string,
  settings: GgufSettings,
  weights: Pick<MergedWeights, "tensors">,
  wanted: ReadonlySet<string>,
): Map<string, GgufPlace> {
  const numbers = new Map(weights.tensors.map(({ name }, index) => [name, index]));
  const built = (rowLengthOf: (tensor: MergedTensor) => number, numberAt: NumberAt) =>
    ggufModel(
      settings,
      new TensorBook(folder, weights, (tensor) => filled(tensor, rowLengthOf(tensor), numberAt)),
    ).tensors;
  const narrow = ({ shape, rowLength }: MergedTensor) => (shape.length === 2 ? 1 : rowLength);
  const byTensor = built(narrow, ({ name }) => numbers.get(name)!);
  const byRow = built(narrow, (_, row) => row);
  const byColumn = built(
    ({ rowLength }) => rowLength,
    (_, __, column) => column,
  );
  const places = new Map<string, GgufPlace>();
  for (const [index, { name, shape, rows }] of byTensor.entries()) {
    if (shape.length !== 2) continue;
    const source = weights.tensors[rows.readRows(0, 1)[0]!]!.name;
    if (!wanted.has(source)) continue;
    places.set(source, {
      name,
      rows: Int32Array.from(byRow[index]!.rows.readRows(0, shape[0]!)),
      columns: Int32Array.from(byColumn[index]!.rows.readRows(0, 1)),
    });
  }
  return places;
}

type NumberAt = (tensor: MergedTensor, row: number, column: number) => number;

function filled(tensor: MergedTensor, rowLength: number, numberAt: NumberAt) {
  return {
    rowCount: tensor.rowCount,
    rowLength,
    readRows: (first: number, count: number) =>
      Float32Array.from({ length: count * rowLength }, (_, i) =>
        numberAt(tensor, first + Math.floor(i / rowLength), i % rowLength),
      ),
  };
}
