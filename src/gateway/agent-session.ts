import {
  type ChatTurn,
  type PlainPrompt,
  type PromptEvent,
  roomBehind,
  type SentConversation,
} from "../chat-api/index.js";
import { HttpError } from "../http-error.js";
import type { Renderer } from "../renderers/renderer.js";
import {
  ReportedSamples,
  samplerSource,
  type TokenEvent,
  type TokenSource,
} from "../renderers/token-source.js";
import type { Clock } from "../transport/clock.js";
import { linkSignals } from "../transport/link-signals.js";
import { ModelInput, type SampleResponse } from "../wire/index.js";
import { ConversationTree } from "./conversation-tree.js";
import type { GatewaySession, SessionOptions } from "./gateway.js";
import { keptAnswer } from "./kept-answer.js";
import type { GatewayModel } from "./models.js";
import { type ForeignAnswer, PassedThreads } from "./passed-threads.js";
import { PlainThreads } from "./plain-threads.js";
import { finalError } from "./sampling-error.js";
import { chatAnswer, type SessionAnswer } from "./session-answer.js";
import type { SessionEnd, SessionRecord, SessionThread } from "./session-record.js";

/** The parts of its gateway that a session uses. */
export interface SessionHost {
  readonly clock: Clock;
  readonly baseURL: string;
  readonly apiKey: string;
  /** Bytes that one session may hold. */
  readonly maxBytes: number;
  /** Called with each request that can be answered. */
  readonly onOpen: (session: AgentSession) => void;
  /** Called after each answer, before the agent has read its end. */
  readonly onAnswer: (session: AgentSession, answer: SessionAnswer) => Promise<void>;
  readonly onReward: (session: AgentSession, reward: number) => void;
  readonly onEnd: (session: AgentSession) => Promise<void>;
}

/** The model of a request, and the age of its weights. */
export interface AskedModel {
  readonly model: GatewayModel;
  readonly step: number | undefined;
}

/** A request that another service answers. */
export interface PassingRequest {
  /** Aborted when the agent is gone or the session over. */
  readonly signal: AbortSignal;
  /** Called with each complete answer. */
  answered(answers: readonly ForeignAnswer[]): Promise<void>;
  release(): void;
}

interface TokenBounds {
  readonly maxTokens?: number | undefined;
  readonly temperature?: number | undefined;
  readonly topP?: number | undefined;
}

/** A session while it is open, and its record afterwards. */
export class AgentSession implements GatewaySession {
  readonly id: string;
  readonly options: SessionOptions;
  readonly baseURL: string;
  readonly anthropicBaseURL: string;
  readonly apiKey: string;
  readonly startedAt: number;
  lastUsed: number;
  readonly #host: SessionHost;
  readonly #tree = new ConversationTree();
  readonly #plain = new PlainThreads();
  readonly #passed = new PassedThreads();
  readonly #over = new AbortController();
  readonly #ignored = new Set<string>();
  readonly #counts = { requests: 0, failures: 0, unfinished: 0, sampledTokens: 0 };
  readonly #releases: (() => void)[] = [];
  #underWay = 0;
  #reward: number | undefined;
  #end: { readonly reason: SessionEnd; readonly at: number; readonly done: Promise<void> } | undefined;

