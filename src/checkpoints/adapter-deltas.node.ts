import { TinkerError } from "../errors.js";
import type { AdapterSettings } from "./adapter.node.js";
import type { LoraDelta } from "./lora-delta.js";
import { SafetensorsFile } from "./safetensors-file.node.js";

const PREFIX = "base_model.model.";

/** An adapter's weight changes by module, read from disk one at a time. */
export class AdapterDeltas {
  /** Paths of the changed modules in the base model: `model.layers.0.self_attn.q_proj`. */
  readonly modules: ReadonlySet<string>;
  readonly #file: SafetensorsFile;
  readonly #tensors = new Map<string, { a?: string; b?: string }>();
  readonly #settings: AdapterSettings;

  constructor(weights: string, settings: AdapterSettings, configFile: string) {
    refuseOtherKinds(settings, configFile);
    this.#settings = settings;
    this.#file = new SafetensorsFile(weights);
    try {
      for (const name of this.#file.header.tensors.keys()) this.#add(name, weights);
      for (const [module, { a, b }] of this.#tensors) {
        if (a === undefined || b === undefined) {
          throw new TinkerError(`${weights} has only one of the two LoRA matrices of ${module}.`);
        }
      }
    } catch (error) {
      this.#file.close();
      throw error;
    }
    this.modules = new Set(this.#tensors.keys());
  }

  read(module: string): LoraDelta {
    const { a, b } = this.#tensors.get(module)!;
    const matrix = this.#file.read(a!);
    const rank = matrix.shape[0] ?? 0;
    const alpha = this.#alpha(module);
    const scale =
      this.#settings.otherSettings?.["use_rslora"] === true ? alpha / Math.sqrt(rank) : alpha / rank;
    return { a: matrix, b: this.#file.read(b!), scale };
  }

  close(): void {
    this.#file.close();
  }

  #add(name: string, weights: string): void {
    // PEFT puts a copy of the base model's own head beside an adapter of it.
    if (name.endsWith(".base_layer.weight")) return;
    const match = /^(.*)\.lora_([AB])(?:\.default)?\.weight$/.exec(name);
    if (match === null)
      throw new TinkerError(`${weights} holds ${name}, which is no LoRA matrix of a linear layer.`);
    const module = match[1]!.startsWith(PREFIX) ? match[1]!.slice(PREFIX.length) : match[1]!;
    // The service's own name of the unembedding.
    const known = /^(?:model\.)?unembed_tokens$/.test(module) ? "lm_head" : module;
    const pair = this.#tensors.get(known) ?? {};
    pair[match[2] === "A" ? "a" : "b"] = name;
    this.#tensors.set(known, pair);
  }

  /** `alpha_pattern` holds exceptions, by the end of the module's path or a pattern for it. */
  #alpha(module: string): number {
    const patterns = (this.#settings.otherSettings?.["alpha_pattern"] ?? {}) as Record<string, number>;
    for (const [pattern, alpha] of Object.entries(patterns)) {
      if (new RegExp(`^(?:.*\\.)?(?:${pattern})$`).test(module)) return alpha;
    }
    return this.#settings.alpha;
  }
}

function refuseOtherKinds({ otherSettings = {} }: AdapterSettings, file: string): void {
  const refuse = (field: string) =>
    new TinkerError(
      `${file}: an adapter with ${field} ${JSON.stringify(otherSettings[field])} cannot be merged.`,
    );
  for (const field of ["use_dora", "fan_in_fan_out", "lora_bias", "use_qalora"]) {
    if (otherSettings[field] === true) throw refuse(field);
  }
  const bias = otherSettings["bias"];
  if (bias !== undefined && bias !== null && bias !== "none") throw refuse("bias");
  const saved = otherSettings["modules_to_save"];
  if (Array.isArray(saved) && saved.length > 0) throw refuse("modules_to_save");
}
