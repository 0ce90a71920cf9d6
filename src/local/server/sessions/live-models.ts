import type { Clock } from "../../../transport/clock.js";
import type { UntypedFuture } from "../../../wire/endpoints/endpoint.js";
import { readRequestNumber } from "../../../wire/endpoints/training.js";
import { type BaseModelInfo, EngineLostError, type LoraSettings } from "../../engine/engine.js";
import type { RunRecord } from "../../store/run-store.js";
import type { Store } from "../../store/store.js";
import type { Activity } from "../activity.js";
import {
  type EncodedResult,
  type Future,
  type FutureStore,
  outcomeOf,
  type ResultOf,
} from "../futures/future-store.js";
import { conflict, describeFailure, HttpError, tooBusy } from "../http/http-error.js";
import type { Limits } from "../http/limits.js";
import type { OwnerShares } from "../http/owner-shares.js";
import type { RequestOwner, Route } from "../http/route.js";
import { fingerprintJson } from "./fingerprint.js";
import type { LiveModel, LiveSession, LiveSessions, StateSource } from "./live-sessions.js";
import { TurnQueue } from "./turn-queue.js";

/** Parts of the server that models use. */
export interface LiveModelsOptions {
  readonly sessions: LiveSessions;
  readonly store: Pick<Store, "runs">;
  readonly clock: Clock;
  readonly futures: FutureStore;
  readonly limits: Limits;
  /** A limit that owners share. */
  readonly shared: (limit: number) => OwnerShares;
  readonly activity: Activity;
  /** Makes a model's adapter again, in an engine that has none. */
  readonly restore: (model: LiveModel, source: StateSource) => Promise<void>;
}

/** Settings of a new model. */
export interface NewModel {
  readonly modelSeqId: number;
  readonly info: BaseModelInfo;
  readonly lora: LoraSettings;
  readonly userMetadata: Record<string, string> | null;
}

/** How a request takes its turn, where it is not the usual way. */
export interface TurnOptions {
  readonly fingerprint?: string;
  readonly bytes?: number;
  readonly check?: () => void;
}

interface Numbered {
  readonly seqId?: number | undefined;
}

/** The models being trained: each is changed by one request after the other, in the order of their numbers. */
export class LiveModels {
  readonly #options: LiveModelsOptions;
  readonly #backlog: OwnerShares;

  constructor(options: LiveModelsOptions) {
    this.#options = options;
    this.#backlog = options.shared(options.limits.queuedBytes);
  }

  /** Adds a model to a session, as request number 0 of its own queue; the same request again finds the same future. */
  add<Result>(
    session: LiveSession,
    endpoint: ResultOf<Result>,
    fingerprint: string,
    wanted: NewModel,
    create: (model: LiveModel) => Promise<Result>,
  ): UntypedFuture {
    const modelId = `${session.record.id}:train:${wanted.modelSeqId}`;
    const model = session.models.get(modelId) ?? this.#newModel(session, modelId, wanted);
    const future = model.turns.submit({
      seqId: 0,
      name: nameOf(endpoint),
      fingerprint,
      bytes: 0,
      execute: async () => {
        try {
          const result = await create(model);
          model.isAdapterLost = false;
          await this.#options.store.runs.save(model.run);
          this.#options.activity.created(model.run, session.record);
          return outcomeOf(endpoint, result);
        } catch (error) {
          session.models.delete(modelId);
          const { category } = describeFailure(error);
          const failure = { error: `Model ${modelId} could not be created.`, category };
          queueMicrotask(() => model.turns.close(failure));
          throw error;
        }
      },
    });
    return { requestId: future.requestId, modelId };
  }

