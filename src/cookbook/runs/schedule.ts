import { wrongField } from "../../wire/index.js";

/** How the learning rate goes down over a run: along a line or half a cosine to zero, or not at all. */
export type Schedule = "linear" | "cosine" | "constant";

/** The names of all schedules. */
export const SCHEDULES: readonly Schedule[] = ["linear", "cosine", "constant"];

/** The part of the peak learning rate that a step has. The first `warmupSteps` climb to it in equal parts. */
export function scheduleMultiplier(
  schedule: Schedule,
  step: number,
  totalSteps: number,
  warmupSteps = 0,
): number {
  if (step < warmupSteps) return (step + 1) / warmupSteps;
  const share = (step - warmupSteps) / (totalSteps - warmupSteps);
  switch (schedule) {
    case "linear":
      return 1 - share;
    case "cosine":
      // In this order the last bit is the one of Python's formula.
      return 0.5 * (1 + Math.cos((Math.PI * (step - warmupSteps)) / (totalSteps - warmupSteps)));
    case "constant":
      return 1;
    default:
      throw wrongField(
        "schedule",
        `must be one of ${SCHEDULES.join(", ")}, got ${String(schedule satisfies never)}`,
      );
  }
}
