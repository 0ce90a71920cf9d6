import {
  type Logger,
  type SampleResponse,
  ServiceClient,
  type ServiceClientOptions,
  type TrainingClient,
} from "../../src/index.js";
import { FakeClock } from "../support/fake-clock.js";
import type { ProtocolServer } from "../support/protocol-server.js";

export interface TestClient extends AsyncDisposable {
  service: ServiceClient;
  clock: FakeClock;
  /** Everything logged, as "level: text". */
  log: string[];
}

/** A client of a test server whose back-offs take no time. */
export function testClient(server: ProtocolServer, options: ServiceClientOptions = {}): TestClient {
  const log: string[] = [];
  const record = (level: string) => (message: unknown) => void log.push(`${level}: ${String(message)}`);
  const logger: Logger = {
    error: record("error"),
    warn: record("warn"),
    info: record("info"),
    debug: record("debug"),
  };
  const clock = new FakeClock({ auto: true });
  const service = new ServiceClient({
    baseURL: server.url,
    apiKey: "tml-test",
    clock,
    logger,
    logLevel: "info",
    random: () => 0.5,
    ...options,
  });
  return { service, clock, log, [Symbol.asyncDispose]: () => service.close() };
}

export function trainingClient(client: TestClient): Promise<TrainingClient> {
  return client.service.createLoraTrainingClient({ baseModel: "test/tiny", rank: 8 });
}

/** Starts a client and a training client with a server's settings. */
export async function startTraining(
  server: ProtocolServer,
  config: Record<string, unknown> = {},
): Promise<{ client: TestClient; training: TrainingClient }> {
  server.on("POST /api/v1/client/config", { json: config });
  const client = testClient(server);
  return { client, training: await trainingClient(client) };
}

export const datum = (tokens: number[] = [1, 2, 3]) => ({
  modelInput: tokens,
  lossFnInputs: { targetTokens: tokens, weights: tokens.map(() => 1) },
});

/** One sequence of this many tokens, as a server without any extras answers. */
export const sampleResponse = (tokens: number, parts: Partial<SampleResponse> = {}): SampleResponse => ({
  sequences: [
    {
      stopReason: "stop",
      sequenceId: null,
      tokens: new Int32Array(tokens),
      logprobs: new Float32Array(tokens),
      topkLogprobs: null,
    },
  ],
  promptLogprobs: null,
  topkPromptLogprobs: null,
  targetPromptLogprobs: null,
  promptCacheHitTokens: 0,
  promptAltTokens: null,
  ...parts,
});

/** The numbers of the training requests a server received, in order of arrival. */
export function seqIds(server: ProtocolServer, ...routes: string[]): number[] {
  return server.requests
    .filter((request) => routes.includes(`${request.method} ${request.path}`))
    .map((request) => (request.json() as { seq_id: number }).seq_id);
}
