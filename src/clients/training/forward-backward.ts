import { ValidationError } from "../../errors.js";
import { type APIFuture, combineForwardBackwardOutputs, startOperation } from "../../futures/index.js";
import {
  backwardData,
  type CustomLossFn,
  type CustomLossResult,
  evaluateCustomLoss,
  forwardData,
  logprobVariables,
  mergeCustomLoss,
} from "../../training/custom-loss.js";
import { CustomLossHandle, checkLossData, lossInClient } from "../../training/custom-loss-handle.js";
import { type RequestOptions, untilAborted } from "../../transport/index.js";
import {
  type Datum,
  endpoints,
  estimateDatumProtoBytes,
  type ForwardBackwardOutput,
  type ForwardBackwardRequest,
} from "../../wire/index.js";
import type { ClientContext } from "../context.js";
import type { BaseModelName, TokenRequest } from "../observers.js";
import type { ModelRequest, ModelRequests } from "./model-requests.js";

/** One pass, in one or more requests. */
export type Pass = Omit<ForwardBackwardRequest, "seqId"> & { readonly baseModel: BaseModelName };

/** Sends a batch in as many requests as the server's limits require, all in one turn, and combines the results. */
export function startForwardBackward(
  context: ClientContext,
  requests: ModelRequests,
  pass: Pass,
  options: RequestOptions,
): APIFuture<ForwardBackwardOutput> {
  const parts = passRequests(context, pass);
  return startOperation(context, options.signal, (signal, onAccepted) =>
    context.tokenObservers.watch(observedPass(pass), async () =>
      combineForwardBackwardOutputs(await requests.run(parts, options, signal, onAccepted)),
    ),
  );
}

/**
 * Runs a forward pass, the user's loss and a backward pass in one turn, so that later calls are sent later. The turn
 * ends when the backward pass is accepted, or at the first failure.
 */
export function startForwardBackwardCustom(
  context: ClientContext,
  requests: ModelRequests,
  call: Pick<Pass, "modelId" | "baseModel" | "data"> & { readonly lossFn: CustomLossFn | CustomLossHandle },
  options: RequestOptions,
): APIFuture<CustomLossResult> {
  const { modelId, baseModel, data, lossFn: given } = call;
  const handle = given instanceof CustomLossHandle ? given : undefined;
  if (handle !== undefined) {
    checkHandle(context, handle, data);
    const { lossId } = handle;
    if (lossId !== undefined) {
      const stored = {
        modelId,
        baseModel,
        data,
        lossFn: "custom",
        lossFnConfig: { lossId },
        forwardOnly: false,
      };
      return startForwardBackward(context, requests, stored, options);
    }
  } else if (typeof given !== "function") {
    throw new ValidationError(
      "lossFn",
      `lossFn must be a function or a loss of createCustomLoss, got ${typeof given}`,
    );
  }
  const pass = { modelId, baseModel, lossFn: "cross_entropy" };
  const forward = { ...pass, data: forwardData(data), forwardOnly: true };
  const forwardParts = passRequests(context, forward);
  return startOperation(context, options.signal, async (signal, onAccepted) => {
    const { sent, results, evaluated } = await requests.inTurn(signal, async () => {
      const outputs = await context.tokenObservers.watch(observedPass(forward), async () =>
        requests.resultsOf(await requests.sendAll(forwardParts, options, signal), options, signal),
      );
      const logprobs = logprobVariables(data, combineForwardBackwardOutputs(outputs));
      const lossFn = handle === undefined ? (given as CustomLossFn) : await lossInClient(handle);
      // A loss that hangs must not hold the turn after the caller has given up.
      const evaluated = await untilAborted(evaluateCustomLoss(lossFn, data, logprobs), signal);
      const backward = { ...pass, data: backwardData(data, evaluated.gradients), forwardOnly: false };
      const parts = passRequests(context, backward);
      const { sent, results } = await sentPass(
        context,
        backward,
        async (accept: (sent: SentParts) => void) => {
          const accepted = await requests.sendAll(parts, options, signal);
          accept(accepted);
          return requests.resultsOf(accepted, options, signal);
        },
      );
      return { sent, results, evaluated };
    });
    onAccepted(sent[0]!.accepted);
    return mergeCustomLoss(combineForwardBackwardOutputs(await results), evaluated);
  });
}

type SentParts = Awaited<ReturnType<typeof ModelRequests.prototype.sendAll<ForwardBackwardOutput>>>;

/** Resolves when the requests of a pass are accepted; its results come later. */
async function sentPass<Sent, R>(
  context: ClientContext,
  pass: Parameters<typeof observedPass>[0],
  work: (accept: (sent: Sent) => void) => Promise<R>,
): Promise<{ readonly sent: Sent; readonly results: Promise<R> }> {
  let accept: (sent: Sent) => void = () => {};
  const accepted = new Promise<Sent>((resolve) => {
    accept = resolve;
  });
  const results = context.tokenObservers.watch(observedPass(pass), () => work(accept));
  return { sent: await Promise.race([accepted, results.then(() => accepted)]), results };
}

function observedPass({
  baseModel,
  data,
  forwardOnly,
}: Pick<Pass, "baseModel" | "data" | "forwardOnly">): TokenRequest {
  return { type: "pass", kind: forwardOnly ? "forward" : "forward_backward", model: baseModel, data };
}

function checkHandle(context: ClientContext, handle: CustomLossHandle, data: readonly Datum[]): void {
  const { name, sessionId } = handle;
  if (sessionId !== (context.session.id ?? ""))
    throw new ValidationError(
      "lossFn",
      `lossFn: the loss ${name} was created in another session; create it with a client of this one`,
    );
  checkLossData(handle, data);
}

function passRequests(context: ClientContext, pass: Pass): ModelRequest<ForwardBackwardOutput>[] {
  const { fwdbwdMaxChunkLen, fwdbwdMaxChunkBytesCount } = context.session.config;
  const { modelId, lossFn, lossFnConfig } = pass;
  const limit = context.trainingLimit;
  return chunksOf(pass.data, fwdbwdMaxChunkLen, fwdbwdMaxChunkBytesCount).map(({ data, bytes }) => {
    const input = { data, lossFn, lossFnConfig };
    return pass.forwardOnly
      ? { endpoint: endpoints.forward, message: { modelId, forwardInput: input }, limit, bytes }
      : {
          endpoint: endpoints.forwardBackward,
          message: { modelId, forwardBackwardInput: input },
          limit,
          bytes,
        };
  });
}

interface DataChunk {
  readonly data: Datum[];
  bytes: number;
}

/** Cuts a batch into requests below the server's limits; a datum is never cut. */
function chunksOf(data: readonly Datum[], maxDatums: number, maxBytes: number): DataChunk[] {
  const chunks: DataChunk[] = [];
  for (const datum of data) {
    const bytes = estimateDatumProtoBytes(datum);
    const last = chunks.at(-1);
    if (last !== undefined && last.data.length < maxDatums && last.bytes + bytes <= maxBytes) {
      last.data.push(datum);
      last.bytes += bytes;
    } else {
      chunks.push({ data: [datum], bytes });
    }
  }
  return chunks;
}
