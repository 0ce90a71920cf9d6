import { ValidationError } from "../../errors.js";

/** For callers without a compiler. */
export function unknownChoice(termName: string, option: string, value: unknown): ValidationError {
  return new ValidationError(option, `${termName}: there is no ${option} "${String(value)}"`);
}
