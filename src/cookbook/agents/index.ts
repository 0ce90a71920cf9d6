/** Training on agents: programs that call the model themselves, over the APIs that they already speak. */
export * from "./agent.js";
export * from "./ruler-reward.js";
