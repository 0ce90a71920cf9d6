/** Small programs that each teach a model something, made to be run, read and copied: one file each. */
import type { RunOptions } from "../../cookbook/runs/index.js";

/** What the file of a recipe exports. */
export interface Recipe {
  /** What the results must be with the built-in model and the settings of the file. */
  readonly bar: Readonly<Record<string, { readonly atLeast: number } | { readonly atMost: number }>>;
  run(
    options: RunOptions & { readonly steps?: number | undefined },
  ): Promise<Readonly<Record<string, number | string>>>;
}

/** All recipes, in the order in which they are best read. */
export const RECIPES: Readonly<
  Record<string, { readonly summary: string; readonly load: () => Promise<Recipe> }>
> = {
  "word-game": {
    summary: "supervised chat: Pig Latin from conversations",
    load: () => import("./word-game.js"),
  },
  addition: {
    summary: "reinforcement: a model that forgets the carry learns to add, told only right or wrong",
    load: () => import("./addition.js"),
  },
  "async-addition": {
    summary: "reinforcement: the same beside its asynchronous form, both timed",
    load: () => import("./async-addition.js"),
  },
  "guess-number": {
    summary: "reinforcement over several turns: guessing a number by its hints",
    load: () => import("./guess-number.js"),
  },
  "tool-use": {
    summary: "reinforcement with a tool: calling it, and passing on what it says",
    load: () => import("./tool-use.js"),
  },
  "dpo-sums": {
    summary: "preferences: pairs of right and wrong sums, by DPO",
    load: () => import("./dpo-sums.js"),
  },
  rlhf: {
    summary: "preferences: a model learns from comparisons what people like, and rewards another",
    load: () => import("./rlhf.js"),
  },
  shorter: {
    summary: "preferences: a tournament among answers that the shorter one wins",
    load: () => import("./shorter.js"),
  },
  distillation: {
    summary: "a teacher: a trained checkpoint says of each token what it would have said",
    load: () => import("./distillation.js"),
  },
  "prompt-distillation": {
    summary: "a teacher: the model itself with instructions, learnt without them",
    load: () => import("./prompt-distillation.js"),
  },
};
