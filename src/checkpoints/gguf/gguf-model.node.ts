import type { ExportInput, PreparedExport } from "../export/target.js";
import { MergedWeights } from "../merged-weights.node.js";
import { ggufModel } from "./architectures.js";
import { FILE_TYPES, typeOf } from "./choose-types.js";
import { ggufSettings } from "./gguf-settings.js";
import { TensorBook } from "./tensor-book.js";
import { type TokenizerMetadata, tokenizerMetadata } from "./tokenizer-metadata.node.js";
import { ggufFile } from "./write-gguf.node.js";

/** A model, with its adapter in it, that is ready to be written as a GGUF file named `file`. */
export async function prepareGgufModel(
  { baseFolder, baseModel, adapter, options: { type = "q8_0" } }: ExportInput,
  file: string,
): Promise<Pick<PreparedExport, "bytes" | "write" | "close"> & { readonly tokenizer: TokenizerMetadata }> {
  const weights = await MergedWeights.open(baseFolder, adapter?.folder, { dequantize: true });
  try {
    const settings = ggufSettings(weights.config, baseFolder);
    const model = ggufModel(settings, new TensorBook(baseFolder, weights));
    const tokenizer = await tokenizerMetadata(baseFolder, weights.config, settings.vocab_size);
    const name = adapter === undefined ? baseModel : `${baseModel} with ${adapter.name}`;
    const metadata = {
      "general.architecture": model.architecture,
      "general.type": "model",
      "general.name": name,
      "general.file_type": { uint32: FILE_TYPES[type] },
      "general.quantization_version": { uint32: 2 },
      ...model.metadata,
      ...tokenizer.metadata,
    };
    const layers = settings.num_hidden_layers;
    const tensors = model.tensors.map((tensor) => ({
      ...tensor,
      type: typeOf(tensor, type, layers, !settings.isTied),
    }));
    return { ...ggufFile(file, metadata, tensors), tokenizer, close: () => weights.close() };
  } catch (error) {
    weights.close();
    throw error;
  }
}
