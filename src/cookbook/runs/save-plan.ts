import type { CheckpointPlan } from "../../training/index.js";
import type { CheckpointOptions } from "./options.js";

const DEFAULT_EVERY_STEPS = 20;
/** A week, as the Python cookbook keeps its checkpoints. */
const DEFAULT_TTL_SECONDS = 604_800;
/** Rolling checkpoints are deleted; this is for when that fails. */
const ROLLING_TTL_SECONDS = 7200;

/** The settings of saves with their defaults. */
export function saveSettings(save: CheckpointOptions = {}) {
  const hasOther = save.everyTokens !== undefined || save.everySeconds !== undefined;
  return {
    everySteps: save.everySteps ?? (hasOther ? undefined : DEFAULT_EVERY_STEPS),
    everyTokens: save.everyTokens,
    everySeconds: save.everySeconds,
    rollingSteps: save.rollingSteps,
    ttlSeconds: save.ttlSeconds === null ? undefined : (save.ttlSeconds ?? DEFAULT_TTL_SECONDS),
  };
}

/** Decides after which steps weights are saved. */
export function savePlan(
  settings: ReturnType<typeof saveSettings>,
  {
    tokensAfter,
    nowMs = () => performance.now(),
  }: { tokensAfter: (batch: number) => number; nowMs?: () => number },
): (batch: number) => CheckpointPlan | undefined {
  const { everySteps, everyTokens, everySeconds, rollingSteps, ttlSeconds } = settings;
  let last: { tokens: number; atMs: number } | undefined;
  return (batch) => {
    const now = { tokens: tokensAfter(batch), atMs: nowMs() };
    // A run that goes on counts from where it does.
    last ??= now;
    // Only there so that a run can resume.
    if (batch === 0) return { rolling: true, ttlSeconds };
    const isDue =
      (everySteps !== undefined && batch % everySteps === 0) ||
      (everyTokens !== undefined && now.tokens - last.tokens >= everyTokens) ||
      (everySeconds !== undefined && now.atMs - last.atMs >= everySeconds * 1000);
    if (isDue) {
      last = now;
      return { sampler: true, ttlSeconds };
    }
    const isRolling = rollingSteps !== undefined && batch % rollingSteps === 0;
    return isRolling ? { rolling: true, ttlSeconds: ROLLING_TTL_SECONDS } : undefined;
  };
}
