import type { Env } from "hono";
import { z } from "zod";
import { type AnswerToken, AnswerUsage } from "../renderers/answer-events.js";
import { HeldText } from "../tokenizers/held-text.js";
import { DecodeStream } from "../tokenizers/index.js";
import { randomUuid } from "../transport/ids.js";
import type { SampleResponse } from "../wire/sampling/sampling-types.js";
import type { ChatHost } from "./chat-host.js";
import type { ChatModel, PromptEvent } from "./chat-model.js";
import { eventStream, openAiStream } from "./event-stream.js";
import { refuseOf } from "./lenience.js";
import { completionLogprobs, type TextPlace } from "./logprobs.js";
import { OPENAI_PATHS } from "./openai-errors.js";
import { MAX_TOP_LOGPROBS, openAiSettings, readFields, samplingFields, usageJson } from "./openai-request.js";
import { invalidValue } from "./param-error.js";
import { checkTextLength, encodeTexts, roomBehind } from "./prompt-room.js";

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
/** Characters and logprobs of echoed prompts in one answer: `n` repeats each, and an answer is written in one go. */
const MAX_ECHOED_CHARACTERS = 2 ** 22;
const MAX_ECHOED_LOGPROBS = 2 ** 18;

/** A prompt in two forms: as it is sampled from and as it is echoed. */
interface Prompt {
  readonly tokens: readonly number[];
  readonly text: string;
}

/** New text of one choice, with the positions of its tokens. */
interface ChoiceEvent {
  readonly index: number;
  readonly text: string;
  readonly places: readonly TextPlace[];
  readonly finishReason?: "stop" | "length";
}

/** Routes of plain completions: many prompts of text or tokens at once, with logprobs. */
export function addCompletionRoutes<E extends Env>(host: ChatHost<E>): void {
  const { app, clock } = host;
  for (const path of OPENAI_PATHS) {
    app.post(`${path}/completions`, async (call) => {
      const request = readFields(await host.readJson(call), completionSchema, refuseOf(host, call));
      const model = await host.models(call).find(request.model);
      const prompts = await readPrompts(request.prompt, model);
      checkEcho(request, prompts);
      const isScored = typeof request.logprobs === "number";
      const works = prompts.map(({ tokens: prompt }) => ({
        ...openAiSettings(request),
        prompt,
        // An empty prompt cannot be sampled, so one token is added and not shown.
        maxTokens: Math.min(
          Math.max(1, request.max_tokens ?? DEFAULT_MAX_TOKENS),
          roomBehind(prompt.length, model, "prompt"),
        ),
        stopTexts: [request.stop ?? []].flat(),
        topLogprobs: request.logprobs ?? 0,
        scoresPrompt: isScored && request.echo === true,
      }));
      const gone = new AbortController();
      const signal = AbortSignal.any([call.req.raw.signal, gone.signal]);
      // The logprobs of the prompt come first, but are known only when sampling is done.
      const isLive = request.stream === true && !(isScored && request.echo === true);
      const usage = new AnswerUsage(prompts.reduce((sum, prompt) => sum + prompt.tokens.length, 0));
      const samples = model.complete(works, isLive, signal);
      const events = choiceEvents(samples, { request, prompts, text: model, usage });
      const created = Math.floor(clock.wallNow() / 1000);
      const head = { id: `cmpl-${randomUuid()}`, object: "text_completion", created, model: request.model };
      const characterOf = ({ index, text: shown, places, finishReason }: ChoiceEvent) => ({
        index,
        text: shown,
        finish_reason: finishReason ?? null,
        logprobs: isScored ? completionLogprobs(model.tokenNames, places) : null,
      });
      if (request.stream !== true) {
        const choices = (await wholeChoices(events, prompts.length * (request.n ?? 1))).map(characterOf);
        return call.json({ ...head, choices, usage: usageJson(usage) });
      }
      const withUsage = request.stream_options?.include_usage === true;
      async function* chunks() {
        for await (const event of events)
          yield { ...head, choices: [characterOf(event)], ...(withUsage && { usage: null }) };
        if (withUsage) yield { ...head, choices: [], usage: usageJson(usage) };
      }
      return eventStream(host, openAiStream(chunks()), gone);
    });
  }
}

