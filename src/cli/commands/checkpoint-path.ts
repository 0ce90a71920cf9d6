import { InvalidArgumentError } from "commander";
import { parseTinkerPath } from "../../wire/tinker-path.js";

/** The argument of every command about one checkpoint. */
export const PATH_ARGUMENT = [
  "<path>",
  "the checkpoint: tinker://<run>/<kind>/<name>",
  checkpointPath,
] as const;

/** Where to find a path that exists. */
export const PATH_ADVICE = "`tinkerts checkpoint list` shows those it has";

export function checkpointPath(text: string): string {
  try {
    return parseTinkerPath(text).path;
  } catch {
    throw new InvalidArgumentError(
      "A checkpoint's path looks like tinker://<run>/weights/<name>, or with sampler_weights or external_weights.",
    );
  }
}
