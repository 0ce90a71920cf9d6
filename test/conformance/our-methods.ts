/** Every method of our clients, called against some server: what works, what it does not offer, what goes wrong. */
import {
  APIError,
  RestClient,
  SamplingClient,
  ServiceClient,
  type ServiceClientOptions,
  TrainingClient,
} from "../../src/index.js";
import { sum } from "../../src/training/autograd/index.js";
import { parseTinkerPath } from "../../src/wire/records/tinker-path.js";

export interface MethodResult {
  readonly method: string;
  /** `ok`, `not offered (...)` or `FAILED: ...`. */
  readonly result: string;
}

/** Not calls to a server. */
const LOCAL = new Set([
  "RestClient.baseURL",
  "ServiceClient.baseURL",
  "ServiceClient.clone",
  "ServiceClient.createRestClient",
  "ServiceClient.observeTokens",
  "ServiceClient.onSessionLost",
  "ServiceClient.getConsoleUrl",
  "ServiceClient.getTelemetry",
  "TrainingClient.getConsoleUrl",
  "SamplingClient.toJSON",
]);

/** A server may compile a program for every new shape. */
const PATIENCE_MS = 4 * 60_000;

const tokens = [5, 6, 7, 8, 9, 10];
const datum = {
  modelInput: tokens,
  lossFnInputs: { targetTokens: tokens.map((token) => token + 1), weights: tokens.map(() => 1) },
};
const ratios = {
  modelInput: tokens,
  lossFnInputs: {
    targetTokens: tokens.map((token) => token + 1),
    logprobs: tokens.map(() => -6),
    advantages: tokens.map((_, index) => index - 2),
  },
};

const CLIP = { clipLowThreshold: 0.8, clipHighThreshold: 1.2 };

