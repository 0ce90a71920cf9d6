import type { ServiceClient } from "tinkerts";
import type { TinkerServer } from "../dashboard/index.js";
import { type CommandContext, UsageError } from "./context.js";
import { credentialOf } from "./credential.js";
import { builtInServer, namedServer } from "./dashboard.js";
import { type DeviceOptions, describeDevice, isDeviceGiven } from "./device-options.js";

/** Where runs and checkpoints of the built-in backend are kept, as `tinkerts serve` does it. */
const DATA_FOLDER = ".tinkerts";

/** A server that is ready for work. */
export interface OpenedService extends AsyncDisposable {
  readonly service: ServiceClient;
  /** The model, by the name that this server has for it. */
  readonly baseModel: string | undefined;
  /** The same server, as a dashboard asks it. */
  readonly shown: TinkerServer;
}

/**
 * The server that the command line names, or the hosted one where there is a key for it. Where there is neither, the
 * built-in backend in this process, with the model that is wanted.
 */
export async function openService(
  context: CommandContext,
  baseModel: string | undefined,
  { device, precision }: DeviceOptions,
): Promise<OpenedService> {
  if (hasServer(context)) {
    if (isDeviceGiven({ device, precision })) {
      throw new UsageError("--device and --precision are for the built-in backend, and a server is named");
    }
    const service = await context.serviceClient();
    return { service, baseModel, shown: namedServer(context), [Symbol.asyncDispose]: async () => {} };
  }
  const { defaultModel } = await import("../local/default-model.js");
  const { modelCheck } = await import("../local/engine/start-engine.node.js");
  const { startLocalBackend } = await import("../local/start.js");
  const { findModel } = await import("./commands/find-model.js");
  const { ServiceClient } = await import("tinkerts");
  const isDefault = baseModel === undefined || baseModel === defaultModel.name;
  const model = isDefault ? defaultModel : await findModel(context, baseModel, modelCheck(device));
  context.notify(
    `No server is named, and there is no API key: the built-in backend does the work, with its data in ${DATA_FOLDER}.`,
  );
  const backend = await startLocalBackend({
    listen: false,
    dataDir: DATA_FOLDER,
    models: [model],
    device,
    precision,
  });
  if (backend.device.kind === "gpu" || backend.device.note !== undefined) {
    context.notify(describeDevice(backend.device));
  }
  const service = new ServiceClient(backend);
  return {
    service,
    baseModel: baseModel === undefined ? undefined : model.name,
    shown: { ...builtInServer(backend, async () => service), address: "the built-in backend" },
    [Symbol.asyncDispose]: async () => {
      await service.close();
      await backend.close();
    },
  };
}

/** Whether the command line, the environment or a stored key says which server is meant. */
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
