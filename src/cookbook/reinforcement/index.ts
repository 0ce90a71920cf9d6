/** Training by reward: from episodes to advantages, losses and steps. */
export type { RolloutDatum } from "./rollout-datum.js";