  #newModel(session: LiveSession, modelId: string, { info, lora, userMetadata }: NewModel): LiveModel {
    const { clock, futures, limits, sessions, store } = this.#options;
    if (store.runs.get(modelId) !== undefined)
      throw conflict(`Model ${modelId} existed before and was unloaded; give the new one another number.`);
    if (session.models.size >= limits.modelsPerSession) {
      throw new HttpError(
        400,
        `Session ${session.record.id} has ${session.models.size} models, its limit; unload some first.`,
      );
    }
    const { owner } = session.record;
    const open = sessions.held(limits.openModels, ({ models }) => models.size);
    if (!open.admits(owner, 1)) {
      throw tooBusy(
        `You have ${open.heldBy(owner)} models in training, and may have ${Math.floor(open.limitFor(owner))} now; unload some first.`,
        5,
      );
    }
    const now = clock.wallNow();
    const run: RunRecord = {
      id: modelId,
      owner,
      sessionId: session.record.id,
      projectId: session.record.projectId,
      baseModel: info.name,
      lora,
      userMetadata,
      createdAt: now,
      lastRequestAt: now,
      corrupted: false,
    };
    const turns = new TurnQueue({
      modelId,
      owner: run.owner,
      clock,
      futures,
      limits,
      trace: session.trace,
      backlog: this.#backlog,
      isPaused: () => session.absence !== undefined,
    });
    const model: LiveModel = {
      run,
      adapterId: `model-${modelId}`,
      info,
      turns,
      session,
      source: { type: "created" },
      hasGradients: false,
      isAdapterLost: false,
    };
    session.models.set(modelId, model);
    return model;
  }

  /** Accepts a request of a model; its result is an object in camelCase, or already encoded. */
  submit<Result>(
    model: LiveModel,
    endpoint: ResultOf<Result>,
    request: Numbered,
    execute: () => Promise<Result | EncodedResult<Result>>,
    options: TurnOptions = {},
  ): UntypedFuture {
    const { requestId } = this.#submit(model, endpoint, request, options, async () => {
      refuseCorrupted(model);
      await this.#restore(model);
      return execute();
    });
    return { requestId, modelId: model.run.id };
  }

  /** Ends a model when its turn comes, also one that is corrupted. */
  unload<Result>(model: LiveModel, endpoint: ResultOf<Result>, remove: () => Promise<Result>): Future {
    return this.#submit(model, endpoint, {}, { fingerprint: nameOf(endpoint) }, async () => {
      const result = await remove();
      model.session.models.delete(model.run.id);
      this.#options.activity.ended(model.run.id, "unloaded");
      const unloaded = { error: `Model ${model.run.id} was unloaded.`, category: "user" } as const;
      queueMicrotask(() => model.turns.close(unloaded));
      return result;
    });
  }

  #submit<Result>(
    model: LiveModel,
    endpoint: ResultOf<Result>,
    request: Numbered,
    { fingerprint, bytes = 0, check }: TurnOptions,
    execute: () => Promise<Result | EncodedResult<Result>>,
  ): Future {
    const name = nameOf(endpoint);
    const future = model.turns.submit({
      seqId: request.seqId,
      name,
      fingerprint: fingerprint ?? fingerprintJson([name, request]),
      bytes,
      ...(check === undefined ? {} : { check }),
      execute: async () => outcomeOf(endpoint, await execute()),
    });
    this.#options.store.runs.touch(model.run, this.#options.clock.wallNow());
    return future;
  }

  /**
   * Runs something that changes a model's weights, gradients or optimizer. When the engine fails in the middle of
   * it, what is left is neither the state before nor the one after: the run is marked as corrupted, for good, and
   * nothing is trained on or saved from that state.
   */
  async changing<T>(
    model: LiveModel,
    endpoint: { readonly path: string },
    change: () => Promise<T>,
  ): Promise<T> {
    const { source } = model;
    model.source = undefined;
    try {
      return await change();
    } catch (error) {
      const failure = describeFailure(error);
      if (failure.category === "server")
        await this.markCorrupted(model, `${nameOf(endpoint)} failed: ${failure.error}`);
      // It was refused before it had changed anything.
      else model.source = source;
      throw error;
    }
  }

  /** The engine is lost, with all adapters: what is in no checkpoint is gone, the rest is loaded again when it is used. */
  async lose(why: string): Promise<void> {
    const marked = [...this.#options.sessions.models()].map(async (model) => {
      if (model.source === undefined) await this.markCorrupted(model, why);
      else model.isAdapterLost = true;
    });
    await Promise.all(marked);
  }

  async #restore(model: LiveModel): Promise<void> {
    if (!model.isAdapterLost || model.source === undefined) return;
    try {
      await this.#options.restore(model, model.source);
      model.isAdapterLost = false;
    } catch (error) {
      if (!(error instanceof EngineLostError))
        await this.markCorrupted(model, `its engine was lost: ${describeFailure(error).error}`);
      throw error;
    }
  }

  async markCorrupted(model: LiveModel, why: string): Promise<void> {
    model.corruptedBecause ??= why;
    model.run.corrupted = true;
    await this.#options.store.runs.save(model.run);
  }

  /** A numbered request was refused: its number is given up, so that those behind it can go on. */
  giveUp(
    identity: RequestOwner,
    modelId: string | undefined,
    seqId: number | undefined,
    error: unknown,
  ): void {
    const willComeAgain = error instanceof HttpError && error.status === 429;
    if (willComeAgain || modelId === undefined || seqId === undefined) return;
    try {
      this.#options.sessions.model(identity, modelId).turns.refuse(seqId);
    } catch {
      // There is no such model, so no request waits behind this one.
    }
  }

  /** Routes of numbered requests. */
  numbered(route: Route): Route {
    return (endpoint, handler) =>
      route(endpoint, handler, (json, call, error) => {
        const { modelId, seqId } = readRequestNumber(json);
        this.giveUp(call.get("identity"), modelId, seqId, error);
      });
  }
}

/** `optim_step` of `/api/v1/optim_step`. */
function nameOf({ path }: { readonly path: string }): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

function refuseCorrupted(model: LiveModel): void {
  if (model.corruptedBecause === undefined) return;
  throw new HttpError(
    500,
    `Model ${model.run.id} is corrupted (${model.corruptedBecause}); create a new one from its last checkpoint.`,
  );
}
