import { join } from "node:path";
import {
  type AdapterSettings,
  checkPlainLora,
  type LoraDelta,
  type LoraPair,
  loraPairs,
  moduleAlpha,
} from "./lora.js";
import { ADAPTER_CONFIG, ADAPTER_WEIGHTS, readAdapterSettings } from "./peft.node.js";
import { SafetensorsFile } from "./safetensors-file.node.js";

/** An adapter's weight changes by module, read from disk one at a time. */
export class AdapterDeltas {
  readonly settings: AdapterSettings;
  readonly #file: SafetensorsFile;
  readonly #pairs: ReadonlyMap<string, LoraPair>;

  private constructor(settings: AdapterSettings, file: SafetensorsFile, pairs: Map<string, LoraPair>) {
    this.settings = settings;
    this.#file = file;
    this.#pairs = pairs;
  }

  static async open(folder: string): Promise<AdapterDeltas> {
    const settings = await readAdapterSettings(folder);
    checkPlainLora(settings, join(folder, ADAPTER_CONFIG));
    const weights = join(folder, ADAPTER_WEIGHTS);
    const file = new SafetensorsFile(weights);
    try {
      return new AdapterDeltas(settings, file, loraPairs(file.header.tensors.keys(), weights));
    } catch (error) {
      file.close();
      throw error;
    }
  }

  /** Paths of the changed modules in the base model: `model.layers.0.self_attn.q_proj`. */
  get modules(): readonly string[] {
    return [...this.#pairs.keys()];
  }

  read(module: string): LoraDelta {
    const pair = this.#pairs.get(module)!;
    const a = this.#file.read(pair.a);
    const rank = a.shape[0] ?? 0;
    return { a, b: this.#file.read(pair.b), scale: moduleAlpha(this.settings, module, rank) / rank };
  }

  close(): void {
    this.#file.close();
  }
}
