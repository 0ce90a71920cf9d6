import { randomUUID } from "node:crypto";
import { z } from "zod";
import { HeldText } from "../../../renderers/held-text.js";
import { DecodeStream } from "../../../tokenizers/index.js";
import type { SampleResponse } from "../../../wire/sampling/sampling-types.js";
import type { App } from "../http/route.js";
import type { CompletionServices } from "./chat-completions.js";
import { eventStream } from "./event-stream.js";
import { completionLogprobs, type TextPlace } from "./logprobs.js";
import { findModel } from "./models.js";
import { OPENAI_PATHS } from "./openai-errors.js";
import { MAX_TOP_LOGPROBS, readRequest, samplingFields } from "./openai-request.js";
import { checkTextLength, sampleWork } from "./sample-work.js";
import { type SampleEvent, sampleEvents } from "./sampled-tokens.js";
import type { TextModel } from "./text-models.js";
import { Usage } from "./usage.js";

const MAX_PROMPTS = 1024;

const token = z.number().int().nonnegative();
const tokens = z.array(token).min(1);

const completionSchema = z.object({
  ...samplingFields,
  prompt: z.union(
    [
      z.string(),
      z.array(z.string()).min(1).max(MAX_PROMPTS),
      tokens,
      z.array(tokens).min(1).max(MAX_PROMPTS),
    ],
    { error: `must be a text, a list of tokens, or at most ${MAX_PROMPTS} of either` },
  ),
  max_tokens: z.number().int().nonnegative().nullish(),
  echo: z.boolean().nullish(),
  logprobs: z.number().int().min(0).max(MAX_TOP_LOGPROBS).nullish(),
});

type CompletionRequest = z.output<typeof completionSchema>;

const DEFAULT_MAX_TOKENS = 16;

/** A prompt as it is sampled from and as it is echoed. */
interface Prompt {
  readonly tokens: readonly number[];
  readonly text: string;
}

/** What happens to one choice: text to show, with the places of its tokens. */
interface ChoiceEvent {
  readonly index: number;
  readonly text: string;
  readonly places: readonly TextPlace[];
  readonly finishReason?: "stop" | "length";
}

/** Plain completions of texts and tokens, many at once, with what is known of each token. */
export function addCompletionRoutes(app: App, services: CompletionServices): void {
  const { clock, reader, textModelOf } = services;
  for (const path of OPENAI_PATHS) {
    app.post(`${path}/completions`, async (call) => {
      const request = await readRequest(call, reader, completionSchema);
      const identity = call.get("identity");
      const model = findModel(services, identity, request.model);
      const text = await textModelOf(model.info);
      const prompts = await readPrompts(request.prompt, text);
      const isScored = typeof request.logprobs === "number";
      const works = prompts.map((prompt) =>
        sampleWork(request, model.info, {
          prompt: prompt.tokens,
          promptParam: "prompt",
          // Nothing at all cannot be sampled: one token is, and is not shown.
          maxTokens: Math.max(1, request.max_tokens ?? DEFAULT_MAX_TOKENS),
          stopTexts: [request.stop ?? []].flat(),
          topLogprobs: request.logprobs ?? 0,
          scoresPrompt: isScored && request.echo === true,
        }),
      );
      const gone = new AbortController();
      const signal = AbortSignal.any([call.req.raw.signal, gone.signal]);
      // The logprobs of a prompt, which stand first, are known when its samples are done.
      const isLive = request.stream === true && !(isScored && request.echo === true);
      const usage = new Usage();
      usage.promptTokens = prompts.reduce((sum, prompt) => sum + prompt.tokens.length, 0);
      const samples = sampleEvents(services, { identity, model, works, isLive, signal });
      const events = choiceEvents(samples, { request, prompts, text, usage });
      const created = Math.floor(clock.wallNow() / 1000);
      const head = { id: `cmpl-${randomUUID()}`, object: "text_completion", created, model: request.model };
      const choiceOf = ({ index, text: shown, places, finishReason }: ChoiceEvent) => ({
        index,
        text: shown,
        finish_reason: finishReason ?? null,
        logprobs: isScored ? completionLogprobs(text.tokenNames, places) : null,
      });
      if (request.stream !== true) {
        const choices = (await wholeChoices(events, prompts.length * (request.n ?? 1))).map(choiceOf);
        return call.json({ ...head, choices, usage: usage.toJson() });
      }
      const withUsage = request.stream_options?.include_usage === true;
      async function* chunks() {
        for await (const event of events)
          yield { ...head, choices: [choiceOf(event)], ...(withUsage && { usage: null }) };
        if (withUsage) yield { ...head, choices: [], usage: usage.toJson() };
      }
      return eventStream(chunks(), gone);
    });
  }
}

