import type { UntypedFuture } from "../../../wire/endpoints/endpoint.js";
import type { FutureCompletion } from "../../../wire/endpoints/futures.js";
import { endpoints } from "../../../wire/endpoints/index.js";
import { exactSeqId } from "../../../wire/endpoints/sampling.js";
import type { TensorData } from "../../../wire/tensors/tensor-data.js";
import { MAX_LONG_POLL_MS } from "../futures/future-routes.js";
import type { FutureOutcome } from "../futures/future-store.js";
import { conflict, HttpError, invalid } from "../http/http-error.js";
import { idempotencyKeyOf } from "../http/once-per-key.js";
import { mayAccess, type Route } from "../http/route.js";
import type { Services } from "../services.js";
import { fingerprintJson } from "../sessions/fingerprint.js";
import { copyOf, LateCopies } from "./late-copies.js";
import { jobAlone, type SampleJob, toSampleCall } from "./sample-call.js";
import { findSampledModel, type SamplingSession } from "./sampling-sessions.js";

/** Cloned clients number their requests from their client id times this. */
const REQUESTS_PER_CLIENT = 1_000_000_000n;

/** Sampling sessions, samples, and how a client learns of many results at once. */
export function addSamplingRoutes(route: Route, services: Services): void {
  const { baseModels, store, limits, sessions, futures, samplingSessions, sampleRuns } = services;
  const lateCopies = new LateCopies();

  route(endpoints.createSamplingSession, (request, call) => {
    const identity = call.get("identity");
    const session = sessions.use(identity, request.sessionId);
    const model = findSampledModel(store, baseModels, identity, request);
    const { samplingSessionSeqId, modelPath = null } = request;
    const { id } = samplingSessions.create(session, samplingSessionSeqId, model, modelPath);
    return { samplingSessionId: id };
  });

  route(endpoints.joinSamplingSession, ({ samplingSessionId }, call) => {
    const sampling = samplingSessions.use(call.get("identity"), samplingSessionId);
    sampling.clients += 1;
    return { clientCounter: sampling.clients };
  });

  route(endpoints.getSampler, ({ samplerId }, call) => {
    const found = store.sessions.sampler(samplerId);
    if (found === undefined || !mayAccess(call.get("identity"), found.session.owner))
      throw new HttpError(404, `There is no sampler ${samplerId}.`);
    const { baseModel, modelPath } = found.sampler;
    return { samplerId, baseModel, modelPath, takesConstraints: true };
  });

  route(endpoints.sample, (request, call) => {
    const identity = call.get("identity");
    const { samplingSessionId, seqId, targetPromptLogprobs: targets } = request;
    const key = idempotencyKeyOf(call);
    if (samplingSessionId === undefined) {
      const { owner } = identity;
      const choices = "samplingSessionId and seqId, or baseModel or modelPath";
      const model = findSampledModel(store, baseModels, identity, request, choices);
      const work = toSampleCall(request, model.info, limits);
      // It has no number to be recognised by when it is sent again.
      const copy = copyOf(fingerprintJson([work, targets, request.modelPath]), key);
      const before = lateCopies.find(owner, copy);
      const requestId = before ?? sampleRuns.start(jobAlone(identity, model, work, { targets })).requestId;
      lateCopies.remember(owner, copy, requestId);
      return accepted(requestId, work);
    }
    const sampling = samplingSessions.use(identity, samplingSessionId);
    if (seqId === undefined) throw invalid("seqId", "is needed together with samplingSessionId");
    const work = toSampleCall(request, sampling.info, limits);
    const exact = exactSeqId(seqId, call.get("bodyText"));
    if (exact === undefined) throw invalid("seqId", "must be a whole number below 2^63");
    return accepted(startNumbered(sampling, exact, work, targets, key), work);
  });

  /** Starts a sample, unless this is a copy of a request that was accepted; returns its request id. */
  function startNumbered(
    sampling: SamplingSession,
    seqId: string,
    work: SampleJob["call"],
    targets: TensorData | undefined,
    key: string | undefined,
  ): string {
    const fingerprint = fingerprintJson([work, targets]);
    const before = sampling.requests.get(seqId);
    if (before !== undefined && before !== fingerprint)
      throw conflict(
        `Sampling session ${sampling.id} has already accepted another request as number ${seqId}.`,
      );
    const { session, weights } = sampling;
    const { owner } = session.record;
    const requestId = `${sampling.id}:${seqId}`;
    const request = `${requestId} ${fingerprint}`;
    const copy = copyOf(request, key);
    const isKnown =
      (before !== undefined && futures.get(requestId) !== undefined) ||
      lateCopies.find(owner, request) !== undefined ||
      lateCopies.find(owner, copy) !== undefined;
    if (!isKnown) {
      const job = { requestId, owner, track: sampling.id, session, weights, call: work, targets };
      const onForgotten = (isRetrieved: boolean) => {
        sampling.requests.delete(seqId);
        if (isRetrieved) lateCopies.remember(owner, request, requestId);
      };
      const clientId = String(BigInt(seqId) / REQUESTS_PER_CLIENT);
      const onEnd = (outcome: FutureOutcome) =>
        samplingSessions.completionsOf(sampling, clientId).add(completionOf(requestId, outcome));
      sampleRuns.start(job, { onForgotten, onEnd });
      sampling.requests.set(seqId, fingerprint);
    }
    lateCopies.remember(owner, copy, requestId);
    return requestId;
  }

  route(endpoints.retrieveFutures, async (request, call) => {
    const identity = call.get("identity");
    const { samplingSessionId, clonedSamplerId } = request.target;
    const sampling = samplingSessions.use(identity, samplingSessionId);
    for (const requestId of request.retrievedRequestIds) {
      const future = futures.get(requestId);
      if (future !== undefined && mayAccess(identity, future.owner))
        futures.forget(future, { isRetrieved: true });
    }
    const timeoutMs = Math.min((request.timeout ?? Number.POSITIVE_INFINITY) * 1000, MAX_LONG_POLL_MS);
    const log = samplingSessions.completionsOf(sampling, String(clonedSamplerId));
    const { signal } = call.req.raw;
    return sessions.whilePolling(samplingSessionId, signal, () =>
      log.after(request.prevCursor, timeoutMs, signal),
    );
  });
}

function completionOf(requestId: string, outcome: FutureOutcome): FutureCompletion {
  if (outcome.type === "failed") return { state: "failed", requestId };
  if (outcome.type === "json") return { state: "finished", requestId };
  return { state: "finished", requestId, responsePayloadUncompressedSize: outcome.bytes.byteLength };
}

function accepted(requestId: string, { numSamples }: SampleJob["call"]): UntypedFuture {
  const sampleSequenceIds = Array.from({ length: numSamples }, (_, index) => `${requestId}:${index}`);
  return { requestId, sampleSequenceIds };
}
