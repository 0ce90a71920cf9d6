import { messageOf, TinkerError } from "../../errors.js";
import type { RunCheckpoint } from "./types.js";

/** The run was restored as often as its policy allows and failed each time before it got to a new checkpoint. */
export class RunGaveUpError extends TinkerError {
  /** Checkpoint that a later run can resume from. */
  readonly checkpoint: RunCheckpoint | undefined;
  readonly attempts: number;

  constructor(attempts: number, checkpoint: RunCheckpoint | undefined, cause: unknown) {
    super(
      `The run was restored ${attempts} times since ${checkpoint === undefined ? "its start" : `checkpoint ${checkpoint.name}`} ` +
        `and failed each time; the last failure: ${messageOf(cause)}`,
      { cause },
    );
    this.name = "RunGaveUpError";
    this.checkpoint = checkpoint;
    this.attempts = attempts;
  }
}
