/** The engine turns token arrays into logprobs, gradients, updated adapters and samples, reproducibly to the last bit. */
export * from "./engine.js";
export { checkJsonConstraint } from "./sampling/json/json-sampling.js";
export { modelCheck, startEngine } from "./start-engine.js";
export { type FullExample, type FullStep, FullTrainer } from "./training/full-trainer.js";
