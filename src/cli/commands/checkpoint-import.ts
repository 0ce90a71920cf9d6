import { randomUUID } from "node:crypto";
import { copyFile, mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { ADAPTER_CONFIG, ADAPTER_WEIGHTS, readAdapterSettings } from "../../checkpoints/peft.node.js";
import { IMPORTED_NAME, type ImportedAdapter } from "../../local/store/import-adapter.js";
import { fromWireJson, toWireJson } from "../../wire/json-keys.js";
import { type CommandContext, type CommandModule, UsageError } from "../context.js";
import { type Column, printItem, shellWord } from "../output/index.js";
import { servedAddress } from "../serve/served-address.js";
import { findOrDownloadModel } from "./find-model.js";

interface ImportOptions {
  readonly base?: string;
  readonly name: string;
  readonly dataDir: string;
}

const COLUMNS: readonly Column<ImportedAdapter>[] = [
  { header: "To train from", name: "statePath" },
  { header: "To sample from", name: "samplerPath" },
  { header: "Base model", name: "baseModel" },
  { header: "LoRA rank", name: "rank" },
];

export const define: CommandModule["define"] = (command, context) => {
  command
    .argument("<folder>", `folder of a PEFT adapter: ${ADAPTER_CONFIG}, ${ADAPTER_WEIGHTS}`)
    .option("--base <model>", "base model: a folder or a Hugging Face id (default: as named by the adapter)")
    .option("--name <name>", "name of the checkpoint", IMPORTED_NAME)
    .option("--data-dir <folder>", "where the built-in backend keeps checkpoints", ".tinkerts")
    .action(async (folder: string, options: ImportOptions) => {
      const base = options.base ?? (await readAdapterSettings(folder)).baseModel;
      if (!base) throw new UsageError(`${folder} does not say what its base model is: give --base`);
      const address = await servedAddress(options.dataDir);
      const imported =
        address === undefined
          ? await importHere(context, folder, base, options)
          : await importThere(context, folder, address, options);
      printItem(context, imported, COLUMNS);
      context.notify(`To talk to it:\n  npx tinkerts chat --model ${shellWord(imported.samplerPath)}`);
    });
};

async function importHere(
  context: CommandContext,
  folder: string,
  base: string,
  { name, dataDir }: ImportOptions,
): Promise<ImportedAdapter> {
  const { modelCheck } = await import("../../local/engine/start-engine.node.js");
  const { importAdapter, openStore } = await import("../../local/store/index.js");
  const model = await findOrDownloadModel(context, base, modelCheck(undefined));
  const store = await openStore(dataDir, { wallNow: Date.now });
  try {
    return await importAdapter(store, folder, { model, name, owner: "local", now: Date.now() });
  } finally {
    await store.close();
  }
}

/** A server that is running owns the data folder: it imports what lies there. */
async function importThere(
  context: CommandContext,
  folder: string,
  address: string,
  { base, name, dataDir }: ImportOptions,
): Promise<ImportedAdapter> {
  const id = randomUUID();
  const copy = join(dataDir, "import", id);
  await mkdir(copy, { recursive: true, mode: 0o700 });
  try {
    for (const file of [ADAPTER_CONFIG, ADAPTER_WEIGHTS])
      await copyFile(join(folder, file), join(copy, file));
    const key = context.globals().apiKey ?? process.env["TINKER_API_KEY"];
    const response = await fetch(`${address}/api/v1/tinkerts/import_adapter`, {
      method: "POST",
      headers: { "content-type": "application/json", ...(key && { "x-api-key": key }) },
      body: JSON.stringify(toWireJson({ folder: id, name, ...(base !== undefined && { baseModel: base }) })),
      signal: context.interruption(),
    });
    const answer: unknown = await response.json();
    if (response.ok) return fromWireJson<ImportedAdapter>(answer);
    const { error } = answer as { error?: unknown };
    throw new Error(`the server at ${address} refused the adapter: ${String(error)}`);
  } finally {
    await rm(copy, { recursive: true, force: true });
  }
}
