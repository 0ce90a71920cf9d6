/** A format that packs the rows of a matrix into several tensors. */
export interface RowCodec {
  /** Rows that are packed together; the last group of a matrix may have fewer. */
  readonly groupRows: number;
  /** How many bytes a matrix, or whole groups of it, have in each tensor. */
  sizes(rows: number, columns: number): number[];
  /** The values, rounded to bfloat16, of whole groups: their bytes in each tensor, in the order of the format. */
  decode(parts: readonly Uint8Array[], rows: number, columns: number): Float32Array;
  /** The bytes of whole groups in each tensor. */
  encode(values: Float32Array, rows: number, columns: number): Uint8Array[];
}
