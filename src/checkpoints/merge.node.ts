import { basename, resolve } from "node:path";
import { abortSignal, anyText, type FieldsOf, optional, optionTable } from "../wire/index.js";
import { checkFree, exportFolders } from "./export/export-model.node.js";
import { HF_TARGET } from "./export/hf.node.js";
import { EXPORT_OPTIONS } from "./export/options.js";
import { readAdapterSettings } from "./peft.node.js";

/** Options of `mergeAdapter`: names for the README, and a signal. */
export interface MergeOptions {
  /** The base model's name in the README. Default: the one in the adapter's config, else the folder's name. */
  baseModel?: string | undefined;
  /** The adapter's name in the README, a `tinker://` path for example. Default: the name of its folder. */
  adapter?: string | undefined;
  signal?: AbortSignal | undefined;
}

const MERGE_OPTIONS = optionTable({
  baseModel: optional(anyText),
  adapter: optional(anyText),
  signal: optional(abortSignal),
} satisfies FieldsOf<MergeOptions>);

/**
 * Adds an adapter to the weights of its base model and writes the sum as a new model folder, with the base's formats and
 * files. Tensors pass through memory in pieces, whatever the size of the model. `exportModel` does the same with `hf`,
 * for checkpoints and models that are not on this disk yet.
 */
export async function mergeAdapter(
  baseFolder: string,
  adapterFolder: string,
  outputFolder: string,
  options: MergeOptions = {},
): Promise<void> {
  const { baseModel, adapter, signal } = MERGE_OPTIONS.check(options, "mergeAdapter");
  const output = resolve(outputFolder);
  await checkFree(output);
  const settings = await readAdapterSettings(adapterFolder);
  await exportFolders(HF_TARGET, {
    baseFolder,
    baseModel: baseModel ?? settings.baseModel ?? basename(resolve(baseFolder)),
    adapter: { folder: adapterFolder, name: adapter ?? basename(resolve(adapterFolder)) },
    output,
    options: EXPORT_OPTIONS.check({ to: "hf", output, signal }, "mergeAdapter"),
  });
}
