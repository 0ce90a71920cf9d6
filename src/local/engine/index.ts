/** The engine turns token arrays into logprobs, gradients, updated adapters and samples, reproducibly to the last bit. */
export * from "./engine.js";
export { checkJsonConstraint } from "./sampling/json/json-sampling.js";
