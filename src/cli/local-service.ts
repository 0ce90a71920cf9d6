import type { ServiceClient } from "tinkerts";
import type { TinkerServer } from "../dashboard/index.js";
import { NotFoundError } from "../errors.js";
import { holderOf } from "../files.node.js";
import type { LocalBackend } from "../local/start.js";
import { closestName } from "../wire/fields/describe.js";
import { type CommandContext, UsageError } from "./context.js";
import { credentialOf } from "./credential.js";
import { builtInServer, namedServer } from "./dashboard.js";
import { type DeviceOptions, describeDevice, isDeviceGiven } from "./device-options.js";
import type { NamedModel } from "./named-model.js";
import { servedAddress } from "./serve/served-address.js";

/** Folder where the built-in backend keeps runs and checkpoints, the same as `tinkerts serve`. */
const DATA_FOLDER = ".tinkerts";

/** How messages name the built-in backend of this process. */
export const BUILT_IN = "the built-in backend";

/** A server that is ready for work. */
export interface OpenedService extends AsyncDisposable {
  readonly service: ServiceClient;
  /** The model, by its name on this server. */
  readonly model: NamedModel;
  /** The dashboard's connection to that server. */
  readonly shown: TinkerServer;
}

interface OpenOptions extends DeviceOptions {
  readonly dryRun?: boolean | undefined;
  /** Whether new weights are saved, which must last. */
  readonly trains?: boolean | undefined;
}

/**
 * Opens the server that the command line names, or the hosted one if it has a key. Otherwise a `tinkerts serve` that
 * runs in this folder, else the built-in backend in this process, with the requested model.
 */
export async function openService(
  context: CommandContext,
  model: NamedModel,
  { device, precision, dryRun = false, trains = false }: OpenOptions,
): Promise<OpenedService> {
  const { ownWeights } = model;
  const address =
    hasServer(context) || ownWeights !== undefined ? undefined : await servedAddress(DATA_FOLDER);
  if (address !== undefined) {
    context.notify(`\`tinkerts serve\` runs in this folder: it does the work, at ${address}.`);
    context.useServer(address);
  }
  if (hasServer(context)) {
    if (isDeviceGiven({ device, precision })) {
      throw new UsageError("--device and --precision are for the built-in backend, and a server is named");
    }
    const service = await context.serviceClient();
    return { service, model, shown: namedServer(context), [Symbol.asyncDispose]: async () => {} };
  }
  const { ServiceClient } = await import("tinkerts");
  context.nameServer(BUILT_IN);
  const path = model.samplerPath ?? model.statePath;
  const { defaultModel } = await import("../local/default-model.js");
  const wanted = model.baseModel ?? defaultModel.name;
  checkModelName(wanted, defaultModel.name);
  // A command that does not use the data folder does not wait for one that does.
  const readsData = path !== undefined && ownWeights === undefined;
  const writesData = ownWeights === undefined ? !dryRun : trains && !dryRun;
  const dataDir = readsData || writesData ? DATA_FOLDER : undefined;
  context.notify(
    wanted === defaultModel.name
      ? `No server and no API key are set: ${BUILT_IN} does the work${dataDir === undefined ? "" : ` and keeps its data in ${DATA_FOLDER}`}.`
      : `No API key and no server are set: ${BUILT_IN} runs ${wanted} on this machine, after downloading it if necessary. ` +
          "For the hosted service, stop this with Ctrl-C, and give a key with `tinkerts auth login` or TINKER_API_KEY.",
  );
  const holder = dataDir === undefined ? undefined : await holderOf(dataDir);
  if (holder !== undefined) {
    throw new Error(
      `${DATA_FOLDER} is in use by another command (process ${holder}): wait for its end. To run several at once, ` +
        "start `tinkerts serve` in this folder; commands in other folders find it by TINKER_BASE_URL",
    );
  }
  const start = (baseModel: string) => startBuiltIn(context, baseModel, { device, precision }, dataDir);
  let { backend, modelName } = await start(wanted);
  let service = new ServiceClient(backend);
  const openWeights = async () => {
    if (ownWeights !== undefined) await service.runData?.open(ownWeights);
  };
  const close = async () => {
    await service.close();
    await backend.close();
  };
  try {
    await openWeights();
    if (path !== undefined && model.runFolder !== undefined)
      await checkWeights(service, path, model.runFolder);
    if (path !== undefined && model.baseModel === undefined) {
      const { baseModel } = await service.createRestClient().getWeightsInfo(path);
      if (baseModel !== modelName) {
        await close();
        ({ backend, modelName } = await start(baseModel));
        service = new ServiceClient(backend);
        await openWeights();
      }
    }
  } catch (error) {
    await close();
    throw error;
  }
  return {
    service,
    model: model.baseModel === undefined ? model : { ...model, baseModel: modelName },
    shown: { ...builtInServer(backend, async () => service), address: BUILT_IN },
    [Symbol.asyncDispose]: close,
  };
}

/** Refuses a run that was trained with another data folder. */
async function checkWeights(service: ServiceClient, path: string, runFolder: string): Promise<void> {
  try {
    await service.createRestClient().getWeightsInfo(path);
  } catch (error) {
    if (!(error instanceof NotFoundError)) throw error;
    throw new Error(
      `the weights of the run in ${runFolder} are neither in ${runFolder}/weights nor in ${DATA_FOLDER}: ` +
        "use the folder or the server that it was trained in",
    );
  }
}

async function startBuiltIn(
  context: CommandContext,
  baseModel: string,
  { device, precision }: DeviceOptions,
  dataDir: string | undefined,
): Promise<{ readonly backend: LocalBackend; readonly modelName: string }> {
  const { defaultModel } = await import("../local/default-model.js");
  const { modelCheck } = await import("../local/engine/start-engine.node.js");
  const { startLocalBackend } = await import("../local/start.js");
  const { findOrDownloadModel } = await import("./commands/find-model.js");
  const model =
    baseModel === defaultModel.name
      ? defaultModel
      : await findOrDownloadModel(context, baseModel, modelCheck(device));
  const backend = await startLocalBackend({
    listen: false,
    ...(dataDir !== undefined && { dataDir }),
    models: [model],
    device,
    precision,
  });
  if (backend.device.kind === "gpu" || backend.device.note !== undefined) {
    context.notify(describeDevice(backend.device));
  }
  return { backend, modelName: model.name };
}

/** Refuses a name that is almost the built-in model's, before it is looked up elsewhere. */
function checkModelName(name: string, known: string): void {
  if (name === known || /^[./~]/.test(name)) return;
  const [, short = known] = known.split("/");
  if (name !== short && closestName(name, [known, short]) === undefined) return;
  throw new UsageError(`there is no model ${name}: did you mean ${known}?`);
}

/** Whether the command line, the environment or a stored key names a server. */
export function hasServer(context: CommandContext): boolean {
  const globals = context.globals();
  if (globals.baseURL || process.env["TINKER_BASE_URL"]) return true;
  try {
    credentialOf(globals);
    return true;
  } catch {
    return false;
  }
}
