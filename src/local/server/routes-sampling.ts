import { randomUUID } from "node:crypto";
import { z } from "zod";
import { sampleRequestFromJson } from "../../wire/index.js";
import { jsonBody, parseWith, readJsonObject } from "./body.js";
import { type App, type Core, weightsFor } from "./core.js";
import type { Future } from "./future-store.js";
import { HttpError, invalid } from "./http-error.js";
import { mayAccess } from "./identity.js";
import { sampleSchema, toSampleCall } from "./sample-request.js";
import type { Sampler } from "./samplers.js";
import * as schemas from "./schemas.js";
import { fingerprintJson } from "./training-data.js";

/** Cloned clients number their requests from their client id times this. */
const REQUESTS_PER_CLIENT = 1_000_000_000n;

/** Samplers and samples. */
export function addSamplingRoutes(app: App, core: Core): void {
  app.post("/api/v1/create_sampling_session", async (context) => {
    const request = await jsonBody(context, core, schemas.createSamplingSession);
    const identity = context.get("identity");
    const session = core.sessions.use(identity, request.session_id);
    const { info, weights } = weightsFor(core, identity, request.base_model, request.model_path);
    const sampler = core.samplers.create(
      session,
      request.sampling_session_seq_id,
      info,
      weights,
      request.model_path ?? null,
    );
    return context.json({ type: "create_sampling_session", sampling_session_id: sampler.id });
  });

  app.post("/api/v1/join_sampling_session", async (context) => {
    const request = await jsonBody(context, core, z.object({ sampling_session_id: z.string() }));
    const sampler = core.samplers.use(context.get("identity"), request.sampling_session_id);
    sampler.clients += 1;
    return context.json({ type: "join_sampling_session", client_counter: sampler.clients });
  });

  app.get("/api/v1/samplers/:id", (context) => {
    const found = core.store.sessions.sampler(context.req.param("id"));
    if (found === undefined || !mayAccess(context.get("identity"), found.session.owner)) {
      throw new HttpError(404, `There is no sampler ${context.req.param("id")}.`);
    }
    const { sampler } = found;
    return context.json({
      sampler_id: sampler.id,
      base_model: sampler.baseModel,
      model_path: sampler.modelPath,
    });
  });

  app.post("/api/v1/asample", async (context) => {
    const { value, text } = await readJsonObject(context.req.raw, core);
    const identity = context.get("identity");
    const { prompt, target_prompt_logprobs: targetsJson, ...rest } = value;
    const fields = parseWith(sampleSchema, rest);
    if (typeof prompt !== "object" || prompt === null) throw invalid("prompt", "is missing");
    const decoded = sampleRequestFromJson(value);
    const targets = decoded.targetPromptLogprobs;
    const sampler =
      typeof fields.sampling_session_id === "string"
        ? core.samplers.use(identity, fields.sampling_session_id)
        : undefined;
    if (sampler !== undefined && typeof fields.seq_id !== "number")
      throw invalid("seq_id", "is needed together with sampling_session_id");
    const { info, weights } =
      sampler ??
      weightsFor(
        core,
        identity,
        fields.base_model,
        fields.model_path,
        "sampling_session_id and seq_id, or base_model or model_path",
      );
    const call = toSampleCall(fields, decoded.prompt, targets, info, core.limits);
    const answer = (future: Future) =>
      context.json({
        request_id: future.requestId,
        sample_sequence_ids: Array.from(
          { length: call.numSamples },
          (_, index) => `${future.requestId}:${index}`,
        ),
      });
    if (sampler === undefined) {
      return answer(
        core.samplers.start({
          requestId: `sample-${randomUUID()}`,
          owner: identity.owner,
          sessionId: null,
          session: undefined,
          track: info.name,
          weights,
          call,
          targets,
        }),
      );
    }
    const seqId = exactSeqId(fields.seq_id!, text);
    const fingerprint = fingerprintJson([call, targetsJson]);
    const before = sampler.requests.get(seqId);
    if (before !== undefined) {
      if (before.fingerprint !== fingerprint) {
        throw new HttpError(
          409,
          `Sampling session ${sampler.id} has already accepted another request under seq_id ${seqId}.`,
          { "x-should-retry": "false" },
        );
      }
      const future = core.futures.get(before.requestId);
      if (future !== undefined) return answer(future);
    }
    return answer(startNumbered(core, sampler, seqId, fingerprint, call, targets));
  });
}

function startNumbered(
  core: Core,
  sampler: Sampler,
  seqId: string,
  fingerprint: string,
  call: ReturnType<typeof toSampleCall>,
  targets: Parameters<typeof toSampleCall>[2],
): Future {
  const requestId = `${sampler.id}:${seqId}`;
  const clientId = String(BigInt(seqId) / REQUESTS_PER_CLIENT);
  const future = core.samplers.start({
    requestId,
    owner: sampler.session.record.owner,
    sessionId: sampler.session.record.id,
    session: sampler.session,
    track: sampler.id,
    weights: sampler.weights,
    call,
    targets,
    onForgotten: () => sampler.requests.delete(seqId),
    onEnd: (outcome) => {
      core.samplers.completionsOf(sampler, clientId).add(
        outcome.type === "failed"
          ? { state: "failed", request_id: requestId }
          : {
              state: "finished",
              request_id: requestId,
              ...(outcome.type === "proto"
                ? { response_payload_uncompressed_size: outcome.bytes.byteLength }
                : {}),
            },
      );
    },
  });
  sampler.requests.set(seqId, { fingerprint, requestId });
  return future;
}

/** Clones that did not ask for an id take a random one, and numbers up to 10^18, which JSON.parse rounds. */
function exactSeqId(parsed: number, text: string): string {
  if (Number.isSafeInteger(parsed)) return String(parsed);
  const exact = /"seq_id"\s*:\s*(\d{1,19})\s*[,}]/.exec(text)?.[1];
  if (exact === undefined) throw invalid("seq_id", "must be a whole number below 2^63");
  return exact;
}