async function readPrompts(
  given: CompletionRequest["prompt"],
  { info, tokenizer }: TextModel,
): Promise<Prompt[]> {
  const isOne = typeof given === "string" || typeof given[0] === "number";
  const all = (isOne ? [given] : given) as readonly (string | number[])[];
  const texts = all.filter((prompt) => typeof prompt === "string");
  for (const { length } of texts) checkTextLength(length, info, "prompt");
  const encoded = await tokenizer.encodeBatch(texts);
  return all.map((prompt, index) =>
    typeof prompt === "string"
      ? { text: prompt, tokens: encoded[index]! }
      : { text: tokenizer.decode(prompt), tokens: prompt },
  );
}

async function* choiceEvents(
  samples: AsyncGenerator<SampleEvent, void, undefined>,
  {
    request,
    prompts,
    text,
    usage,
  }: {
    readonly request: CompletionRequest;
    readonly prompts: readonly Prompt[];
    readonly text: TextModel;
    readonly usage: Usage;
  },
): AsyncGenerator<ChoiceEvent, void, undefined> {
  const perPrompt = request.n ?? 1;
  const isEchoed = request.echo === true;
  const isScored = typeof request.logprobs === "number";
  const stops = [request.stop ?? []].flat();
  const responses = new Map<number, SampleResponse>();
  const readers = new Map<number, CompletionReader>();
  for await (const event of samples) {
    if (event.type === "prompt") {
      responses.set(event.prompt, event.response);
      usage.cachedTokens += event.response.promptCacheHitTokens;
      continue;
    }
    const { index } = event;
    const promptIndex = Math.floor(index / perPrompt);
    const prompt = prompts[promptIndex]!;
    let reader = readers.get(index);
    if (reader === undefined) {
      reader = new CompletionReader(text, stops, isEchoed ? prompt.text.length : 0);
      readers.set(index, reader);
      if (isEchoed) {
        const response = responses.get(promptIndex);
        yield { index, text: prompt.text, places: isScored ? promptPlaces(prompt, response, text) : [] };
      }
    }
    if (event.type === "end") {
      const finishReason = request.max_tokens === 0 ? "length" : event.stopReason;
      yield { index, ...reader.end(), finishReason };
    } else if (request.max_tokens !== 0) {
      usage.completionTokens += 1;
      const piece = reader.push(event);
      if (piece !== undefined) yield { index, ...piece };
    }
  }
}

/** A prompt's tokens, where they begin in its text, and how likely each was. */
function promptPlaces(
  { tokens: given }: Prompt,
  response: SampleResponse | undefined,
  text: TextModel,
): TextPlace[] {
  const decoder = new DecodeStream(text.tokenizer);
  let textOffset = 0;
  return given.map((id, place) => {
    const begin = textOffset;
    textOffset += decoder.push(id).length;
    return {
      token: id,
      logprob: response?.promptLogprobs?.[place] ?? null,
      top: response?.topkPromptLogprobs?.[place] ?? [],
      textOffset: begin,
    };
  });
}

/** Turns a sample's tokens into text without special ones, up to a stop text, which is never shown. */
class CompletionReader {
  readonly #decoder: DecodeStream;
  readonly #text: HeldText;
  #textOffset: number;
  #places: TextPlace[] = [];

  constructor({ tokenizer }: TextModel, stops: readonly string[], textOffset: number) {
    this.#decoder = new DecodeStream(tokenizer, { skipSpecialTokens: true });
    this.#text = new HeldText(stops);
    this.#textOffset = textOffset;
  }

  /** Undefined while nothing can be shown. */
  push({
    scored: [id, logprob],
    top,
  }: Extract<SampleEvent, { type: "token" }>): Pick<ChoiceEvent, "text" | "places"> | undefined {
    this.#places.push({ token: id, logprob, top, textOffset: this.#textOffset });
    const decoded = this.#decoder.push(id);
    this.#textOffset += decoded.length;
    const text = this.#text.push(decoded);
    return text === "" ? undefined : { text, places: this.#takePlaces() };
  }

  /** What was held back, unless a stop text did it. */
  end(): Pick<ChoiceEvent, "text" | "places"> {
    const shown = this.#text.push(this.#decoder.end());
    return { text: shown + (this.#text.isFound ? "" : this.#text.rest), places: this.#takePlaces() };
  }

  #takePlaces(): TextPlace[] {
    const places = this.#places;
    this.#places = [];
    return places;
  }
}

async function wholeChoices(
  events: AsyncGenerator<ChoiceEvent, void, undefined>,
  count: number,
): Promise<ChoiceEvent[]> {
  const choices = Array.from({ length: count }, (_, index) => ({
    index,
    text: "",
    places: [] as TextPlace[],
    finishReason: "stop" as "stop" | "length",
  }));
  for await (const { index, text, places, finishReason } of events) {
    const choice = choices[index]!;
    choice.text += text;
    choice.places.push(...places);
    choice.finishReason = finishReason ?? choice.finishReason;
  }
  return choices;
}
