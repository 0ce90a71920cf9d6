import { TinkerError } from "../../../errors.js";
import { knownRenderers } from "../../../renderers/models.js";
import { getRenderer } from "../../../renderers/registry.js";
import type { Renderer } from "../../../renderers/renderer.js";
import { templateRenderer } from "../../../renderers/template.js";
import type { Tokenizer } from "../../../tokenizers/index.js";
import { HttpError } from "../http/http-error.js";
import { unsupported } from "./openai-errors.js";

/** From the least to the most, as OpenAI names them. */
export const REASONING_EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"] as const;
/** How much a model is asked to think before it answers. */
export type ReasoningEffort = (typeof REASONING_EFFORTS)[number];

/** What a request says about thinking: OpenAI's word for it, and the variable that most chat templates read. */
export interface ThinkingWish {
  readonly effort?: ReasoningEffort | undefined;
  readonly enabled?: boolean | undefined;
}

const EFFORT_IN_NAME = /_(low|medium|high|xhigh|max)_(?:reasoning|thinking)$/;
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
    const name = wished === undefined ? this.#names[0] : chosenName(this.#names, wished);
    if (name === undefined)
      throw unsupported(param, `cannot be ${effort ?? enabled} with ${this.#model}: it knows no such mode.`);
    return this.#make(name, () => getRenderer(name, this.#tokenizer));
  }

  /** The one that thinks least, for an answer whose beginning is given. */
  chooseUnthinking(): Renderer {
    const name = this.#names && chosenName(this.#names, "none");
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

/** Of a family's renderers, the one that thinks as much as asked for, or the next one above it. */
function chosenName(names: readonly string[], wished: ReasoningEffort | "thinking"): string | undefined {
  if (wished === "none")
    return names.find((name) => name.endsWith("_disable_thinking") || isQuiet(name, names));
  const thinking = names.filter(
    (name) => !/_(?:disable|preserve)_thinking$/.test(name) && !isQuiet(name, names),
  );
  const hasModes = names.length > 1;
  if (!hasModes) return undefined;
  if (wished === "thinking") return thinking[0];
  const order = (name: string) =>
    REASONING_EFFORTS.indexOf((EFFORT_IN_NAME.exec(name)?.[1] ?? "high") as ReasoningEffort);
  const rising = thinking.toSorted((one, other) => order(one) - order(other));
  return rising.find((name) => order(name) >= REASONING_EFFORTS.indexOf(wished)) ?? rising.at(-1);
}

/** Where a family names the renderer that thinks, the plain one does not. */
function isQuiet(name: string, names: readonly string[]): boolean {
  return names.includes(`${name}_thinking`);
}
