import type { Message } from "../../src/renderers/index.js";

/** A conversation that every format can write. */
export const BE_BRIEF: Message = { role: "system", content: "Be brief." };
export const QUESTION: Message = { role: "user", content: "2+2?" };
export const ANSWER: Message = { role: "assistant", content: "4" };
export const THOUGHT: Message = {
  role: "assistant",
  content: [
    { type: "thinking", thinking: "Easy." },
    { type: "text", text: "4" },
  ],
};
