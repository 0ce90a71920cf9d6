import { TinkerError } from "../../src/errors.js";

/** What an action gives, or undefined where it refuses; anything else than a refusal is a defect. */
export function attempt<T>(action: () => T): T | undefined {
  try {
    return action();
  } catch (error) {
    if (!(error instanceof TinkerError)) throw error;
    return undefined;
  }
}
