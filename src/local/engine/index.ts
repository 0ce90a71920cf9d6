/** The engine turns token arrays into logprobs, gradients, updated adapters and samples, reproducibly to the last bit. */
export * from "./engine.js";
export { CancelledError, EngineInputError } from "./errors.js";
export { type FullExample, type FullStep, FullTrainer } from "./full-trainer.js";
export { startEngine } from "./start-engine.js";
