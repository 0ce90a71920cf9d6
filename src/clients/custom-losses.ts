import { TinkerError, ValidationError } from "../errors.js";
import { perform, startOperation } from "../futures/index.js";
import { CustomLossHandle } from "../training/custom-loss-handle.js";
import type { PerDatumLossFn } from "../training/tracing/trace-loss.js";
import { REQUEST_FIELDS, type RequestOptions } from "../transport/index.js";
import {
  anyText,
  checkObject,
  endpoints,
  type Field,
  type FieldsOf,
  opaque,
  optional,
  optionTable,
  snakeToCamel,
  subfield,
  wireName,
} from "../wire/index.js";
import {
  CUSTOM_INPUT_NAME,
  type CustomLossInput,
  type CustomLossRank,
  MAX_CUSTOM_LOSS_INPUTS,
} from "../wire/training/custom-loss-graph.js";
import { type ClientContext, queueLogger } from "./context.js";

/** Inputs and name of a loss that `createCustomLoss` traces. */
export interface CreateCustomLossOptions<Name extends string = string> extends RequestOptions {
  /**
   * The `lossFnInputs` that the loss reads, with their ranks: 0 for a number, 1 for `[T]`, 2 for `[T, K]`. `logprobs` has
   * rank 1 unless it is given as 2, for soft targets.
   */
  inputs?: Readonly<Record<Name, CustomLossRank>> & { readonly logprobs?: 1 | 2 | undefined };
  /** Name of the loss for errors. Default: the function's name. */
  name?: string | undefined;
}

const OPTIONS = optionTable({
  ...REQUEST_FIELDS,
  inputs: optional(opaque as Field<Readonly<Record<string, CustomLossRank>>>),
  name: optional(anyText),
} satisfies FieldsOf<CreateCustomLossOptions>);

/** Traces a loss and uploads it once per session, where the server runs losses. */
export async function createCustomLoss(
  context: ClientContext,
  fn: PerDatumLossFn,
  given: CreateCustomLossOptions,
): Promise<CustomLossHandle> {
  const { inputs: ranks = {}, name: givenName, ...options } = OPTIONS.check(given, "createCustomLoss");
  if (typeof fn !== "function")
    throw new ValidationError("lossFn", `createCustomLoss: the loss must be a function, got ${typeof fn}`);
  const inputs = readInputs(ranks);
  const { traceLoss } = await import("../training/tracing/trace-loss.js");
  const graph = traceLoss(fn, inputs, snakeToCamel);
  const { session, customLosses } = context;
  const key = JSON.stringify([inputs, graph]);
  let created = customLosses.get(key);
  if (created === undefined) {
    const name = givenName ?? (fn.name || "loss");
    const parts = { name, inputs, sessionId: session.id ?? "", graph };
    created = session.config.customLossServerSide
      ? upload(context, parts, options)
      : Promise.resolve(new CustomLossHandle({ ...parts, lossId: undefined }));
    customLosses.set(key, created);
    // One that failed may be created again.
    created.catch(() => customLosses.delete(key));
  }
  return created;
}

async function upload(
  context: ClientContext,
  parts: Omit<ConstructorParameters<typeof CustomLossHandle>[0], "lossId">,
  options: RequestOptions,
): Promise<CustomLossHandle> {
  const { name, inputs, sessionId, graph } = parts;
  const customLossSeqId = context.session.nextCustomLossSeqId();
  const message = { sessionId, customLossSeqId, name, inputs, graph };
  const { lossId } = await startOperation(context, options.signal, (signal) =>
    perform(
      context,
      { endpoint: endpoints.createCustomLoss, message },
      { ...options, signal, queue: queueLogger(context, name) },
    ),
  );
  if (typeof lossId !== "string") throw new TinkerError("The server created a custom loss without an id.");
  return new CustomLossHandle({ ...parts, lossId });
}

/** The inputs as they travel, the logprobs first. */
function readInputs(given: Readonly<Record<string, number | undefined>>): CustomLossInput[] {
  checkObject(given, "inputs");
  const { logprobs = 1, ...others } = given;
  const inputs = Object.entries({ logprobs, ...others }).map(([key, rank]): CustomLossInput => {
    const field = subfield("inputs", key);
    if (rank !== 1 && rank !== 2 && (rank !== 0 || key === "logprobs"))
      throw new ValidationError(
        field,
        `${field} must be the rank ${key === "logprobs" ? "1 or 2" : "0, 1 or 2"}, got ${rank}`,
      );
    const name = wireName(key);
    if (snakeToCamel(name) !== key || !CUSTOM_INPUT_NAME.test(name))
      throw new ValidationError(field, `${field} must be a name in camelCase, such as refLogprobs`);
    return { name, rank };
  });
  if (inputs.length <= MAX_CUSTOM_LOSS_INPUTS) return inputs;
  throw new ValidationError(
    "inputs",
    `inputs has ${inputs.length} entries with the logprobs; a custom loss takes at most ${MAX_CUSTOM_LOSS_INPUTS}`,
  );
}
