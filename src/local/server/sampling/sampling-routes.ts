import type { UntypedFuture } from "../../../wire/endpoints/endpoint.js";
import { endpoints } from "../../../wire/endpoints/index.js";
import { exactSeqId } from "../../../wire/endpoints/sampling.js";
import type { TensorData } from "../../../wire/tensors/tensor-data.js";
import { MAX_LONG_POLL_MS } from "../futures/future-routes.js";
import type { Future } from "../futures/future-store.js";
import { conflict, HttpError, invalid } from "../http/http-error.js";
import { mayAccess, type Route } from "../http/route.js";
import type { Services } from "../services.js";
import { fingerprintJson } from "../sessions/fingerprint.js";
import { jobAlone, type SampleJob, toSampleCall } from "./sample-call.js";
import { findSampledModel, type SamplingSession } from "./sampling-sessions.js";

/** Cloned clients number their requests from their client id times this. */
const REQUESTS_PER_CLIENT = 1_000_000_000n;

/** Sampling sessions, samples, and how a client learns of many results at once. */
export function addSamplingRoutes(route: Route, services: Services): void {
  const { baseModels, store, limits, sessions, futures, samplingSessions, sampleRuns } = services;

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
    if (samplingSessionId === undefined) {
      const choices = "samplingSessionId and seqId, or baseModel or modelPath";
      const model = findSampledModel(store, baseModels, identity, request, choices);
      const work = toSampleCall(request, model.info, limits);
      return accepted(sampleRuns.start(jobAlone(identity, model, work, { targets })), work);
    }
    const sampling = samplingSessions.use(identity, samplingSessionId);
    if (seqId === undefined) throw invalid("seqId", "is needed together with samplingSessionId");
    const work = toSampleCall(request, sampling.info, limits);
    const exact = exactSeqId(seqId, call.get("bodyText"));
    if (exact === undefined) throw invalid("seqId", "must be a whole number below 2^63");
    return accepted(startNumbered(sampling, exact, work, targets), work);
  });

  /** Starts a sample; a repeated request gets the future of the first one. */
  function startNumbered(
    sampling: SamplingSession,
    seqId: string,
    work: SampleJob["call"],
    targets: TensorData | undefined,
  ): Future {
    const fingerprint = fingerprintJson([work, targets]);
    const before = sampling.requests.get(seqId);
    if (before !== undefined && before.fingerprint !== fingerprint)
      throw conflict(
        `Sampling session ${sampling.id} has already accepted another request as number ${seqId}.`,
      );
    const known = before && futures.get(before.requestId);
    if (known !== undefined) return known;
    const { session } = sampling;
    const requestId = `${sampling.id}:${seqId}`;
    const clientId = String(BigInt(seqId) / REQUESTS_PER_CLIENT);
    const { weights } = sampling;
    const job = { requestId, owner: session.record.owner, track: sampling.id, session, weights };
    const future = sampleRuns.start(
      { ...job, call: work, targets },
      {
        onForgotten: () => sampling.requests.delete(seqId),
        onEnd: (outcome) => {
          const log = samplingSessions.completionsOf(sampling, clientId);
          if (outcome.type === "failed") return log.add({ state: "failed", requestId });
          const size =
            outcome.type === "encoded" ? { responsePayloadUncompressedSize: outcome.bytes.byteLength } : {};
          log.add({ state: "finished", requestId, ...size });
        },
      },
    );
    sampling.requests.set(seqId, { fingerprint, requestId });
    return future;
  }

  route(endpoints.retrieveFutures, async (request, call) => {
    const identity = call.get("identity");
    const { samplingSessionId, clonedSamplerId } = request.target;
    const sampling = samplingSessions.use(identity, samplingSessionId);
    for (const requestId of request.retrievedRequestIds) {
      const future = futures.get(requestId);
      if (future !== undefined && mayAccess(identity, future.owner)) futures.forget(future);
    }
    const timeoutMs = Math.min((request.timeout ?? Number.POSITIVE_INFINITY) * 1000, MAX_LONG_POLL_MS);
    const log = samplingSessions.completionsOf(sampling, String(clonedSamplerId));
    const { signal } = call.req.raw;
    return sessions.whilePolling(samplingSessionId, signal, () =>
      log.after(request.prevCursor, timeoutMs, signal),
    );
  });
}

function accepted({ requestId }: Future, { numSamples }: SampleJob["call"]): UntypedFuture {
  const sampleSequenceIds = Array.from({ length: numSamples }, (_, index) => `${requestId}:${index}`);
  return { requestId, sampleSequenceIds };
}