export async function runOurMethods(
  options: ServiceClientOptions,
  wantedModel?: string,
): Promise<MethodResult[]> {
  const results: MethodResult[] = [];
  const label = `c${Date.now().toString(36)}`;
  let counter = 0;
  const fresh = () => `${label}-${counter++}`;
  const settings = { maxRetries: 1, ...options };
  const service = new ServiceClient({
    ...settings,
    userMetadata: { who: "conformance" },
    displayName: label,
  });
  const rest = new RestClient(settings);

  /** Undefined when it did not work: what needs it then says so. */
  async function attempt<T>(method: string, action: () => PromiseLike<T> | T): Promise<T | undefined> {
    const deadline = new AbortController();
    const timer = setTimeout(() => deadline.abort(), PATIENCE_MS);
    const late = new Promise<never>((_, reject) => {
      deadline.signal.addEventListener("abort", () =>
        reject(new Error(`no answer within ${PATIENCE_MS / 60_000} minutes`)),
      );
    });
    try {
      const value = await Promise.race([Promise.resolve().then(action), late]);
      results.push({ method, result: "ok" });
      return value;
    } catch (error) {
      results.push({ method, result: describeFailure(error) });
      return undefined;
    } finally {
      clearTimeout(timer);
    }
  }

  const need = <T>(value: T | undefined, what: string): T => {
    if (value === undefined) throw new Missing(what);
    return value;
  };

  await attempt("RestClient.health", () => rest.health());
  await attempt("RestClient.getServerCapabilities", () => rest.getServerCapabilities());
  const offered = await attempt("ServiceClient.getServerCapabilities", () => service.getServerCapabilities());
  const baseModel = wantedModel ?? offered?.supportedModels[0]?.modelName ?? "";
  await attempt("RestClient.getTokenizer", () => rest.getTokenizer(baseModel));
  await attempt("ServiceClient.getTokenizer", () => service.getTokenizer(baseModel));
  const session = await attempt("ServiceClient.getSessionId", () => service.getSessionId());

  // --- training
  const rank = 4;
  const training = await attempt("ServiceClient.createLoraTrainingClient", () =>
    service.createLoraTrainingClient({ baseModel, rank, seed: 1 }),
  );
  const trainer = () => need(training, "a training client");
  await attempt("TrainingClient.getInfo", () => trainer().getInfo());
  await attempt("TrainingClient.getTokenizer", () => trainer().getTokenizer());
  for (const [loss, pass] of [
    ["cross_entropy", () => trainer().forwardBackward([datum, datum], "cross_entropy")],
    ["importance_sampling", () => trainer().forwardBackward([ratios], "importance_sampling")],
    ["ppo", () => trainer().forwardBackward([ratios], "ppo", { config: CLIP })],
    ["cispo", () => trainer().forwardBackward([ratios], "cispo", { config: CLIP })],
    ["dro", () => trainer().forwardBackward([ratios], "dro", { config: { beta: 0.1 } })],
  ] as const) {
    await attempt(`TrainingClient.forwardBackward (${loss})`, async () => checkPass(await pass()));
  }
  await attempt("TrainingClient.forward", async () =>
    checkPass(await trainer().forward([datum], "cross_entropy")),
  );
  await attempt("TrainingClient.forwardBackwardCustom", () =>
    trainer().forwardBackwardCustom([datum], (_, logprobs) => ({ loss: sum(logprobs[0]!) })),
  );
  const summed = (logprobs: Parameters<typeof sum>[0]) => ({ loss: sum(logprobs) });
  await attempt("ServiceClient.createCustomLoss", () => service.createCustomLoss(summed));
  await attempt("TrainingClient.createCustomLoss", async () => {
    const handle = await trainer().createCustomLoss(summed);
    checkPass(await trainer().forwardBackwardCustom([datum], handle));
  });
  await attempt("TrainingClient.optimStep", () => trainer().optimStep({ learningRate: 1e-3 }));
  const state = await attempt("TrainingClient.saveState", () => trainer().saveState(fresh()));
  const saved = await attempt("TrainingClient.saveWeightsForSampler", () =>
    trainer().saveWeightsForSampler(fresh()),
  );
  const external = await attempt("TrainingClient.saveWeightsExternal", () =>
    trainer().saveWeightsExternal(fresh()),
  );
  const statePath = () => need(state, "a saved state").path;
  for (const method of [
    "createTrainingClientFromState",
    "createTrainingClientFromStateWithOptimizer",
  ] as const) {
    const loaded = await attempt(`ServiceClient.${method}`, () => service[method](statePath()));
    if (loaded !== undefined) await attempt("TrainingClient.unloadModel", () => loaded.unloadModel());
  }
  for (const method of ["loadState", "loadStateWithOptimizer"] as const) {
    await attempt(`TrainingClient.${method}`, async () => {
      const model = await service.createLoraTrainingClient({ baseModel, rank });
      await model[method](statePath());
      await model.unloadModel();
    });
  }

  // --- sampling
  const prompt = tokens;
  const samplingParams = { maxTokens: 4, temperature: 0.5, seed: 3 };
  await attempt("ServiceClient.createSamplingClient (base model)", async () => {
    const client = await service.createSamplingClient({ baseModel });
    await client.sample({ prompt, numSamples: 1, samplingParams });
  });
  const path = () => need(saved, "weights saved for sampling").path;
  await attempt("TrainingClient.createSamplingClient", () => trainer().createSamplingClient(path()));
  const live = await attempt("TrainingClient.saveWeightsAndGetSamplingClient", () =>
    trainer().saveWeightsAndGetSamplingClient(),
  );
  const named = await attempt("ServiceClient.createSamplingClient", () =>
    service.createSamplingClient({ modelPath: path() }),
  );
  const sampler = () => need(named ?? live, "a sampling client");
  await attempt("SamplingClient.sample", async () => {
    const { sequences } = await sampler().sample({ prompt, numSamples: 2, samplingParams });
    if (sequences.length !== 2) throw new Error(`asked for 2 sequences, got ${sequences.length}`);
    if (!sequences.every((each) => each.tokens.length > 0 && each.logprobs?.length === each.tokens.length)) {
      throw new Error("a sequence has no tokens, or not one logprob for each");
    }
  });
  await attempt("SamplingClient.sample (top-k logprobs)", () =>
    sampler().sample({
      prompt,
      numSamples: 1,
      samplingParams,
      includePromptLogprobs: true,
      topkPromptLogprobs: 2,
      topkSampleLogprobs: 2,
    }),
  );
  await attempt("SamplingClient.stream", async () => {
    const stream = sampler().stream({ prompt, samplingParams });
    const told: number[] = [];
    for await (const { token } of stream) told.push(token);
    const [whole] = (await stream.result).sequences;
    if (told.join() !== whole!.tokens.join())
      throw new Error("the tokens of the stream are not the result's");
  });
  await attempt("SamplingClient.computeLogprobs", async () => {
    const logprobs = await sampler().computeLogprobs(prompt);
    if (logprobs.length !== prompt.length)
      throw new Error(`${logprobs.length} logprobs for ${prompt.length} tokens`);
  });
  await attempt("SamplingClient.canConstrain", () => sampler().canConstrain());
  await attempt("SamplingClient.getInfo", () => sampler().getInfo());
  await attempt("SamplingClient.getBaseModel", () => sampler().getBaseModel());
  await attempt("SamplingClient.getTokenizer", () => sampler().getTokenizer());
  const handle = await attempt("SamplingClient.getSamplerHandle", () => sampler().getSamplerHandle());
  const copy = await attempt("SamplingClient.fromSamplerHandle", async () => {
    const client = await SamplingClient.fromSamplerHandle(need(handle, "a handle"), settings);
    await client.sample({ prompt, numSamples: 1, samplingParams });
    return client;
  });
  await attempt("SamplingClient.close", () => need(copy, "a client from a handle").close());

  // --- REST
  const run = () => trainer().modelId;
  const now = Math.floor(Date.now() / 3_600_000) * 3_600_000;
  const window = { startingOn: new Date(now - 3_600_000), endingBefore: new Date(now + 3_600_000) };
  await attempt("RestClient.listTrainingRuns", () => rest.listTrainingRuns());
  await attempt("RestClient.getTrainingRun", () => rest.getTrainingRun(run()));
  await attempt("RestClient.getTrainingRunByTinkerPath", () => rest.getTrainingRun(statePath()));
  await attempt("RestClient.listCheckpoints", () => rest.listCheckpoints(run()));
  await attempt("RestClient.listUserCheckpoints", () => rest.listUserCheckpoints());
  await attempt("RestClient.getWeightsInfo", () => rest.getWeightsInfo(statePath()));
  await attempt("RestClient.publishCheckpoint", () => rest.publishCheckpoint(statePath()));
  await attempt("RestClient.unpublishCheckpoint", () => rest.unpublishCheckpoint(statePath()));
  await attempt("RestClient.setCheckpointTtl", () => rest.setCheckpointTtl(statePath(), 7200));
  await attempt("RestClient.getCheckpointArchiveUrl", () => rest.getCheckpointArchiveUrl(path()));
  await attempt("RestClient.getExternalWeightsUrls", () =>
    rest.getExternalWeightsUrls(need(external, "external weights").path),
  );
  await attempt("RestClient.copyWeights", () =>
    rest.copyWeights(statePath(), { destinationProjectId: "conformance" }),
  );
  await attempt("ServiceClient.copyWeights", async () => {
    await using elsewhere = new ServiceClient({ ...settings, projectId: "conformance" });
    return await elsewhere.copyWeights(statePath());
  });
  await attempt("RestClient.listSessions", () => rest.listSessions());
  await attempt("RestClient.getSession", () => rest.getSession(need(session, "a session")));
  await attempt("RestClient.searchSessions", () => rest.searchSessions({ displayName: label }));
  await attempt("RestClient.assignSessionProject", () =>
    rest.assignSessionProject(need(session, "a session"), "conformance"),
  );
  await attempt("RestClient.exportSessionTrace", () => rest.exportSessionTrace(need(session, "a session")));
  await attempt("RestClient.getSampler", () => rest.getSampler(sampler().samplingSessionId));
  await attempt("RestClient.getAuditLog", () => rest.getAuditLog());
  await attempt("RestClient.getBillingUsage", () => rest.getBillingUsage(window));
  await attempt("RestClient.getCurrentCheckpointStorageUsage", () => rest.getCurrentCheckpointStorageUsage());
  await attempt("RestClient.whoami", () => rest.whoami());
  for (const [owner, client] of [
    ["RestClient", rest],
    ["ServiceClient", service],
  ] as const) {
    await attempt(`${owner}.get`, () => client.get("/api/v1/healthz"));
    await attempt(`${owner}.post`, () =>
      client.post("/api/v1/weights_info", { body: { tinker_path: statePath() } }),
    );
    await attempt(`${owner}.put`, () =>
      client.put(`/api/v1/sessions/${session}/project`, { body: { project_id: "conformance" } }),
    );
    await attempt(`${owner}.delete`, async () => {
      const { trainingRunId, checkpointId } = parseTinkerPath((await trainer().saveState(fresh())).path);
      return await client.delete(`/api/v1/training_runs/${trainingRunId}/checkpoints/${checkpointId}`);
    });
  }
  await attempt("RestClient.deleteCheckpoint", () => rest.deleteCheckpoint(statePath()));
  await attempt("ServiceClient.close", () => service.close("success"));
  await attempt("RestClient.close", () => rest.close());
  return results;
}

