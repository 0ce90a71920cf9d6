import type { Engine, EngineOptions } from "./engine.js";

/** Loads the models and starts the engine: in a worker thread, or in this one with `inThread`. */
export async function startEngine(_options: EngineOptions): Promise<Engine> {
  throw new Error("The engine is not built yet.");
}
