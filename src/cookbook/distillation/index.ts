/** Training on a teacher: its logprobs of the student's tokens, its likeliest tokens, or its answers. */
export * from "./domains.js";
export * from "./hints.js";
export * from "./off-policy.js";
export * from "./on-policy.js";
export * from "./prompt-distillation.js";
export * from "./prompts.js";
export * from "./reverse-kl-loss.js";
export * from "./self-distillation.js";
export * from "./soft-targets.js";
export * from "./teacher.js";
export * from "./teacher-penalty.js";
