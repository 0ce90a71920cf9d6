import type { Context, Env, Hono } from "hono";
import type { HttpError } from "../http-error.js";
import type { Clock } from "../transport/clock.js";
import type { ChatModel } from "./chat-model.js";
import type { ResponseStore } from "./responses/store.js";

/** A model as the lists of models show it. */
export interface ModelEntry {
  readonly id: string;
  readonly object: "model";
  readonly created: number;
  readonly owned_by: "tinkerts";
  readonly max_model_len: number;
  /** The base model of a checkpoint. */
  readonly parent: string | null;
}

/** The models that one caller may use. */
export interface ChatModels {
  /** Finds a model by its name, or the first one without a name. Throws a `ParamError` for an unknown name. */
  find(name?: string): Promise<ChatModel>;
  list(): Promise<readonly ModelEntry[]>;
  entry(name: string): Promise<ModelEntry>;
}

/** Part of a request that the server ignored, and why. */
export interface IgnoredField {
  /** The field's name in its API, such as `tools.2` or `output_config.effort`. */
  readonly param: string;
  readonly message: string;
}

/** The server that the chat APIs are mounted on. */
export interface ChatHost<E extends Env> {
  readonly app: Hono<E>;
  readonly clock: Clock;
  /** The models that the sender of a request may use. */
  models(call: Context<E>): ChatModels;
  /** Reads the JSON object of a request's body, within the server's limits. */
  readJson(call: Context<E>): Promise<Readonly<Record<string, unknown>>>;
  /** Turns errors of the layers below into answers; undefined for unexpected ones. */
  toHttpError(error: unknown): HttpError | undefined;
  /** Responses that clients may refer to by id, kept per owner. */
  readonly storedResponses: ResponseStore;
  /** Owner of the stored responses that a request may use. */
  ownerOf(call: Context<E>): string;
  /**
   * Makes the surface lenient, for clients that cannot be changed: it ignores what a model cannot do and calls this for
   * each such field. Default: such requests are refused with the field's name.
   */
  onIgnored?(call: Context<E>, ignored: IgnoredField): void;
  /** Tokens of an answer if the request sets no limit. Default: as many as the context has room for. */
  readonly defaultMaxTokens?: number | undefined;
}
