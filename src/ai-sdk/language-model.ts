import type { SamplingClient } from "../clients/index.js";
import { Answers } from "../renderers/answer-events.js";
import { samplerSource } from "../renderers/token-source.js";
import { randomUuid } from "../transport/ids.js";
import { linkSignals } from "../transport/link-signals.js";
import { anyText, type FieldsOf, optional, optionTable } from "../wire/index.js";
import { endingOf } from "./answer-ending.js";
import { PROVIDER } from "./answer-metadata.js";
import { AnswerParts, contentOf } from "./answer-parts.js";
import { MODEL_SETTINGS, type ModelSettings, prepareCall } from "./prepare-call.js";
import type { CallOptions, GenerateResult, StreamPart, StreamResult } from "./specification.js";

/** Sampler that a language model needs; a SamplingClient fits. */
export type ModelSampler = Pick<
  SamplingClient,
  "sample" | "stream" | "getBaseModel" | "getTokenizer" | "samplingSessionId"
>;

/** Settings of a model for all its calls. */
export interface TinkertsModelOptions extends ModelSettings {
  /** Model name in results. Default: the id of the sampling session. */
  readonly modelId?: string | undefined;
}

const MODEL_OPTIONS = optionTable({
  ...MODEL_SETTINGS,
  modelId: optional(anyText),
} satisfies FieldsOf<TinkertsModelOptions>);

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
  const { modelId = sampler.samplingSessionId, ...settings } = MODEL_OPTIONS.check(options, "tinkertsModel");
  return modelOver(async () => sampler, modelId, settings);
}

/** Makes a language model whose sampler is created when the model is first used. */
export function modelOver(
  getSampler: () => Promise<ModelSampler>,
  modelId: string,
  settings: ModelSettings,
): TinkertsModel {
  async function prepare(call: CallOptions) {
    const sampler = await getSampler();
    // The AI SDK's user agent would replace ours.
    const { "user-agent": _, ...headers } = call.headers ?? {};
    return { ...(await prepareCall(sampler, settings, call)), source: samplerSource(sampler, headers) };
  }

  const newResponse = () => ({ id: randomUuid(), timestamp: new Date(), modelId });

  async function generate(call: CallOptions): Promise<GenerateResult> {
    const { source, prepared, settings: sampling, warnings } = await prepare(call);
    const answers = new Answers(source, prepared, { ...sampling, isLive: false, signal: call.abortSignal });
    const [answer] = await answers.whole();
    const content = answer!.pieces.flatMap(contentOf);
    return { content, ...endingOf(prepared, answers, answer!.hasCalls), warnings, response: newResponse() };
  }

  async function* stream(
    { source, prepared, settings: sampling, warnings }: Awaited<ReturnType<typeof prepare>>,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<StreamPart, void, undefined> {
    yield { type: "stream-start", warnings };
    yield { type: "response-metadata", ...newResponse() };
    const answers = new Answers(source, prepared, { ...sampling, isLive: true, signal });
    const parts = new AnswerParts();
    let calls = false;
    for await (const { piece, hasCalls = false } of answers) {
      if (piece !== undefined) yield* parts.next(piece);
      calls ||= hasCalls;
    }
    yield* parts.end();
    yield { type: "finish", ...endingOf(prepared, answers, calls) };
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
        return { stream: streamOf(stream(await prepare(call), signal), call, leave) };
      } catch (error) {
        leave();
        throw abortReason(call) ?? error;
      }
    },
  };
}

/** The AI SDK reports an abort with the error of its own signal. */
function abortReason({ abortSignal }: CallOptions): unknown {
  return abortSignal?.aborted ? abortSignal.reason : undefined;
}

/** Calls `leave` when the reader stops, so that the server stops sampling. */
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
