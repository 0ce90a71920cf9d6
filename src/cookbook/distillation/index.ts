/** Learning from a teacher: by its opinion of the student's words, by its likeliest tokens, by its answers. */
export type { Domain, OneOrSeveral } from "./domains.js";
export type { Hint } from "./hints.js";
export {
  type OffPolicyDistillationOptions,
  planOffPolicyDistillation,
  type TaughtConversations,
  trainOffPolicyDistillation,
} from "./off-policy.js";
export {
  type OnPolicyDistillationOptions,
  planOnPolicyDistillation,
  type TaughtPrompts,
  trainOnPolicyDistillation,
} from "./on-policy.js";
export {
  type AnsweringOptions,
  type PromptDistillationOptions,
  type TeacherAnswer,
  trainPromptDistillation,
} from "./prompt-distillation.js";
export type { Prompts } from "./prompts.js";
export { reverseKlLoss } from "./reverse-kl-loss.js";
export {
  planSelfDistillation,
  type SelfDistillationOptions,
  trainSelfDistillation,
} from "./self-distillation.js";
export { type TaughtDatum, taughtDatum } from "./soft-targets.js";
export type { Teacher, TeacherSampler } from "./teacher.js";
export { type TeacherPenaltyOptions, teacherPenalty } from "./teacher-penalty.js";
