import type { SampleArguments, SamplingClient, ServiceClient } from "../../clients/index.js";
import type { Tokenizer } from "../../tokenizers/index.js";
import { isTinkerPath, type SampleResponse, type SamplerInfo, value } from "../../wire/index.js";
import type { LogprobSource } from "../reinforcement/index.js";
import { ReopeningSampler } from "../runs/reopening-sampler.js";

/** Sampler that teaches token by token; a SamplingClient fits. */
export interface TeacherSampler extends LogprobSource {
  sample(
    request: SampleArguments,
    options?: { readonly signal?: AbortSignal | undefined },
  ): PromiseLike<SampleResponse>;
}

/** A teacher: a base model by name, saved weights by their `tinker://` path, or a sampler. */
export type Teacher = string | SamplingClient;

/** A teacher that is ready to score tokens. */
export interface OpenTeacher extends TeacherSampler, AsyncDisposable {
  /** Path of its weights, or its base model. */
  readonly name: string;
  readonly baseModel: string;
  readonly tokenizer: Tokenizer;
  /** Longest prompt in tokens, if the server states it. */
  readonly maxLength: number | undefined;
}

/** Field type of a teacher in an option table. */
export const teacherField = value<Teacher>(
  "the name of a base model, a tinker:// path or a SamplingClient",
  (given) =>
    (typeof given === "string" && given !== "") ||
    typeof (given as Partial<SamplingClient> | null | undefined)?.computeLogprobs === "function",
);

/** Opens a teacher. The caller closes it. */
export async function openTeacher(
  service: ServiceClient,
  teacher: Teacher,
  signal: AbortSignal | undefined,
): Promise<OpenTeacher> {
  const lender = typeof teacher === "string" ? new ReopeningSampler(service, teacher) : lend(teacher);
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

/** Base model of a teacher that is not open yet. */
export async function baseModelOfTeacher(
  service: ServiceClient,
  teacher: Teacher,
  signal: AbortSignal | undefined,
): Promise<string> {
  if (typeof teacher !== "string") return teacher.getBaseModel({ signal });
  if (!isTinkerPath(teacher)) return teacher;
  return (await service.createRestClient().getWeightsInfo(teacher, { signal })).baseModel;
}

/** A sampler of the caller's is used as it is, and stays open. */
function lend(sampler: SamplingClient): Pick<ReopeningSampler, "use" | "close"> {
  return { use: async (call) => call(sampler), close: async () => {} };
}
