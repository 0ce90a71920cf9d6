import { join } from "node:path";
import { TinkerError } from "../errors.js";
import { type AdapterSettings, checkPlainLora, type LoraPair, loraPairs } from "./lora.js";
import { type LowRankProduct, transposed } from "./low-rank.node.js";
import { ADAPTER_CONFIG, ADAPTER_WEIGHTS, notAnAdapter, readAdapterSettings } from "./peft.node.js";
import type { PlannedAdapter, WeightUpdate } from "./plan-merge.js";
import { type SafetensorsDtype, toFloat32 } from "./safetensors.js";
import { SafetensorsFile } from "./safetensors-file.node.js";

/** An adapter's weight changes, read from disk one at a time. */
export class AdapterDeltas implements PlannedAdapter {
  readonly settings: AdapterSettings;
  readonly pairs: ReadonlyMap<string, LoraPair>;
  readonly #file: SafetensorsFile;
  #last:
    | { updates: readonly WeightUpdate[]; matrix: number; products: readonly LowRankProduct[] }
    | undefined;

  private constructor(settings: AdapterSettings, file: SafetensorsFile, pairs: Map<string, LoraPair>) {
    this.settings = settings;
    this.pairs = pairs;
    this.#file = file;
  }

  static async open(folder: string): Promise<AdapterDeltas> {
    const settings = await readAdapterSettings(folder);
    checkPlainLora(settings, join(folder, ADAPTER_CONFIG));
    const weights = join(folder, ADAPTER_WEIGHTS);
    let file: SafetensorsFile;
    try {
      file = new SafetensorsFile(weights);
    } catch (error) {
      throw notAnAdapter(folder, ADAPTER_WEIGHTS, error);
    }
    try {
      const pairs = loraPairs(file.header.tensors.keys(), weights);
      if (pairs.size === 0) throw new TinkerError(`${weights} holds no LoRA matrices.`);
      return new AdapterDeltas(settings, file, pairs);
    } catch (error) {
      file.close();
      throw error;
    }
  }

  shapeOf(tensor: string): readonly number[] {
    return this.#file.entry(tensor).shape;
  }

  dtypeOf(tensor: string): SafetensorsDtype {
    return this.#file.entry(tensor).dtype;
  }

  /** A matrix as it is in the file: one expert's of those of several. */
  readBytes(tensor: string, expert = 0): Uint8Array {
    const { shape, start, end } = this.#file.entry(tensor);
    const experts = shape.length === 3 ? shape[0]! : 1;
    const bytes = (end - start) / experts;
    return this.#file.readBytes(tensor, experts === 1 ? 0 : expert * bytes, bytes);
  }

  /** The matrices of a pair in float32. */
  read(tensor: string, expert = 0): { data: Float32Array; rows: number; columns: number } {
    const { dtype, shape } = this.#file.entry(tensor);
    const [rows, columns] = shape.slice(-2) as [number, number];
    return { data: toFloat32(this.readBytes(tensor, expert), dtype, tensor), rows, columns };
  }

  /** Sum of the updates of one matrix of a weight, kept for the next call, which often asks for it again. */
  products(updates: readonly WeightUpdate[], matrix: number): readonly LowRankProduct[] {
    if (this.#last?.updates !== updates || this.#last.matrix !== matrix) {
      const products = updates.map((update) => this.#product(update, update.expert ?? matrix));
      this.#last = { updates, matrix, products };
    }
    return this.#last.products;
  }

  #product({ pair, scale, isTransposed }: WeightUpdate, expert: number): LowRankProduct {
    const a = this.read(pair.a, expert);
    const b = this.read(pair.b, expert);
    // As the Python cookbook does it: B is scaled, in float32, before it is multiplied.
    if (scale !== 1) b.data = b.data.map((value) => value * scale);
    return isTransposed
      ? {
          left: transposed(a.data, a.rows, a.columns),
          right: transposed(b.data, b.rows, b.columns),
          rank: a.rows,
        }
      : { left: b.data, right: a.data, rank: a.rows };
  }

  close(): void {
    this.#file.close();
  }
}