  constructor(id: string, options: SessionOptions, host: SessionHost) {
    this.id = id;
    this.options = options;
    this.#host = host;
    this.baseURL = `${host.baseURL}/s/${id}/v1`;
    this.anthropicBaseURL = `${host.baseURL}/s/${id}/anthropic`;
    this.apiKey = host.apiKey;
    this.startedAt = host.clock.wallNow();
    this.lastUsed = host.clock.now();
    const { signal, limits } = options;
    const finish = (reason: SessionEnd) => void this.end(reason);
    if (limits?.maxDurationMs !== undefined)
      this.#releases.push(
        host.clock.setTimer(() => finish("time_limit"), limits.maxDurationMs, { background: true }),
      );
    const gone = () => finish("owner_gone");
    signal?.addEventListener("abort", gone, { once: true });
    this.#releases.push(() => signal?.removeEventListener("abort", gone));
    if (signal?.aborted) gone();
  }

  /** Whether a request is being answered. */
  get isBusy(): boolean {
    return this.#underWay > 0;
  }

  /** Why it is over; undefined while it is open. */
  get endReason(): SessionEnd | undefined {
    return this.#end?.reason;
  }

  get isOver(): boolean {
    return this.#end !== undefined;
  }

  /** Number of this session's answers that a conversation contains. */
  depthOf(conversation: SentConversation): number {
    return Math.max(this.#tree.depthOf(conversation), this.#passed.depthOf(conversation));
  }

  /** Throws where the session is over, or may have no more requests. */
  checkOpen(): void {
    if (this.#end !== undefined) throw finalError(`Session ${this.id} is over (${this.#end.reason}).`);
    const { maxRequests = Number.POSITIVE_INFINITY } = this.options.limits ?? {};
    if (this.#counts.requests >= maxRequests && !this.isBusy) this.#stop("request_limit");
  }

  failed(): void {
    this.#counts.failures += 1;
  }

  ignored(param: string): void {
    if (this.#ignored.size < 100) this.#ignored.add(param);
  }

  /** A request of this session on its way to the model. */
  open({ model, step }: AskedModel, conversation: SentConversation, renderer: Renderer): ChatTurn {
    this.checkOpen();
    const opened = this.#tree.open(renderer, conversation);
    const prepared = keptAnswer(opened.prepared, model);
    this.#begun();
    return {
      prepared,
      source: this.#source(model),
      answered: async (answer) => {
        // The record was returned at the end of the session, so later answers are not added.
        if (this.#end !== undefined) return;
        const origin = { model: model.name, step, at: this.#host.clock.wallNow() };
        await this.#told(chatAnswer(this.#tree.add(opened, answer, origin), model.text.baseModel));
      },
    };
  }

  /** A request of this session on its way to another service; without a conversation it is not remembered. */
  pass(conversation: SentConversation | undefined, signal: AbortSignal): PassingRequest {
    this.checkOpen();
    const opened = conversation && this.#passed.open(conversation);
    this.#begun();
    const work = this.#begin(1, signal);
    return {
      signal: work.signal,
      answered: async (answers) => {
        work.ended = 1;
        if (this.#end !== undefined || opened === undefined) return;
        for (const answer of answers)
          await this.#told(this.#passed.add(opened, answer, this.#host.clock.wallNow()));
      },
      release: work.release,
    };
  }

  /** Samples of plain prompts. */
  async *complete(
    { model, step }: AskedModel,
    prompts: readonly PlainPrompt[],
    signal: AbortSignal | undefined,
  ): AsyncGenerator<PromptEvent, void, undefined> {
    this.checkOpen();
    this.#begun();
    for (const [index, plain] of prompts.entries()) {
      const { prompt, stopTexts, scoresPrompt, numSamples, topLogprobs, ...settings } = plain;
      const response = await this.#during(model, numSamples ?? 1, signal, async (linked) => {
        const found: SampleResponse = await model.sampler.sample(
          {
            prompt: ModelInput.fromInts(prompt),
            numSamples,
            samplingParams: { ...this.#settings(settings), stop: stopTexts },
            ...(topLogprobs && { topkSampleLogprobs: topLogprobs }),
            ...(scoresPrompt && { includePromptLogprobs: true, topkPromptLogprobs: topLogprobs ?? 0 }),
          },
          { signal: linked },
        );
        checkLogprobs({ type: "response", response: found });
        return found;
      });
      for (const sequence of response.sequences) {
        this.#counts.sampledTokens += sequence.tokens.length;
        if (this.#end !== undefined) continue;
        const origin = { model: model.name, step, at: this.#host.clock.wallNow() };
        await this.#told(this.#plain.add(prompt, sequence, origin, model.text.baseModel));
      }
      for (const event of new ReportedSamples().rest(response)) yield { ...event, prompt: index };
    }
  }

  /** The model's tokens, within the limits of the session, until it ends. */
  #source(model: GatewayModel): TokenSource {
    const session = this;
    return {
      async *sample(prepared, { signal, ...settings }) {
        const room = roomBehind(prepared.prompt.length, { ...model.text, name: model.name }, "messages");
        const given = session.#settings({
          ...settings,
          maxTokens: Math.min(settings.maxTokens ?? room, room),
        });
        const work = session.#begin(settings.numSamples ?? 1, signal);
        try {
          const source = samplerSource(model.sampler, {}, model.canConstrain);
          for await (const event of source.sample(prepared, { ...settings, ...given, signal: work.signal })) {
            checkLogprobs(event);
            if (event.type === "token") session.#counts.sampledTokens += 1;
            if (event.type === "end") work.ended += 1;
            yield event;
          }
        } catch (error) {
          session.checkOpen();
          throw model.explain(error);
        } finally {
          work.release();
        }
      },
    };
  }

  /** Settings of a request within the limits of the session. */
  #settings<T extends TokenBounds>(settings: T): T {
    const { limits = {}, sampling = {} } = this.options;
    const left = (limits.maxTokens ?? Number.POSITIVE_INFINITY) - this.#counts.sampledTokens;
    if (left <= 0) this.#stop("token_limit");
    const bounds = [settings.maxTokens, left, limits.maxTokensPerAnswer].filter((each) => each !== undefined);
    const maxTokens = Math.min(...bounds);
    return {
      ...settings,
      temperature: settings.temperature ?? sampling.temperature,
      topP: settings.topP ?? sampling.topP,
      ...(Number.isFinite(maxTokens) && { maxTokens }),
    };
  }

  async #during<T>(
    model: GatewayModel,
    samples: number,
    signal: AbortSignal | undefined,
    run: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const work = this.#begin(samples, signal);
    try {
      const result = await run(work.signal);
      work.ended = samples;
      return result;
    } catch (error) {
      this.checkOpen();
      throw model.explain(error);
    } finally {
      work.release();
    }
  }

  #begin(samples: number, signal: AbortSignal | undefined) {
    const link = linkSignals(signal, this.#over.signal);
    this.#underWay += 1;
    const work = {
      signal: link.signal as AbortSignal,
      ended: 0,
      release: () => {
        link.release();
        this.#counts.unfinished += samples - work.ended;
        this.#underWay -= 1;
        this.lastUsed = this.#host.clock.now();
      },
    };
    return work;
  }

  #begun(): void {
    this.#counts.requests += 1;
    this.lastUsed = this.#host.clock.now();
    this.#host.onOpen(this);
  }

  async #told(answer: SessionAnswer): Promise<void> {
    await this.#host.onAnswer(this, answer);
    if (this.#tree.bytes + this.#plain.bytes + this.#passed.bytes > this.#host.maxBytes)
      void this.end("token_limit");
  }

  setReward(reward: number): void {
    this.#reward = reward;
    this.#host.onReward(this, reward);
  }

  record(): SessionRecord {
    return { ...this.summary(), threads: this.#threads() };
  }

  /** The record without its threads. */
  summary(): Omit<SessionRecord, "threads"> {
    const { problem, group, step, tags = [] } = this.options;
    return {
      id: this.id,
      ...(problem !== undefined && { problem }),
      ...(group !== undefined && { group }),
      ...(step !== undefined && { step }),
      tags,
      startedAt: this.startedAt,
      ...(this.#end && { end: this.#end.reason, endedAt: this.#end.at }),
      ...(this.#reward !== undefined && { reward: this.#reward }),
      counts: { ...this.#counts },
      ignored: [...this.#ignored],
    };
  }

  #threads(): readonly SessionThread[] {
    const threads = [...this.#tree.threads(), ...this.#passed.threads()];
    return [...threads, ...this.#plain.threads(threads.length === 0)];
  }

  async end(reason: SessionEnd = "ended"): Promise<SessionRecord> {
    if (this.#end === undefined) {
      let finished = () => {};
      const done = new Promise<void>((resolve) => {
        finished = resolve;
      });
      this.#end = { reason, at: this.#host.clock.wallNow(), done };
      for (const release of this.#releases.splice(0)) release();
      this.#over.abort(finalError(`Session ${this.id} is over (${reason}).`));
      try {
        await this.#host.onEnd(this);
      } finally {
        finished();
      }
    } else await this.#end.done;
    return this.record();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.end();
  }

  #stop(reason: SessionEnd): never {
    void this.end(reason);
    throw finalError(`Session ${this.id} is over (${reason}).`);
  }
}

function checkLogprobs(event: TokenEvent): void {
  if (event.type !== "response" || event.response.sequences.every(({ logprobs }) => logprobs !== null))
    return;
  throw new HttpError(502, "The server sent samples without logprobs: they could not be trained on.");
}
