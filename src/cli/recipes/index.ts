/** Small programs that each teach a model something, made to be run, read and copied: one file each. */
import type { RunOptions } from "../../cookbook/runs/index.js";

/** Exports of a recipe's file. */
export interface Recipe {
  /** Results that it must reach with the built-in model and the settings in the file. */
  readonly bar: Readonly<Record<string, { readonly atLeast: number } | { readonly atMost: number }>>;
  run(
    options: RunOptions & { readonly steps?: number | undefined },
  ): Promise<Readonly<Record<string, number | string>>>;
}

/** All recipes, in reading order. */
export const RECIPES: Readonly<
  Record<
    string,
    {
      readonly summary: string;
      /** Packages that it imports and tinkerts does not come with. */
      readonly packages?: readonly string[];
      readonly load: () => Promise<Recipe>;
    }
  >
> = {
  "word-game": {
    summary: "supervised chat: Pig Latin from conversations",
    load: () => import("./word-game.js"),
  },
  addition: {
    summary: "reinforcement: a model that forgets the carry learns to add from right or wrong alone",
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
  "agent-sdk": {
    summary: "reinforcement of an agent: one of the AI SDK learns to call its tool",
    packages: ["ai", "@ai-sdk/openai-compatible"],
    load: () => import("./agent-sdk.js"),
  },
  "agent-script": {
    summary: "reinforcement of an agent: a script with OpenAI's client does, started once per episode",
    packages: ["openai"],
    load: () => import("./agent-script.js"),
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
    summary: "a teacher: the model itself with instructions, imitated without them",
    load: () => import("./prompt-distillation.js"),
  },
};
