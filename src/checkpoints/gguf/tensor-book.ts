import { TinkerError } from "../../errors.js";
import type { MergedTensor, MergedWeights } from "../merged-weights.node.js";
import type { RowSource } from "./row-source.js";

/** Tensors of a model that say nothing about its text part, or are computed from the configuration. */
const IGNORED = /^(?:model\.)?(?:visual|vision_tower|mtp)\.|rotary_emb\.inv_freq$/;

/** A model's tensors, of which each must be used with the shape that the configuration gives it. */
export class TensorBook {
  readonly #folder: string;
  readonly #tensors: Map<string, MergedTensor>;
  readonly #taken = new Set<string>();
  readonly #rowsOf: (tensor: MergedTensor) => RowSource;

  /** `rowsOf` gives other rows in place of a tensor's. */
  constructor(
    folder: string,
    { tensors }: Pick<MergedWeights, "tensors">,
    rowsOf: (tensor: MergedTensor) => RowSource = (tensor) => tensor,
  ) {
    this.#folder = folder;
    this.#rowsOf = rowsOf;
    this.#tensors = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  }

  has(name: string): boolean {
    return this.#tensors.has(name);
  }

  /** Prefix of the names of layers: `model.`, or `model.language_model.` inside a vision model. */
  prefix(): string {
    const found = [...this.#tensors.keys()].find((name) => name.endsWith("embed_tokens.weight"));
    if (found === undefined)
      throw new TinkerError(`${this.#folder} has no tensor model.embed_tokens.weight.`);
    return found.slice(0, -"embed_tokens.weight".length);
  }

  take(name: string, shape: readonly number[]): RowSource {
    const tensor = this.#tensors.get(name);
    if (tensor === undefined) throw new TinkerError(`${this.#folder} has no tensor ${name}.`);
    if (tensor.shape.length !== shape.length || shape.some((size, at) => tensor.shape[at] !== size)) {
      throw new TinkerError(
        `${this.#folder}: ${name} has the shape [${tensor.shape}], but by config.json it should be [${shape}].`,
      );
    }
    this.#taken.add(name);
    return this.#rowsOf(tensor);
  }

  /** Refuses a model with tensors that nothing has asked for: the export would compute something else. */
  checkAllTaken(): void {
    const left = [...this.#tensors.keys()].find((name) => !this.#taken.has(name) && !IGNORED.test(name));
    if (left !== undefined) {
      throw new TinkerError(`${this.#folder}: GGUF files of this architecture have no tensor for ${left}.`);
    }
  }
}
