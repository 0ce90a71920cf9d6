import * as ai6 from "ai";
import * as ai7 from "ai7";

/** The functions of the AI SDK that tests call. */
export type Ai = Pick<
  typeof ai6,
  "generateText" | "streamText" | "tool" | "Output" | "stepCountIs" | "wrapLanguageModel"
>;

/** Both majors, whose functions are called alike; what differs in their types is no matter here. */
export const MAJORS: readonly (readonly [name: string, ai: Ai])[] = [
  ["ai 6", ai6],
  ["ai 7", ai7 as unknown as Ai],
];

// Some tests check warnings; they need not be printed.
Object.assign(globalThis, { AI_SDK_LOG_WARNINGS: false });
