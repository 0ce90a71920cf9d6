/** The engine turns token arrays into logprobs, gradients, updated adapters and samples, reproducibly to the last bit. */
export * from "./engine.js";
export { CancelledError, EngineInputError } from "./errors.js";
export { startEngine } from "./start-engine.js";
