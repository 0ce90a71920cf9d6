import type { SampleArguments, SamplerSource, SamplingClient, ServiceClient } from "../../clients/index.js";
import type { Tokenizer } from "../../tokenizers/index.js";
import { isTinkerPath, type SampleResponse, type SamplerInfo, wrongValue } from "../../wire/index.js";
import type { LogprobSource } from "../reinforcement/index.js";

/** What is asked of whoever teaches token by token. A SamplingClient has it. */
export interface TeacherSampler extends LogprobSource {
  sample(
    request: SampleArguments,
    options?: { readonly signal?: AbortSignal | undefined },
  ): PromiseLike<SampleResponse>;
}

/** Who teaches: a base model by its name, saved weights by their `tinker://` path, or a sampler. */
export type Teacher = string | SamplingClient;

/** A teacher that can be asked. */
export interface OpenTeacher extends TeacherSampler, AsyncDisposable {
  /** The path or the base model. */
  readonly name: string;
  readonly baseModel: string;
  readonly tokenizer: Tokenizer;
  /** Tokens that it can read, where the server says so. */
  readonly maxLength: number | undefined;
}

/** Refuses what is no teacher, before anything is sent. */
export function checkTeacher(teacher: unknown, field: string): asserts teacher is Teacher {
  if (typeof teacher === "string" && teacher !== "") return;
  if (typeof (teacher as Partial<SamplingClient> | undefined)?.computeLogprobs === "function") return;
  throw wrongValue(field, "the name of a base model, a tinker:// path or a SamplingClient", teacher);
}

/** Where the weights of a teacher come from. */
export function samplerSource(teacher: string): SamplerSource {
  return isTinkerPath(teacher) ? { modelPath: teacher } : { baseModel: teacher };
}

/** Finds a teacher. Whoever calls this closes it. */
export async function openTeacher(
  service: ServiceClient,
  teacher: Teacher,
  signal: AbortSignal | undefined,
): Promise<OpenTeacher> {
  const lender = typeof teacher === "string" ? new SamplerLender(service, teacher) : lend(teacher);
  try {
    const { baseModel, modelPath }: SamplerInfo = await lender.use((sampler) => sampler.getInfo({ signal }));
    const { supportedModels } = await service.getServerCapabilities({ signal });
    const offered = supportedModels.find(({ modelName }) => modelName === baseModel);
    return {
      name: modelPath ?? baseModel,
      maxLength: offered?.maxContextLength ?? undefined,
      baseModel,
      tokenizer: await lender.use((sampler) => sampler.getTokenizer({ signal })),
      sample: (request, options) => lender.use((sampler) => sampler.sample(request, options)),
      computeLogprobs: (prompt, options) => lender.use((sampler) => sampler.computeLogprobs(prompt, options)),
      [Symbol.asyncDispose]: () => lender.close(),
    };
  } catch (error) {
    await lender.close();
    throw error;
  }
}

/** One's own sampler is used as it is, and stays open. */
function lend(sampler: SamplingClient): Pick<SamplerLender, "use" | "close"> {
  return { use: async (call) => call(sampler), close: async () => {} };
}

interface Lent {
  readonly service: ServiceClient;
  readonly sampler: Promise<SamplingClient>;
  users: number;
}

/** A sampler that is made anew after a failure: a server that was restarted knows the old one no more. */
class SamplerLender {
  readonly #service: ServiceClient;
  readonly #teacher: string;
  #lent: Lent | undefined;

  constructor(service: ServiceClient, teacher: string) {
    this.#service = service;
    this.#teacher = teacher;
  }

  async use<R>(call: (sampler: SamplingClient) => PromiseLike<R>): Promise<R> {
    this.#lent ??= this.#lend();
    const lent = this.#lent;
    lent.users += 1;
    try {
      return await call(await lent.sampler);
    } catch (error) {
      if (this.#lent === lent) this.#lent = undefined;
      throw error;
    } finally {
      lent.users -= 1;
      // Not before the last one: to the others, a closed client would hide what went wrong.
      if (this.#lent !== lent && lent.users === 0) await lent.service.close();
    }
  }

  async close(): Promise<void> {
    const lent = this.#lent;
    this.#lent = undefined;
    await lent?.service.close();
  }

  #lend(): Lent {
    const service = this.#service.clone();
    const sampler = service.createSamplingClient(samplerSource(this.#teacher));
    // Whoever asked hears of it.
    sampler.catch(() => {});
    return { service, sampler, users: 0 };
  }
}
