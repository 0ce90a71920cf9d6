import type { Core } from "./core.js";
import { describeFailure, HttpError } from "./http-error.js";
import type { LiveModel } from "./sessions.js";

/**
 * Runs something that changes a model's weights, gradients or optimizer. When the engine fails in the middle of
 * it, what is left is neither the state before nor the one after: the run is marked as corrupted, for good, and
 * nothing is trained on or saved from that state.
 */
export async function changing<T>(core: Core, model: LiveModel, kind: string, change: () => Promise<T>) {
  try {
    return await change();
  } catch (error) {
    const failure = describeFailure(error);
    if (failure.category === "server") await markCorrupted(core, model, `${kind} failed: ${failure.error}`);
    throw error;
  }
}

export async function markCorrupted(core: Core, model: LiveModel, why: string): Promise<void> {
  model.corruptedBecause ??= why;
  model.run.corrupted = true;
  await core.store.runs.save(model.run);
}

export function refuseCorrupted(model: LiveModel): void {
  if (model.corruptedBecause === undefined) return;
  throw new HttpError(
    500,
    `Model ${model.run.id} is corrupted (${model.corruptedBecause}); create a new one from its last checkpoint.`,
  );
}
