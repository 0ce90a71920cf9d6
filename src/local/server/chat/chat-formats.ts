import { TinkerError } from "../../../errors.js";
import { knownRenderers } from "../../../renderers/models.js";
import { nameWithEffort, type ReasoningEffort } from "../../../renderers/reasoning-effort.js";
import { getRenderer } from "../../../renderers/registry.js";
import type { Renderer } from "../../../renderers/renderer.js";
import { templateRenderer } from "../../../renderers/template.js";
import type { Tokenizer } from "../../../tokenizers/index.js";
import { HttpError } from "../http/http-error.js";
import { unsupported } from "./openai-errors.js";

/** What a request says about thinking: OpenAI's word for it, and the variable that most chat templates read. */
export interface ThinkingWish {
  readonly effort?: ReasoningEffort | undefined;
  readonly enabled?: boolean | undefined;
}

const PROBE = [{ role: "user", content: "Hello" }];

/** The renderers that fit a model: by its name, or else over its own chat template. */
export class ChatFormats {
  readonly #model: string;
  readonly #tokenizer: Tokenizer;
  readonly #names: readonly string[] | undefined;
  readonly #made = new Map<string, Renderer>();

  constructor(model: string, tokenizer: Tokenizer) {
    this.#model = model;
    this.#tokenizer = tokenizer;
    this.#names = knownRenderers(model);
  }

  /** The one that fits best what is asked for about thinking. */
  choose({ effort, enabled }: ThinkingWish): Renderer {
    const wished = effort ?? (enabled === undefined ? undefined : enabled ? "thinking" : "none");
    const param = effort === undefined ? "chat_template_kwargs.enable_thinking" : "reasoning_effort";
    if (this.#names === undefined) return this.#ofTemplate(wished, param);
    const name = wished === undefined ? this.#names[0] : nameWithEffort(this.#names, wished);
    if (name === undefined)
      throw unsupported(param, `cannot be ${effort ?? enabled} with ${this.#model}: it knows no such mode.`);
    return this.#make(name, () => getRenderer(name, this.#tokenizer));
  }

  /** The one that thinks least, for an answer whose beginning is given. */
  chooseUnthinking(): Renderer {
    const name = this.#names && nameWithEffort(this.#names, "none");
    return name === undefined ? this.choose({}) : this.#make(name, () => getRenderer(name, this.#tokenizer));
  }

  #ofTemplate(wished: ReasoningEffort | "thinking" | undefined, param: string): Renderer {
    if (!this.#tokenizer.hasChatTemplate) {
      throw new HttpError(422, `Model ${this.#model} has no chat template; use completions instead.`);
    }
    const thinking = (thinks: boolean) => this.#withVariables({ enable_thinking: thinks });
    if (wished === undefined) return this.#withVariables({});
    const [on, off] = [thinking(true), thinking(false)];
    if (promptOf(on) === promptOf(off))
      throw unsupported(param, `changes nothing with ${this.#model}: its chat template does not read it.`);
    return wished === "none" ? off : on;
  }

  #withVariables(variables: Readonly<Record<string, unknown>>): Renderer {
    return this.#make(JSON.stringify(variables), () => templateRenderer(this.#tokenizer, { variables }));
  }

  #make(key: string, make: () => Renderer): Renderer {
    const made = this.#made.get(key) ?? attempt(this.#model, make);
    this.#made.set(key, made);
    return made;
  }
}

function attempt(model: string, make: () => Renderer): Renderer {
  try {
    return make();
  } catch (error) {
    if (!(error instanceof TinkerError)) throw error;
    throw new HttpError(422, `Model ${model} cannot chat: ${error.message}`);
  }
}

function promptOf(renderer: Renderer): string {
  return JSON.stringify(renderer.buildPrompt(PROBE).chunks);
}
