import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { basename, join, resolve } from "node:path";
import { ADAPTER_CONFIG, ADAPTER_WEIGHTS } from "../../checkpoints/peft.node.js";
import { ValidationError } from "../../errors.js";
import { formatTinkerPath } from "../../wire/records/tinker-path.js";
import { readForeignAdapter } from "./foreign-adapter.js";
import { checkName } from "./names.js";
import type { Store } from "./store.js";

/** An adapter from elsewhere that has become a checkpoint. */
export interface ImportedAdapter {
  /** Name of the base model. */
  readonly baseModel: string;
  /** Path of the weights, to continue training from. */
  readonly statePath: string;
  /** Path of the weights, to sample from. */
  readonly samplerPath: string;
  /** The highest rank of a module, which all of them have now. */
  readonly rank: number;
}

/** Base model, name and owner of an imported adapter. */
export interface ImportTarget {
  readonly model: { readonly name: string; readonly path: string };
  /** Name of the checkpoints. */
  readonly name: string;
  readonly owner: string;
  readonly now: number;
  /** Saves so many bytes, or refuses to. */
  readonly saving?: (<T>(bytes: number, save: () => Promise<T>) => Promise<T>) | undefined;
}

/** Name of a checkpoint that is imported under no other. */
export const IMPORTED_NAME = "imported";

/**
 * Makes a run with two checkpoints of a PEFT adapter: one to train from, one to sample from. The same files have the same
 * run, so that importing them again changes nothing.
 */
export async function importAdapter(
  store: Pick<Store, "runs" | "checkpoints">,
  folder: string,
  { model, name, owner, now, saving = (_, save) => save() }: ImportTarget,
): Promise<ImportedAdapter> {
  const problem = checkName(name);
  if (problem !== undefined) throw new ValidationError("name", `name ${problem}`);
  const state = await readForeignAdapter(folder, model.path);
  const runId = `${await idOf(folder, [model.name, owner])}:train:0`;
  const run = store.runs.get(runId) ?? {
    id: runId,
    owner,
    sessionId: null,
    projectId: null,
    baseModel: model.name,
    lora: state.lora,
    userMetadata: { imported_from: basename(resolve(folder)) },
    createdAt: now,
    lastRequestAt: now,
    corrupted: false,
  };
  const kinds = (["weights", "sampler_weights"] as const).filter(
    (kind) => store.checkpoints.get(runId, kind, name) === undefined,
  );
  const bytes = Object.values(state.tensors).reduce((sum, { data }) => sum + data.byteLength, 0);
  await saving(kinds.length * bytes, async () => {
    await store.runs.save(run);
    for (const kind of kinds) {
      const request = { run, kind, name, expiresAt: null, userMetadata: null, overwrite: false };
      await store.checkpoints.save(request, { type: "state", state });
    }
  });
  return {
    baseModel: model.name,
    statePath: formatTinkerPath(runId, "weights", name),
    samplerPath: formatTinkerPath(runId, "sampler_weights", name),
    rank: state.lora.rank,
  };
}

/** A UUID made from an adapter's files. */
async function idOf(folder: string, others: readonly string[]): Promise<string> {
  const hash = createHash("sha256").update(JSON.stringify(others));
  for (const file of [ADAPTER_CONFIG, ADAPTER_WEIGHTS]) {
    for await (const bytes of createReadStream(join(folder, file))) hash.update(bytes as Uint8Array);
  }
  const hex = hash.digest("hex");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20, 32)].join(
    "-",
  );
}
