import { TinkerError } from "../errors.js";
import { knownRenderers } from "./models.js";
import {
  type FormatTokenizer,
  getRenderer,
  type RendererOptions,
  thinkingModeOf,
  usualRenderer,
} from "./registry.js";
import type { Renderer } from "./renderer.js";
import { templateRenderer } from "./template.js";
import { REASONING_EFFORTS, type ReasoningEffort } from "./thinking.js";

/** How much a model thinks: an effort, `true` for thoughts of any length, `false` for none. */
export type ThinkingWish = ReasoningEffort | boolean;

const PROBE = [{ role: "user", content: "Hello" }];

/** The renderers of one model: those that fit its name, or else its own chat template. Each is made once. */
export class ModelFormats {
  readonly model: string;
  readonly #tokenizer: FormatTokenizer;
  readonly #made = new Map<string, Renderer | TinkerError>();

  constructor(model: string, tokenizer: FormatTokenizer) {
    this.model = model;
    this.#tokenizer = tokenizer;
  }

  /** The renderer for requests that do not mention thinking. */
  get usual(): Renderer {
    return this.#named(usualRenderer(this.model, this.#tokenizer));
  }

  /** The renderer with the requested effort, or with the next higher one; undefined if the model has no such mode. */
  withThinking(wish: ThinkingWish): Renderer | undefined {
    if (knownRenderers(this.model) === undefined && this.#tokenizer.hasChatTemplate)
      return this.#templateWithThinking(wish);
    const found = rendererWithThinking(this.model, wish);
    return found && this.#named(found.name, found.options);
  }

  #templateWithThinking(wish: ThinkingWish): Renderer | undefined {
    const [on, off] = [true, false].map((thinks) =>
      this.#make(`template ${thinks}`, () =>
        templateRenderer(this.#tokenizer, { variables: { enable_thinking: thinks } }),
      ),
    ) as [Renderer, Renderer];
    // A template that ignores the variable has no modes.
    if (promptOf(on) === promptOf(off)) return undefined;
    return wish === "none" || wish === false ? off : on;
  }

  #named(name: string, options: RendererOptions = {}): Renderer {
    return this.#make(JSON.stringify([name, options]), () => getRenderer(name, this.#tokenizer, options));
  }

  #make(key: string, make: () => Renderer): Renderer {
    const made = this.#made.get(key) ?? orRefusal(make);
    this.#made.set(key, made);
    // A template that was refused once is not tried again for each request.
    if (made instanceof TinkerError) throw made;
    return made;
  }
}

function orRefusal(make: () => Renderer): Renderer | TinkerError {
  try {
    return make();
  } catch (error) {
    if (error instanceof TinkerError) return error;
    throw error;
  }
}

/** The renderer of a model's family with the requested effort, or the next higher one; undefined if there is no choice. */
export function rendererWithThinking(
  model: string,
  wish: ThinkingWish,
): { readonly name: string; readonly options: RendererOptions } | undefined {
  const known = knownRenderers(model) ?? [];
  if (known[0] === "tml_v0")
    return { name: "tml_v0", options: wish === true ? {} : { effort: wish === false ? "none" : wish } };
  if (known.length < 2) return undefined;
  const named = (name: string | undefined) => (name === undefined ? undefined : { name, options: {} });
  if (wish === "none" || wish === false)
    return named(known.find((name) => thinkingModeOf(name).thinking === "disabled"));
  if (wish === true) return named(thinkingOf(known)[0]);
  const rising = thinkingOf(known).toSorted((one, other) => effortOf(one) - effortOf(other));
  const most = effortOf(rising.at(-1)!);
  const asked = Math.min(REASONING_EFFORTS.indexOf(wish), most);
  return named(rising.find((name) => effortOf(name) >= asked));
}

/** Renderers of a family that think; those that forget old thoughts, if the family has both kinds. */
function thinkingOf(names: readonly string[]): readonly string[] {
  const enabled = names.filter((name) => thinkingModeOf(name).thinking === "enabled");
  return enabled.length > 0 ? enabled : names.filter((name) => thinkingModeOf(name).thinking === "preserved");
}

/** A renderer's effort on the scale; a renderer without one counts as high. */
function effortOf(name: string): number {
  return REASONING_EFFORTS.indexOf(thinkingModeOf(name).effort ?? "high");
}

function promptOf(renderer: Renderer): string {
  return JSON.stringify(renderer.buildPrompt(PROBE).chunks);
}