/** Public methods that no line above calls. */
export function methodsNotCalled(results: readonly MethodResult[]): string[] {
  const called = new Set(results.map(({ method }) => method.split(" ")[0]));
  const all = [ServiceClient, TrainingClient, SamplingClient, RestClient].flatMap((client) => [
    ...Object.getOwnPropertyNames(client.prototype)
      .filter((name) => name !== "constructor")
      .map((name) => `${client.name}.${name}`),
  ]);
  return [...all, "SamplingClient.fromSamplerHandle"].filter((name) => !called.has(name) && !LOCAL.has(name));
}

class Missing extends Error {}

function checkPass(output: { lossFnOutputs: readonly unknown[] }): void {
  if (output.lossFnOutputs.length === 0) throw new Error("no outputs came back");
}

function describeFailure(error: unknown): string {
  if (error instanceof Missing) return `not run: needs ${error.message}`;
  if (error instanceof APIError && [404, 405, 501].includes(error.status ?? 0)) {
    return `not offered (HTTP ${error.status})`;
  }
  if (error instanceof APIError && error.status === 422 && error.message.includes("loss_fn")) {
    return "not offered (HTTP 422: no such loss)";
  }
  const text = error instanceof Error ? error.message : "";
  if (text.includes("needs token authentication")) return "not offered (plain API keys only)";
  return `FAILED: ${error instanceof Error ? `${error.name}: ${error.message}` : String(error)}`.slice(
    0,
    300,
  );
}
