import { type ContentPart, type Message, textOf } from "./messages.js";
import { type JsonValue, printPythonJson } from "./python-json.js";
import { strip } from "./python-text.js";
import { Qwen35Renderer } from "./qwen3-5.js";
import type { RenderContext, RendererTokenizer } from "./renderer.js";

/** How much Qwen3.8 thinks. */
export type Qwen38Reasoning = "xhigh" | "medium" | "low" | "disabled";

const INSTRUCTIONS: Readonly<Record<Qwen38Reasoning, string>> = {
  xhigh:
    "Reasoning effort is set to xhigh. Please think carefully through the task, validate key assumptions, consider " +
    "plausible alternatives, and prioritize correctness, consistency, and clarity in the final answer.",
  medium: "",
  low:
    "Reasoning effort is set to low. Keep your thinking brief and focused, moving directly to the conclusion without " +
    "unnecessary elaboration.",
  disabled: "",
};

/** Qwen3.8's turns: as Qwen3.5's, with all thoughts kept and the effort said in the system message. */
export class Qwen38Renderer extends Qwen35Renderer {
  readonly #instruction: string;

  constructor(tokenizer: RendererTokenizer, reasoning: Qwen38Reasoning = "xhigh") {
    super(tokenizer, reasoning === "disabled" ? "disabled" : "preserved");
    this.#instruction = INSTRUCTIONS[reasoning];
  }

  /** Done already where the system message begins with the instruction. */
  protected override prepareMessages(messages: readonly Message[]): readonly Message[] {
    const instruction = this.#instruction;
    const [first, ...rest] = messages;
    if (first?.role !== "system") {
      return instruction === "" ? messages : [{ role: "system", content: instruction }, ...messages];
    }
    if (typeof first.content !== "string" && first.content.some(({ type }) => type !== "text")) {
      return [{ ...first, content: this.#instructed(first.content) }, ...rest];
    }
    const text = strip(textOf(first));
    const isInstructed = text === instruction || text.startsWith(`${instruction}\n\n`);
    const content = isInstructed ? text : [instruction, text].filter(Boolean).join("\n\n");
    return content === "" ? rest : [{ ...first, content }, ...rest];
  }

  /** A system message with more than text, which the model's own template would refuse. */
  #instructed(parts: readonly ContentPart[]): readonly ContentPart[] {
    const [first] = parts;
    const isInstructed = first?.type === "text" && first.text.startsWith(this.#instruction);
    if (this.#instruction === "" || isInstructed) return parts;
    return [{ type: "text", text: `${this.#instruction}\n\n` }, ...parts];
  }

  protected override keepsThinking(): boolean {
    return true;
  }

  /** Thoughts that are written out in a text are text. */
  protected override emptyBlock({ content }: Message, _context: RenderContext): string {
    const hasThoughts = typeof content !== "string" && content.some(({ type }) => type === "thinking");
    return hasThoughts ? "" : this.writeThinking("");
  }

  protected override writeArgument(value: JsonValue): string {
    return typeof value === "string" ? value : printPythonJson(value);
  }
}
