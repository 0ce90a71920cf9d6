/** Episodes: models that act in environments, alone and in groups, under limits. */
export { type Policy, type PolicyCall, samplerPolicy } from "./policy.js";
