import {
  CancelledError,
  type EngineDevice,
  EngineInputError,
  EngineLostError,
  type ReplaceableEngine,
  type SampledToken,
} from "./engine.js";

/** The methods that are called across threads and answer with a promise. */
export type EngineMethod = Exclude<keyof ReplaceableEngine, "cancelSample" | "onLost">;

/** A message to the worker thread. */
export type EngineRequest =
  | { kind: "call"; id: number; method: EngineMethod; args: unknown[]; wantsTokens?: boolean }
  | { kind: "cancel"; requestId: string };

/** An error on its way between threads. */
export interface PackedError {
  name: string;
  message: string;
  stack?: string | undefined;
}

/** A message from the worker thread. */
export type EngineAnswer =
  | { kind: "ready"; device: EngineDevice }
  | { kind: "failed"; error: PackedError }
  | { kind: "lost"; error: PackedError }
  | { kind: "token"; id: number; token: SampledToken }
  | { kind: "value"; id: number; value: unknown }
  | { kind: "error"; id: number; error: PackedError };

/** Takes apart what was thrown. */
export function packError(error: unknown): PackedError {
  if (!(error instanceof Error)) return { name: "Error", message: String(error) };
  return { name: error.name, message: error.message, stack: error.stack };
}

/** Makes an error of the same class again. */
export function unpackError({ name, message, stack }: PackedError): Error {
  const classes: Record<string, new (message: string) => Error> = {
    CancelledError,
    EngineInputError,
    EngineLostError,
  };
  const error = new (classes[name] ?? Error)(message);
  if (stack) error.stack = stack;
  return error;
}

/** The buffers of a message that this side does not need any more. */
export function transferables(value: unknown): ArrayBuffer[] {
  const buffers = new Set<ArrayBuffer>();
  const visit = (item: unknown) => {
    if (ArrayBuffer.isView(item)) {
      if (item.buffer instanceof ArrayBuffer) buffers.add(item.buffer);
    } else if (typeof item === "object" && item !== null) {
      for (const part of Object.values(item)) visit(part);
    }
  };
  visit(value);
  return [...buffers];
}
