import type { SamplingClient, ServiceClient } from "../clients/index.js";
import type { Renderer } from "../renderers/renderer.js";
import type { TokenSampler } from "../renderers/token-source.js";
import type { Clock } from "../transport/clock.js";
import type { Logger } from "../transport/logger.js";
import type { RecordingState } from "./recording/recorder.js";
import type { SessionEnd, SessionRecord } from "./session-record.js";

/** A sampler that a gateway can answer with; a `SamplingClient` fits. */
export type GatewaySampler = TokenSampler & Pick<SamplingClient, "getTokenizer" | "getBaseModel">;

/** Weights that answer a session, and their age. */
export interface SessionSampler {
  readonly sampler: GatewaySampler;
  /** After how many steps of training the weights were taken. */
  readonly step?: number | undefined;
}

/** Limits of one session; a request beyond them is refused, and the session ends. */
export interface SessionLimits {
  /** Sampled tokens of all answers together. */
  readonly maxTokens?: number | undefined;
  /** Sampled tokens of one answer; a request may ask for fewer. */
  readonly maxTokensPerAnswer?: number | undefined;
  readonly maxRequests?: number | undefined;
  /** Milliseconds from the session's beginning. */
  readonly maxDurationMs?: number | undefined;
}

/** Options of a gateway's session: its name, problem, weights and limits. */
export interface SessionOptions {
  /** Its name in addresses and records: letters, digits, `_`, `-` and `.`. Default: a random one. */
  readonly id?: string | undefined;
  /** The problem it works on, as JSON; it is recorded. */
  readonly problem?: unknown;
  /** The number of its group. */
  readonly group?: number | undefined;
  /** The step of the run that it belongs to. */
  readonly step?: number | undefined;
  readonly tags?: readonly string[] | undefined;
  /**
   * The weights of this session; the model that its requests name is ignored. A function is called at each request, so
   * that the session follows the weights. Default: the gateway's models.
   */
  readonly sampler?: SessionSampler | (() => SessionSampler) | undefined;
  /** The renderer of `sampler`'s model, or its name. Default: the usual one of its base model. */
  readonly renderer?: Renderer | string | undefined;
  /** Tokens of a prompt and its answer together. Default: that of the gateway. */
  readonly maxContextLength?: number | undefined;
  readonly limits?: SessionLimits | undefined;
  /** Sampling parameters that a request does not set. */
  readonly sampling?:
    | { readonly temperature?: number | undefined; readonly topP?: number | undefined }
    | undefined;
  /** The session ends when this process of this machine is gone. */
  readonly ownerPid?: number | undefined;
  /** The session ends when this is aborted. */
  readonly signal?: AbortSignal | undefined;
}

/** One episode of an agent: an address, and the samples that were drawn for it. */
export interface GatewaySession extends AsyncDisposable {
  readonly id: string;
  /** For clients of OpenAI's API, with `/v1`. */
  readonly baseURL: string;
  /** For clients of Anthropic's API, without `/v1`, as `ANTHROPIC_BASE_URL` has it. */
  readonly anthropicBaseURL: string;
  /** Reaches only this session. */
  readonly apiKey: string;
  /** Returns the record of the session so far: its threads, tokens and counts. */
  record(): SessionRecord;
  /** Gives the episode its reward, for the record. */
  setReward(reward: number): void;
  /** Ends the session: running requests are stopped, later ones refused. Returns the complete record. */
  end(reason?: SessionEnd): Promise<SessionRecord>;
}

/** Options of `startGateway`: models, address, API keys, recording and limits. */
export interface GatewayOptions {
  /** Makes the samplers of `models`. If its session ends, for example because the server restarts, a clone takes over. */
  readonly service?:
    | (Pick<ServiceClient, "createSamplingClient"> &
        Partial<Pick<ServiceClient, "getServerCapabilities" | "clone" | "close">>)
    | undefined;
  /**
   * The models that agents may ask for, by the names they use: a base model, a `tinker://` path, or a sampler. A request for
   * another name is answered by the first. May be empty where each session has its sampler.
   */
  readonly models?: Readonly<Record<string, string | GatewaySampler>> | undefined;
  /** Names of models as agents send them, with `*` for any text, and the model of `models` that answers for each. */
  readonly map?: Readonly<Record<string, string>> | undefined;
  /** Tokens of a prompt and its answer together. Default: what the server says of the model, or 32,768. */
  readonly maxContextLength?: number | undefined;
  /** Port to listen on; 0, the default, takes a free one. */
  readonly port?: number | undefined;
  /** Address to listen on, 127.0.0.1 by default; any that other machines can reach needs `apiKeys`. */
  readonly host?: string | undefined;
  /** Whether to open a socket; false leaves only `fetch`. */
  readonly listen?: boolean | undefined;
  /** Keys that clients must send. A session's own key reaches only that session. */
  readonly apiKeys?: readonly string[] | undefined;
  /** Folder in which sessions are recorded as they happen. Default: not recorded. */
  readonly record?: string | undefined;
  /** Maximum bytes of the recording; beyond them agents are answered and not recorded. Default: 8 GiB. */
  readonly maxRecordBytes?: number | undefined;
  /** An OpenAI- or Anthropic-compatible service that requests are passed to instead of sampling; conversations are recorded. */
  readonly upstream?: string | undefined;
  /**
   * API key for `upstream`; it is never recorded. Default: the key that the agent sends is passed on. Required if the
   * gateway has its own keys, or agents send the key of their session.
   */
  readonly upstreamApiKey?: string | undefined;
  /** A session that a request began ends after this time without a request. Default: 30 minutes. */
  readonly sessionTimeoutMs?: number | undefined;
  /** Maximum number of open sessions. Default: 4096. */
  readonly maxSessions?: number | undefined;
  /** Maximum bytes of tokens and messages of one session; beyond them it ends. Default: 256 MiB. */
  readonly maxSessionBytes?: number | undefined;
  readonly logger?: Pick<Logger, "error" | "warn"> | undefined;
  readonly clock?: Clock | undefined;
}

/** A running agent gateway; `startGateway` makes one. */
export interface Gateway extends AsyncDisposable {
  /** Its address, without a path. */
  readonly url: string;
  /** Answers a request without a socket. */
  readonly fetch: typeof fetch;
  /** Opens a session: an episode of an agent, with its own address and key. */
  session(options?: SessionOptions): GatewaySession;
  /** The open sessions, including those that requests began. */
  sessions(): readonly GatewaySession[];
  /** How much was recorded; undefined without a recording. */
  readonly recording: RecordingState | undefined;
  /** Ends all sessions and stops listening. */
  close(): Promise<void>;
}
