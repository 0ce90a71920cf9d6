/** Bounds on what clients may ask of the server, so that no request can take it down. */
export interface Limits {
  /** Bytes of one request body as it arrives. */
  readonly bodyBytes: number;
  /** Bytes of one request body after decompression. */
  readonly decompressedBytes: number;
  /** Bytes of one JSON body, decompressed: it is parsed in one go, while nobody else is served. */
  readonly jsonBytes: number;
  /** Bytes of all bodies that are arriving at one time. */
  readonly arrivingBytes: number;
  /** A body of which nothing comes for this long is given up. */
  readonly bodyIdleMs: number;
  readonly datumsPerRequest: number;
  readonly tokensPerRequest: number;
  /** K of soft targets. */
  readonly targetsPerToken: number;
  readonly loraRank: number;
  readonly modelsPerSession: number;
  readonly openSessions: number;
  /** Training requests that wait for one model. */
  readonly queuedRequestsPerModel: number;
  /** Bytes of training data that wait for all models. */
  readonly queuedBytes: number;
  /** Sequences being sampled or waiting, over all clients. */
  readonly queuedSequences: number;
  readonly samplesPerRequest: number;
  /** Top-k, alternatives and targets for each position. */
  readonly tokensPerPosition: number;
  readonly stopSequences: number;
  /** Bytes of results kept for clients to fetch. */
  readonly resultBytes: number;
  /** Results already fetched, kept a while for clients that lost the answer: how many, and how many bytes. */
  readonly fetchedResults: number;
  readonly fetchedResultBytes: number;
  /** Results above this are announced by size first when the client allows it. */
  readonly inlineResultBytes: number;
  /** Sampler weights held in memory at once; the others wait on disk. */
  readonly loadedSamplers: number;
  /** Unnamed sampler weights kept for one session. */
  readonly ephemeralSamplers: number;
  /** Requests of one session kept for its trace. */
  readonly traceEvents: number;
}

/** The bounds of a server that sets none of its own. */
export const defaultLimits: Limits = {
  bodyBytes: 64 * 2 ** 20,
  decompressedBytes: 64 * 2 ** 20,
  jsonBytes: 16 * 2 ** 20,
  arrivingBytes: 512 * 2 ** 20,
  bodyIdleMs: 30_000,
  datumsPerRequest: 4096,
  tokensPerRequest: 4 * 2 ** 20,
  targetsPerToken: 256,
  loraRank: 256,
  modelsPerSession: 512,
  openSessions: 1024,
  queuedRequestsPerModel: 4096,
  queuedBytes: 2 ** 30,
  queuedSequences: 32_768,
  samplesPerRequest: 1024,
  tokensPerPosition: 256,
  stopSequences: 64,
  resultBytes: 512 * 2 ** 20,
  fetchedResults: 1000,
  fetchedResultBytes: 8 * 2 ** 20,
  inlineResultBytes: 2 ** 20,
  loadedSamplers: 24,
  ephemeralSamplers: 256,
  traceEvents: 10_000,
};
