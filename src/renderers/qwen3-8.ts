import { formatText, type Markup } from "./markup.js";
import { type ContentPart, hasThinking, type Message, textOf } from "./messages.js";
import { type JsonValue, printPythonJson } from "./python-json.js";
import { strip } from "./python-text.js";
import { Qwen35Renderer } from "./qwen3-5.js";
import type { RendererTokenizer } from "./renderer.js";
import type { ReasoningEffort, ThinkingMode } from "./thinking.js";

/** Efforts that the system message states; others are not mentioned. */
const INSTRUCTIONS: Readonly<Partial<Record<ReasoningEffort, string>>> = {
  xhigh:
    "Reasoning effort is set to xhigh. Please think carefully through the task, validate key assumptions, consider " +
    "plausible alternatives, and prioritize correctness, consistency, and clarity in the final answer.",
  low:
    "Reasoning effort is set to low. Keep your thinking brief and focused, moving directly to the conclusion without " +
    "unnecessary elaboration.",
};

/** Qwen3.8's turns: as Qwen3.5's, with all thoughts kept and the effort said in the system message. */
export class Qwen38Renderer extends Qwen35Renderer {
  readonly #instruction: string;

  constructor(tokenizer: RendererTokenizer, mode: ThinkingMode = {}) {
    super(tokenizer, mode);
    this.#instruction = (mode.effort && INSTRUCTIONS[mode.effort]) ?? "";
  }

  /** Not repeated if the system message already begins with the instruction. */
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

  protected override get readsTags(): boolean {
    return false;
  }

  protected override emptyBlock({ content }: Message): Markup {
    return hasThinking(content) ? formatText("") : this.writeThinking("");
  }

  protected override writeArgument(value: JsonValue): string {
    return typeof value === "string" ? value : printPythonJson(value, { ensureAscii: this.isCookbook });
  }
}
