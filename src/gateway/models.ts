import { TokenNames } from "../chat-api/index.js";
import { ModelFormats } from "../renderers/model-formats.js";
import { type FormatTokenizer, getRenderer } from "../renderers/registry.js";
import type { Renderer } from "../renderers/renderer.js";
import { canConstrain } from "../renderers/token-source.js";
import type { Tokenizer } from "../tokenizers/index.js";
import type { GatewayOptions, GatewaySampler } from "./gateway.js";
import { LastingService } from "./lasting-service.js";
import { passingError, samplingError } from "./sampling-error.js";

/** Context length if neither the options nor the server give one. */
const USUAL_CONTEXT = 32_768;

/** How a model reads and writes text. */
export interface ModelText {
  readonly baseModel: string;
  readonly tokenizer: Tokenizer;
  readonly formats: ModelFormats;
  readonly tokenNames: TokenNames;
  readonly maxContextLength: number;
}

/** A model that answers requests. */
export interface GatewayModel {
  /** The gateway's name for it. */
  readonly name: string;
  readonly sampler: GatewaySampler;
  readonly text: ModelText;
  /** True if the server can keep samples to JSON schemas and to calls of tools. */
  readonly canConstrain: boolean;
  /** The agent's error when sampling fails. */
  readonly explain: (error: unknown) => unknown;
}

/** Options of a gateway about its models. */
export type ModelOptions = Pick<GatewayOptions, "service" | "models" | "map" | "maxContextLength">;

/** The format of a session that has its own renderer. */
class OneFormat extends ModelFormats {
  readonly #renderer: Renderer;

  constructor(model: string, tokenizer: FormatTokenizer, renderer: Renderer) {
    super(model, tokenizer);
    this.#renderer = renderer;
  }

  override get usual(): Renderer {
    return this.#renderer;
  }

  override withThinking(): undefined {
    return undefined;
  }
}

/** The models of a gateway. Samplers are made when they are first asked for, tokenizers loaded once for each base model. */
export class GatewayModels {
  readonly #options: ModelOptions;
  readonly #service: LastingService | undefined;
  readonly #models = new Map<string, Promise<GatewayModel>>();
  readonly #texts = new Map<string, Promise<ModelText>>();
  #contextLengths: Promise<ReadonlyMap<string, number>> | undefined;

  constructor(options: ModelOptions) {
    this.#options = options;
    this.#service = options.service && new LastingService(options.service);
  }

  get names(): readonly string[] {
    return Object.keys(this.#options.models ?? {});
  }

  /** The model that answers for a name: that of this name, the one it is mapped to, or the first. */
  nameFor(asked: string | undefined): string | undefined {
    const { names } = this;
    if (asked === undefined || names.includes(asked)) return asked ?? names[0];
    const mapped = Object.entries(this.#options.map ?? {}).find(([pattern]) => isLike(asked, pattern))?.[1];
    return mapped ?? names[0];
  }

  find(name: string): Promise<GatewayModel> {
    const found: Promise<GatewayModel> = remembered(this.#models, name, async () => {
      const given = this.#options.models![name]!;
      if (typeof given !== "string") {
        const text = await this.textOf(given);
        return {
          name,
          sampler: given,
          text,
          canConstrain: await canConstrain(given),
          explain: samplingError,
        };
      }
      const lasting = this.#service!;
      const { sampler, service } = await lasting.createSampler(
        given.startsWith("tinker://") ? { modelPath: given } : { baseModel: given },
      );
      const explain = (error: unknown) => {
        if (!lasting.renew(service, error)) return samplingError(error);
        if (this.#models.get(name) === found) this.#models.delete(name);
        return passingError("The server has ended the gateway's session; another one is opened.");
      };
      const text = await this.textOf(sampler);
      return { name, sampler, text, canConstrain: await canConstrain(sampler), explain };
    });
    return found;
  }

  async close(): Promise<void> {
    await this.#service?.close();
  }

  /** The text side of a sampler's model. */
  async textOf(sampler: GatewaySampler): Promise<ModelText> {
    const baseModel = await sampler.getBaseModel();
    return remembered(this.#texts, baseModel, async () => {
      const tokenizer = await sampler.getTokenizer();
      return {
        baseModel,
        tokenizer,
        formats: new ModelFormats(baseModel, tokenizer),
        tokenNames: new TokenNames(tokenizer),
        maxContextLength: await this.#contextOf(baseModel),
      };
    });
  }

  async #contextOf(baseModel: string): Promise<number> {
    const { maxContextLength } = this.#options;
    if (maxContextLength !== undefined) return maxContextLength;
    this.#contextLengths ??= contextLengths(this.#service?.current);
    return (await this.#contextLengths).get(baseModel) ?? USUAL_CONTEXT;
  }
}

/** The text side of a model with the session's own renderer. */
export function withRenderer(text: ModelText, given: Renderer | string): ModelText {
  const { baseModel, tokenizer } = text;
  const renderer = typeof given === "string" ? getRenderer(given, tokenizer) : given;
  return { ...text, formats: new OneFormat(baseModel, tokenizer, renderer) };
}

async function contextLengths(service: GatewayOptions["service"]): Promise<ReadonlyMap<string, number>> {
  const { supportedModels = [] } = (await service?.getServerCapabilities?.()) ?? {};
  return new Map(
    supportedModels.flatMap(({ modelName, maxContextLength }) =>
      modelName && maxContextLength ? [[modelName, maxContextLength] as const] : [],
    ),
  );
}

function remembered<T>(known: Map<string, Promise<T>>, key: string, make: () => Promise<T>): Promise<T> {
  const found = known.get(key);
  if (found !== undefined) return found;
  const making = make();
  known.set(key, making);
  making.catch(() => known.delete(key));
  return making;
}

function isLike(text: string, pattern: string): boolean {
  const parts = pattern.split("*");
  if (parts.length === 1) return text === pattern;
  const [first, last] = [parts[0]!, parts.at(-1)!];
  if (!text.startsWith(first) || !text.endsWith(last) || text.length < first.length + last.length)
    return false;
  let at = first.length;
  for (const part of parts.slice(1, -1)) {
    const found = text.indexOf(part, at);
    if (found === -1 || found + part.length > text.length - last.length) return false;
    at = found + part.length;
  }
  return true;
}
