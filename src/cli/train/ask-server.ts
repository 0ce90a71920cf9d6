import { existsSync } from "node:fs";
import { join } from "node:path";
import type { ServiceClient } from "tinkerts";
import { ADAPTER_CONFIG } from "../../checkpoints/peft.node.js";
import { isTinkerPath, parseTinkerPath } from "../../wire/records/tinker-path.js";
import { UsageError } from "../context.js";
import type { NamedModel } from "../named-model.js";
import type { RunCommandOptions } from "./run-options.js";

/** The saved weights that a run starts from: `--start-from`, or a `--model` that names weights. */
export function startOf(model: NamedModel, { startFrom }: RunCommandOptions): string | undefined {
  if (startFrom !== undefined && model.statePath !== undefined) {
    throw new UsageError("--model names saved weights already: leave --start-from out");
  }
  if (startFrom !== undefined && isTinkerPath(startFrom)) parseTinkerPath(startFrom, "--start-from");
  else if (startFrom !== undefined && !existsSync(join(startFrom, ADAPTER_CONFIG))) {
    throw new UsageError(
      `--start-from must be saved weights, tinker://RUN/weights/NAME, or the folder of a PEFT adapter, got ${JSON.stringify(startFrom)}; the folder of a run is given as --model`,
    );
  }
  if (model.samplerPath !== undefined && model.statePath === undefined) {
    throw new UsageError(
      `${model.name} was saved for sampling: training begins with a path such as tinker://RUN/weights/NAME, or the folder of a run`,
    );
  }
  return startFrom ?? model.statePath;
}

/** The base model of saved weights, as the server knows it. */
export async function baseModelOf(
  service: ServiceClient,
  path: string,
  signal: AbortSignal,
): Promise<string> {
  return (await service.createRestClient().getWeightsInfo(path, { signal })).baseModel;
}

/** For a dry run: asks the server about what it would refuse once the run begins. Nothing is trained. */
export async function askServer(
  service: ServiceClient,
  run: {
    readonly model: string;
    readonly rank: number | undefined;
    readonly startFrom: string | undefined;
    readonly teacher: string | undefined;
    readonly isBuiltIn: boolean;
  },
  signal: AbortSignal,
): Promise<void> {
  const { model, rank, startFrom, teacher, isBuiltIn } = run;
  const rest = service.createRestClient();
  if (isTinkerPath(startFrom)) {
    const { baseModel } = await rest.getWeightsInfo(startFrom, { signal });
    if (baseModel !== model) throw new Error(`${startFrom} belongs to ${baseModel}, and --model is ${model}`);
  }
  if (teacher?.startsWith("tinker://")) await rest.getWeightsInfo(teacher, { signal });
  else if (teacher !== undefined) {
    const { supportedModels } = await service.getServerCapabilities({ signal });
    const names = supportedModels.map(({ modelName }) => modelName);
    if (!names.includes(teacher)) {
      throw new Error(`--teacher ${teacher} is not a model of the server; it has ${names.join(", ")}`);
    }
  }
  // Only here: asking is free and leaves nothing behind.
  if (isBuiltIn && startFrom === undefined) {
    await service.createLoraTrainingClient({ baseModel: model, ...(rank && { rank }), signal });
  }
}
