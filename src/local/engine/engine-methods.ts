import type { Engine, ReplaceableEngine } from "./engine.js";

const ASKING_METHODS = [
  ...(["models", "device", "createAdapter", "forwardBackward", "optimStep", "exportAdapter"] as const),
  ...(["importAdapter", "cloneAdapter", "removeAdapter", "sample"] as const),
];

/** A method of an engine that only asks and waits for the answer. */
export type AskingMethod = (typeof ASKING_METHODS)[number];

/** The asking methods of an engine, all through one function. */
export function askingMethods(
  call: (method: AskingMethod, args: unknown[]) => Promise<unknown>,
): Pick<Engine, AskingMethod> {
  const methods = ASKING_METHODS.map((method) => [method, (...args: unknown[]) => call(method, args)]);
  return Object.fromEntries(methods) as Pick<Engine, AskingMethod>;
}

/** Calls a method of an engine by its name. */
export function callMethod(
  engine: ReplaceableEngine,
  method: Exclude<keyof ReplaceableEngine, "cancelSample" | "onLost">,
  args: unknown[],
): Promise<unknown> {
  return (engine[method] as (...args: unknown[]) => Promise<unknown>).apply(engine, args);
}
