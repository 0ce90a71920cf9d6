import { TinkerError } from "../errors.js";

/** An archive was not unpacked: `damaged` on its way, or `refused` because of what it would have done. */
export class ArchiveError extends TinkerError {
  override readonly name = "ArchiveError";
  readonly reason: "damaged" | "refused";

  constructor(reason: "damaged" | "refused", message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.reason = reason;
  }
}
