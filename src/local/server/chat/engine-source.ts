import { ParamError, type PromptEvent } from "../../../chat-api/index.js";
import { ConversationError } from "../../../renderers/prepare-answer.js";
import {
  ReportedSamples,
  type ScoredToken,
  type TokenEvent,
  type TokenSource,
} from "../../../renderers/token-source.js";
import type { SampledToken } from "../../engine/engine.js";
import { isSchemaRefusal, isToolRefusal } from "../../engine/sampling/json/steps.js";
import { HttpError } from "../http/http-error.js";
import type { RequestOwner } from "../http/route.js";
import { jobAlone, type SampleJob } from "../sampling/sample-call.js";
import type { Drawing, SampleRuns } from "../sampling/sample-runs.js";
import type { SampledModel } from "../sampling/sampling-sessions.js";
import { promptCall } from "./prompt-call.js";

/** Owner and model of a request, and the sampler for it. */
export interface EngineUse {
  readonly sampleRuns: SampleRuns;
  readonly identity: RequestOwner;
  readonly model: SampledModel;
}

/** The engine of this server as a token source for one model. */
export function engineSource(use: EngineUse): TokenSource {
  const { info } = use.model;
  return {
    sample: ({ prompt, ...stops }, { isLive, signal, ...settings }) => {
      const call = promptCall(info, "messages", { ...stops, ...settings, prompt: prompt.toInts() });
      return drawSamples(use, [call], isLive, signal);
    },
  };
}

/** Logprobs of one request, unless it is for one sample of one prompt: each is written as text. */
const MAX_LOGPROBS = 2 ** 18;
/** How long events are passed on before other requests get a turn. */
const MAX_STEP_MS = 10;

function checkLogprobs(calls: readonly SampleJob["call"][]): void {
  const ofCall = ({ prompt, numSamples, maxTokens, ...call }: SampleJob["call"]) =>
    (call.promptLogprobs ? prompt.length * (1 + call.topkPromptLogprobs) : 0) +
    numSamples * maxTokens * call.topkSampleLogprobs;
  const count = calls.reduce((sum, call) => sum + ofCall(call), 0);
  const isOne = calls.length === 1 && calls[0]!.numSamples === 1;
  if (isOne || count <= MAX_LOGPROBS) return;
  const why = `logprobs: the request asks for ${count}, and may have ${MAX_LOGPROBS} when it is for several prompts or samples; send fewer at a time`;
  throw new ParamError(400, "invalid_value", why, "logprobs");
}

/** Draws samples of some prompts and yields their events; ending the iteration cancels them. */
export async function* drawSamples(
  { sampleRuns, identity, model }: EngineUse,
  calls: readonly SampleJob["call"][],
  isLive: boolean,
  signal: AbortSignal | undefined,
): AsyncGenerator<PromptEvent, void, undefined> {
  checkLogprobs(calls);
  const drawings: Drawing[] = [];
  const waiting: PromptEvent[] = [];
  let unfinished = calls.length;
  let failure: unknown;
  let wake = () => {};
  const cancel = () => {
    for (const drawing of drawings) drawing.cancel();
  };
  const fail = (error: unknown) => {
    failure ??=
      error instanceof HttpError && isSchemaRefusal(error.message)
        ? new ConversationError(
            isToolRefusal(error.message) ? "tools" : "responseFormat",
            `cannot be used: ${error.message}`,
            {
              isUnsupported: false,
            },
          )
        : error;
    cancel();
    wake();
  };
  const leave = () => fail(new HttpError(503, "The request was cancelled before its answer was ready."));
  if (signal?.aborted) leave();
  signal?.addEventListener("abort", leave, { once: true });
  try {
    for (const [prompt, call] of calls.entries()) {
      const reported = new ReportedSamples();
      const tell = (events: readonly TokenEvent[]) => {
        waiting.push(...events.map((event) => ({ ...event, prompt })));
        wake();
      };
      const onToken = ({ index, token, logprob, topk, stopReason }: SampledToken) => {
        const top = Array.from(topk?.tokens ?? [], (id, place): ScoredToken => [id, topk!.logprobs[place]!]);
        tell(reported.next(index, [token, logprob], top, stopReason));
      };
      const job = jobAlone(identity, model, call, isLive ? { onToken } : {});
      const drawing = sampleRuns.draw(job);
      drawings.push(drawing);
      drawing.result.then((response) => {
        unfinished -= 1;
        tell(reported.rest(response));
      }, fail);
    }
    let pauseMs = performance.now() + MAX_STEP_MS;
    for (;;) {
      for (const event of waiting.splice(0)) {
        yield event;
        if (performance.now() < pauseMs) continue;
        await new Promise((resolve) => setImmediate(resolve));
        pauseMs = performance.now() + MAX_STEP_MS;
      }
      if (waiting.length > 0) continue;
      if (failure !== undefined) throw failure;
      if (unfinished === 0) return;
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  } finally {
    signal?.removeEventListener("abort", leave);
    cancel();
  }
}
