import { messageOf, TinkerError } from "../errors.js";

/** Runs a decoder and reports its errors as faults of the answer, not of the user. */
export function readAnswer<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw new TinkerError(`The server's ${what} cannot be read: ${messageOf(error)}`, { cause: error });
  }
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Servers qualify the type of a loss's records with its module; users see the name after the last colon. */
export function shortTypeName(qualified: string): string {
  return qualified.slice(qualified.lastIndexOf(":") + 1) || "ArrayRecord";
}

let protobufModule: typeof import("./protobuf.js") | undefined;

/** Half of what the SDK would load at start-up, so it is loaded with the first answer that needs it. */
export async function protobuf(): Promise<typeof import("./protobuf.js")> {
  protobufModule ??= await import("./protobuf.js");
  return protobufModule;
}
