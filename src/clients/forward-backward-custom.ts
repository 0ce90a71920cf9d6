import { TinkerError, ValidationError } from "../errors.js";
import { APIFuture, linkSignals } from "../futures/index.js";
import {
  backwardData,
  type CustomLossFn,
  type CustomLossResult,
  evaluateCustomLoss,
  forwardData,
  logprobVariables,
  mergeCustomLoss,
} from "../training/custom-loss.js";
import { type RequestOptions, untilAborted } from "../transport/index.js";
import type { Datum } from "../wire/index.js";
import type { ClientContext } from "./context.js";
import { startForwardBackward } from "./forward-backward.js";
import type { TrainingQueue } from "./training-queue.js";

export interface CustomLossCall {
  modelId: string;
  data: readonly Datum[];
  lossFn: CustomLossFn;
  options: RequestOptions;
}

/**
 * Forward pass, the user's loss, backward pass: all in one turn, so that what was called behind it is also sent
 * behind it. The turn ends when the backward pass is accepted, or with the first failure.
 */
export function startForwardBackwardCustom(
  context: ClientContext,
  queue: TrainingQueue,
  call: CustomLossCall,
): APIFuture<CustomLossResult> {
  if (typeof call.lossFn !== "function") {
    throw new ValidationError("lossFn", `lossFn must be a function, got ${typeof call.lossFn}`);
  }
  const { data, lossFn, modelId, options } = call;
  const toForward = forwardData(data);
  const link = linkSignals(context.closed, options.signal);
  const sent = queue.holdTurn(link.signal, async (turn) => {
    const pass = (passData: readonly Datum[], forwardOnly: boolean) =>
      startForwardBackward(context, turn, {
        modelId,
        data: passData,
        lossFn: "cross_entropy",
        lossFnConfig: undefined,
        forwardOnly,
        options,
      });
    const logprobs = logprobVariables(data, await pass(toForward, true));
    // A loss that hangs must not hold the turn once the caller has given up.
    const evaluated = await untilAborted(evaluateCustomLoss(lossFn, data, logprobs), link.signal);
    const backwardPass = pass(backwardData(data, evaluated.gradients), false);
    await backwardPass.submitted;
    return { backwardPass, evaluated };
  });
  const result = sent
    .then(async ({ backwardPass, evaluated }) => mergeCustomLoss(await backwardPass, evaluated))
    .catch((error) => {
      // Our own reason (the client was closed) says more than "aborted".
      throw link.signal.reason instanceof TinkerError ? link.signal.reason : error;
    })
    .finally(link.release);
  const submitted = sent.then(({ backwardPass }) => backwardPass.requestId ?? "");
  return new APIFuture({ submitted, result, clock: context.clock });
}
