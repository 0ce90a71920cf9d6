/** A tensor as rows that are read when they are needed. */
export interface RowSource {
  readonly rowCount: number;
  readonly rowLength: number;
  readRows(firstRow: number, count: number): Float32Array;
}

/** Most rows that are read at once around those that are wanted. */
const MAX_SPREAD = 4;

/** The rows of a source in another order, or some of them; `sourceRow` says where each comes from. */
export function reorderedRows(
  source: RowSource,
  rowCount: number,
  sourceRow: (row: number) => number,
): RowSource {
  const { rowLength } = source;
  return {
    rowCount,
    rowLength,
    readRows(firstRow, count) {
      const rows = Array.from({ length: count }, (_, i) => sourceRow(firstRow + i));
      const out = new Float32Array(count * rowLength);
      for (let i = 0; i < count; ) {
        // As many rows as lie together, whatever their order there.
        let from = rows[i]!;
        let to = from;
        let end = i + 1;
        while (end < count) {
          const newFrom = Math.min(from, rows[end]!);
          const newTo = Math.max(to, rows[end]!);
          if (newTo - newFrom + 1 > Math.max(MAX_SPREAD * (end - i + 1), 256)) break;
          from = newFrom;
          to = newTo;
          end += 1;
        }
        const read = source.readRows(from, to - from + 1);
        for (; i < end; i++) {
          const start = (rows[i]! - from) * rowLength;
          out.set(read.subarray(start, start + rowLength), i * rowLength);
        }
      }
      return out;
    },
  };
}

/** Sources of equally many rows, one below the other. */
export function stackedRows(sources: readonly RowSource[]): RowSource {
  const each = sources[0]!.rowCount;
  const { rowLength } = sources[0]!;
  return {
    rowCount: each * sources.length,
    rowLength,
    readRows(firstRow, count) {
      const out = new Float32Array(count * rowLength);
      for (let done = 0; done < count; ) {
        const row = firstRow + done;
        const inside = row % each;
        const some = Math.min(count - done, each - inside);
        out.set(sources[Math.floor(row / each)]!.readRows(inside, some), done * rowLength);
        done += some;
      }
      return out;
    },
  };
}

/** The columns of a source in another order. */
export function reorderedColumns(source: RowSource, sourceColumn: (column: number) => number): RowSource {
  const { rowCount, rowLength } = source;
  const columns = Int32Array.from({ length: rowLength }, (_, column) => sourceColumn(column));
  return {
    rowCount,
    rowLength,
    readRows(firstRow, count) {
      const rows = source.readRows(firstRow, count);
      const out = new Float32Array(rows.length);
      for (let start = 0; start < rows.length; start += rowLength) {
        for (let column = 0; column < rowLength; column++)
          out[start + column] = rows[start + columns[column]!]!;
      }
      return out;
    },
  };
}

/** A source whose values are changed one by one. */
export function changedValues(source: RowSource, change: (value: number) => number): RowSource {
  return { ...shapeOf(source), readRows: (first, count) => source.readRows(first, count).map(change) };
}

/** Reads a source's values in rows of another length. */
export function asRowsOf(source: RowSource, rowLength: number): RowSource {
  const { rowCount, rowLength: before } = source;
  return {
    rowCount: (rowCount * before) / rowLength,
    rowLength,
    readRows(firstRow, count) {
      const from = Math.floor((firstRow * rowLength) / before);
      const to = Math.ceil(((firstRow + count) * rowLength) / before);
      const start = firstRow * rowLength - from * before;
      return source.readRows(from, to - from).slice(start, start + count * rowLength);
    },
  };
}

/**
 * Matrices that lie one below the other, each turned over, with every `step`-th column from `first` on: row r of a matrix
 * is its column `first + step * r`.
 */
export function transposedMatrices(source: RowSource, matrices: number, first = 0, step = 1): RowSource {
  const inputs = source.rowCount / matrices;
  const outputs = Math.floor(source.rowLength / step);
  let kept: { readonly index: number; readonly values: Float32Array } | undefined;
  const matrix = (index: number) => {
    if (kept?.index === index) return kept.values;
    const rows = source.readRows(index * inputs, inputs);
    const values = new Float32Array(outputs * inputs);
    for (let input = 0; input < inputs; input++) {
      for (let output = 0; output < outputs; output++) {
        values[output * inputs + input] = rows[input * source.rowLength + first + step * output]!;
      }
    }
    kept = { index, values };
    return values;
  };
  return stackedRows(
    Array.from({ length: matrices }, (_, index) => ({
      rowCount: outputs,
      rowLength: inputs,
      readRows(row, count) {
        const rows = matrix(index).slice(row * inputs, (row + count) * inputs);
        // The last rows of all: tensors of other layers need the memory.
        if (index === matrices - 1 && row + count === outputs) kept = undefined;
        return rows;
      },
    })),
  );
}

/** Values in memory as one row. */
export function rowOf(values: Float32Array): RowSource {
  return { rowCount: 1, rowLength: values.length, readRows: () => values };
}

function shapeOf({ rowCount, rowLength }: RowSource): { rowCount: number; rowLength: number } {
  return { rowCount, rowLength };
}