async function readPrompts(given: CompletionRequest["prompt"], model: ChatModel): Promise<Prompt[]> {
  const isOne = typeof given === "string" || typeof given[0] === "number";
  const all = (isOne ? [given] : given) as readonly (string | number[])[];
  const texts = all.filter((prompt) => typeof prompt === "string");
  for (const { length } of texts) checkTextLength(length, model, "prompt");
  const { tokenizer } = model;
  const encoded = await encodeTexts(texts, model);
  return all.map((prompt, index) =>
    typeof prompt === "string"
      ? { text: prompt, tokens: encoded[index]! }
      : { text: tokenizer.decode(prompt), tokens: prompt },
  );
}

function checkEcho({ echo, logprobs, n }: CompletionRequest, prompts: readonly Prompt[]): void {
  const count = n ?? 1;
  if (echo !== true || count * prompts.length === 1) return;
  const echoed = (sizeOf: (prompt: Prompt) => number) =>
    count * prompts.reduce((sum, prompt) => sum + sizeOf(prompt), 0);
  const refuse = (asked: number, what: string, most: number): never => {
    const why = `the prompts are echoed once for each of n = ${count}, which makes ${asked} ${what}, and one answer may have ${most}`;
    throw invalidValue("echo", `echo: ${why}; send fewer at a time`);
  };
  const characters = echoed(({ text }) => text.length);
  if (characters > MAX_ECHOED_CHARACTERS) refuse(characters, "characters", MAX_ECHOED_CHARACTERS);
  if (typeof logprobs !== "number") return;
  const scored = echoed(({ tokens: prompt }) => prompt.length * (1 + logprobs));
  if (scored > MAX_ECHOED_LOGPROBS) refuse(scored, "logprobs", MAX_ECHOED_LOGPROBS);
}

async function* choiceEvents(
  samples: AsyncGenerator<PromptEvent, void, undefined>,
  {
    request,
    prompts,
    text,
    usage,
  }: {
    readonly request: CompletionRequest;
    readonly prompts: readonly Prompt[];
    readonly text: ChatModel;
    readonly usage: AnswerUsage;
  },
): AsyncGenerator<ChoiceEvent, void, undefined> {
  const perPrompt = request.n ?? 1;
  const isEchoed = request.echo === true;
  const isScored = typeof request.logprobs === "number";
  const stops = [request.stop ?? []].flat();
  const responses = new Map<number, SampleResponse>();
  const readers = new Map<number, CompletionReader>();
  for await (const event of samples) {
    const { prompt: promptIndex } = event;
    if (event.type === "response") {
      responses.set(promptIndex, event.response);
      usage.cachedTokens += event.response.promptCacheHitTokens;
      continue;
    }
    const index = promptIndex * perPrompt + event.sample;
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
      const isCut = request.max_tokens === 0 || event.stopReason === "length";
      const finishReason = isCut ? "length" : "stop";
      yield { index, ...reader.end(), finishReason };
    } else if (request.max_tokens !== 0) {
      usage.completionTokens += 1;
      const piece = reader.push(event);
      if (piece !== undefined) yield { index, ...piece };
    }
  }
}

/** A prompt's tokens with their offsets in the text and their logprobs. */
function promptPlaces(
  { tokens: given }: Prompt,
  response: SampleResponse | undefined,
  text: ChatModel,
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

/** Turns a sample's tokens into text without special tokens, up to a stop text, which is not shown. */
class CompletionReader {
  readonly #decoder: DecodeStream;
  readonly #text: HeldText;
  #textOffset: number;
  #places: TextPlace[] = [];

  constructor({ tokenizer }: ChatModel, stops: readonly string[], textOffset: number) {
    this.#decoder = new DecodeStream(tokenizer, { skipSpecialTokens: true });
    this.#text = new HeldText(stops);
    this.#textOffset = textOffset;
  }

  /** Undefined while no text can be shown. */
  push({ scored: [id, logprob], top }: AnswerToken): Pick<ChoiceEvent, "text" | "places"> | undefined {
    this.#places.push({ token: id, logprob, top, textOffset: this.#textOffset });
    const decoded = this.#decoder.push(id);
    this.#textOffset += decoded.length;
    const text = this.#text.push(decoded);
    return text === "" ? undefined : { text, places: this.#takePlaces() };
  }

  /** Text that was held back, unless a stop text begins in it. */
  end(): Pick<ChoiceEvent, "text" | "places"> {
    const shown = this.#text.push(this.#decoder.end());
    return { text: shown + this.#text.end(), places: this.#takePlaces() };
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
