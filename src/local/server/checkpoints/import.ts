import { rm } from "node:fs/promises";
import { readAdapterSettings } from "../../../checkpoints/peft.node.js";
import { TinkerError, ValidationError } from "../../../errors.js";
import { type FieldsOf, message, optional, optionTable, text, withDefault } from "../../../wire/index.js";
import { toWireJson } from "../../../wire/json-keys.js";
import { IMPORTED_NAME, type ImportedAdapter, importAdapter } from "../../store/import-adapter.js";
import { checkName } from "../../store/names.js";
import { readJsonObject } from "../http/body.js";
import { HttpError, invalid } from "../http/http-error.js";
import type { App, RequestOwner } from "../http/route.js";
import type { Services } from "../services.js";

/** Options of `importAdapter`: the base model, and a name. */
export interface ImportAdapterOptions {
  /** Name of the base model on this backend. Default: the one that the adapter names. */
  readonly baseModel?: string | undefined;
  /** Name of the checkpoint. Default: `imported`. */
  readonly name?: string | undefined;
}

const IMPORT_FIELDS = {
  baseModel: optional(text),
  name: withDefault(text, IMPORTED_NAME),
} satisfies FieldsOf<ImportAdapterOptions>;

const IMPORT_OPTIONS = optionTable(IMPORT_FIELDS);
const IMPORT_REQUEST = message({ ...IMPORT_FIELDS, folder: text });

type ImportServices = Pick<Services, "store" | "baseModels" | "identities" | "clock" | "disk" | "audit">;

/** Makes a checkpoint of the adapter in a folder of this machine, for the owner of the first key. */
export async function importFromFolder(
  services: ImportServices,
  folder: string,
  options: ImportAdapterOptions,
  identity: RequestOwner = services.identities.first,
): Promise<ImportedAdapter> {
  const { store, clock, disk, audit } = services;
  const { baseModel, name } = IMPORT_OPTIONS.check(options, "importAdapter");
  const { owner } = identity;
  const imported = await importAdapter(store, folder, {
    model: await modelFor(services, folder, baseModel),
    name,
    owner,
    now: clock.wallNow(),
    saving: (bytes, save) => disk.saving(owner, bytes, save),
  });
  await audit(identity, "checkpoints.imported", { tinkerPath: imported.statePath });
  return imported;
}

/**
 * The same for `tinkerts checkpoint import`, which works on the data folder of a server that is running: it puts the
 * adapter into the folder `import` there, which only the server's own user can write, and names it here.
 */
export function addImportRoute(app: App, services: Services): void {
  app.post("/api/v1/tinkerts/import_adapter", async (call) => {
    const { value } = await readJsonObject(call, services.reader);
    const { folder: id, ...options } = IMPORT_REQUEST.read(value, "");
    const problem = checkName(id);
    if (problem !== undefined) throw invalid("folder", problem);
    const folder = services.store.folder.join("import", id);
    try {
      const imported = await importFromFolder(services, folder, options, call.get("identity"));
      return call.json(toWireJson(imported) as Record<string, unknown>);
    } catch (error) {
      // Answers name no folder of the server.
      throw error instanceof TinkerError ? new HttpError(400, error.message.replaceAll(folder, id)) : error;
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
}

/** The given model, or the one that the adapter names. */
async function modelFor({ baseModels }: ImportServices, folder: string, given: string | undefined) {
  const wanted = given ?? (await readAdapterSettings(folder)).baseModel;
  const found = baseModels.get(wanted ?? "");
  if (found !== undefined) return { name: found.name, path: found.tokenizerPath };
  const names = [...baseModels.keys()].join(", ");
  throw new ValidationError(
    "baseModel",
    given === undefined
      ? `baseModel: the adapter names ${wanted ?? "no base model"}, and this backend has ${names}; give baseModel if it belongs to one of them.`
      : `baseModel: must be a model of this backend (${names}), got ${given}.`,
  );
}
