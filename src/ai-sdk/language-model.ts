import type { SamplingClient } from "../clients/index.js";
import { randomUuid } from "../transport/ids.js";
import { linkSignals } from "../transport/link-signals.js";
import { checkKeys } from "../wire/fields/check-keys.js";
import { endingOf } from "./answer-ending.js";
import { PROVIDER } from "./answer-metadata.js";
import { AnswerParts } from "./answer-parts.js";
import { type ModelSettings, prepareCall } from "./prepare-call.js";
import type { CallOptions, Content, GenerateResult, StreamPart, StreamResult } from "./specification.js";

/** What a model needs of a sampler: a SamplingClient has it. */
export type ModelSampler = Pick<
  SamplingClient,
  "sample" | "stream" | "getBaseModel" | "getTokenizer" | "samplingSessionId"
>;

/** How a model is used. */
export interface TinkertsModelOptions extends ModelSettings {
  /** The name that results carry. Default: the id of the sampling session. */
  readonly modelId?: string | undefined;
}

const SETTING_KEYS: ReadonlySet<string> = new Set([
  "renderer",
  "declareTools",
] satisfies (keyof ModelSettings)[]);

/** A language model of the AI SDK 6 and 7. */
export interface TinkertsModel {
  readonly specificationVersion: "v3";
  readonly provider: string;
  readonly modelId: string;
  readonly supportedUrls: Record<string, RegExp[]>;
  doGenerate(options: CallOptions): Promise<GenerateResult>;
  doStream(options: CallOptions): Promise<StreamResult>;
}

/** A language model for the AI SDK that answers with a sampler. */
export function tinkertsModel(sampler: ModelSampler, options: TinkertsModelOptions = {}): TinkertsModel {
  const { modelId = sampler.samplingSessionId, ...settings } = options;
  return modelOver(async () => sampler, modelId, settings);
}

/** The same with a sampler that is made when the model is first asked. */
export function modelOver(
  getSampler: () => Promise<ModelSampler>,
  modelId: string,
  settings: ModelSettings,
): TinkertsModel {
  checkKeys(settings, SETTING_KEYS, "");

  async function prepare(call: CallOptions, signal: AbortSignal | undefined) {
    const sampler = await getSampler();
    const prepared = await prepareCall(sampler, settings, call);
    const { prompt, samplingParams } = prepared;
    // The name of the AI SDK would take the place of ours.
    const { "user-agent": _, ...headers } = call.headers ?? {};
    return { sampler, prepared, request: { prompt, samplingParams }, requestOptions: { signal, headers } };
  }

  const newResponse = () => ({ id: randomUuid(), timestamp: new Date(), modelId });

  async function generate(call: CallOptions): Promise<GenerateResult> {
    const { sampler, prepared, request, requestOptions } = await prepare(call, call.abortSignal);
    const response = await sampler.sample(request, requestOptions);
    const parts = new AnswerParts(prepared);
    const pushed = [...response.sequences[0]!.tokens].flatMap((token) => parts.push(token));
    const content = contentOf([...pushed, ...parts.end()]);
    const { warnings } = prepared;
    return { content, ...endingOf(prepared, response, parts), warnings, response: newResponse() };
  }

  async function* stream({
    sampler,
    prepared,
    request,
    requestOptions,
  }: Awaited<ReturnType<typeof prepare>>): AsyncGenerator<StreamPart, void, undefined> {
    yield { type: "stream-start", warnings: prepared.warnings };
    yield { type: "response-metadata", ...newResponse() };
    const parts = new AnswerParts(prepared);
    const sampled = sampler.stream(request, requestOptions);
    for await (const { token } of sampled) yield* parts.push(token);
    yield* parts.end();
    yield { type: "finish", ...endingOf(prepared, await sampled.result, parts) };
  }

  return {
    specificationVersion: "v3",
    provider: PROVIDER,
    modelId,
    supportedUrls: {},
    doGenerate: (call) =>
      generate(call).catch((error: unknown) => {
        throw abortReason(call) ?? error;
      }),
    doStream: async (call) => {
      const leaving = new AbortController();
      const { signal, release } = linkSignals(call.abortSignal, leaving.signal);
      const leave = (reason?: unknown) => {
        leaving.abort(reason);
        release();
      };
      try {
        return { stream: streamOf(stream(await prepare(call, signal)), call, leave) };
      } catch (error) {
        leave();
        throw abortReason(call) ?? error;
      }
    },
  };
}

/** The AI SDK knows an abort by the error of its own signal. */
function abortReason({ abortSignal }: CallOptions): unknown {
  return abortSignal?.aborted ? abortSignal.reason : undefined;
}

/** `leave` is called once nothing more is wanted, and makes the server stop. */
function streamOf(
  parts: AsyncGenerator<StreamPart, void, undefined>,
  call: CallOptions,
  leave: (reason?: unknown) => void,
): ReadableStream<StreamPart> {
  return new ReadableStream({
    async pull(controller) {
      try {
        const { value, done } = await parts.next();
        if (!done) return controller.enqueue(value);
        controller.close();
      } catch (error) {
        const reason = abortReason(call);
        if (reason !== undefined) controller.error(reason);
        else {
          controller.enqueue({ type: "error", error });
          controller.close();
        }
      }
      leave();
    },
    cancel: leave,
  });
}

/** The blocks of a stream as whole parts. */
function contentOf(parts: readonly StreamPart[]): Content[] {
  const content: Content[] = [];
  for (const part of parts) {
    const last = content.at(-1);
    if (part.type === "tool-call") content.push(part);
    else if (part.type === "text-start") content.push({ type: "text", text: "" });
    else if (part.type === "reasoning-start") content.push({ type: "reasoning", text: "" });
    else if (part.type === "text-delta" || part.type === "reasoning-delta") {
      if (last !== undefined && "text" in last) last.text += part.delta;
    }
  }
  return content;
}
