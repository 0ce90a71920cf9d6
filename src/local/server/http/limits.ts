/**
 * Bounds on what clients may ask of the server, so that no request can take it down. Of one that is called shared, with
 * keys, half is first come, first served, and the other half is divided between the keys and kept for them.
 */
export interface Limits {
  /** Bytes of one request body as it arrives. */
  readonly bodyBytes: number;
  /** Bytes of one request body after decompression. */
  readonly decompressedBytes: number;
  /** Bytes of one JSON body, decompressed: it is parsed in one go, while no other request is served. */
  readonly jsonBytes: number;
  /** Objects, lists, texts and keys of one JSON body: each is an object in memory. */
  readonly jsonParts: number;
  /** Values of all kinds in the lists and objects of one JSON body. */
  readonly jsonValues: number;
  /** Bytes of all bodies that are arriving at one time; shared. */
  readonly arrivingBytes: number;
  /** A body of which nothing comes for this long is given up. */
  readonly bodyIdleMs: number;
  /** A body that comes more slowly than this, after its first `bodyIdleMs`, is given up. */
  readonly bodyBytesPerSecond: number;
  readonly datumsPerRequest: number;
  readonly tokensPerRequest: number;
  /** K of soft targets. */
  readonly targetsPerToken: number;
  /** Targets of one request, those of sparse tensors written out. */
  readonly targetsPerRequest: number;
  readonly loraRank: number;
  readonly modelsPerSession: number;
  /** Custom losses stored for one session. */
  readonly customLossesPerSession: number;
  /** Bytes of the graph of one custom loss, as JSON. */
  readonly customLossGraphBytes: number;
  /** Bytes of the custom losses of all sessions; shared. */
  readonly customLossBytes: number;
  /** Sessions that are open at one time; shared. */
  readonly openSessions: number;
  /** Models being trained in all sessions; shared. */
  readonly openModels: number;
  /** Samplers kept for one session, the newest. */
  readonly samplersPerSession: number;
  /** Training requests that wait for one model. */
  readonly queuedRequestsPerModel: number;
  /** Bytes of training requests that wait for all models, and bytes of prompts and schemas that wait to be sampled; shared. */
  readonly queuedBytes: number;
  /** Sequences being sampled or waiting, over all clients; shared. */
  readonly queuedSequences: number;
  readonly samplesPerRequest: number;
  /** Top-k, alternatives and targets for each position. */
  readonly tokensPerPosition: number;
  /** Likeliest tokens over all positions of a request; one sequence may have `tokensPerPosition` over its whole context. */
  readonly likeliestTokens: number;
  readonly stopSequences: number;
  /** Bytes of results kept for clients to fetch; shared. */
  readonly resultBytes: number;
  /** Results already fetched, kept a while for clients that lost the answer: how many of each owner, and how many bytes. */
  readonly fetchedResults: number;
  readonly fetchedResultBytes: number;
  /** Answers of OpenAI's Responses API kept for each owner, and bytes of those of all owners. */
  readonly storedResponses: number;
  readonly storedResponseBytes: number;
  /** Results above this are announced by size first when the client allows it. */
  readonly inlineResultBytes: number;
  /** Sampler weights held in memory at once; the others wait on disk. */
  readonly loadedSamplers: number;
  /** Unnamed sampler weights kept for one session. */
  readonly ephemeralSamplers: number;
  /** Unnamed sampler weights of all sessions; shared. */
  readonly unnamedSamplers: number;
  /** Bytes of all checkpoints and spilled sampler weights on disk; shared. By default as many as the disk holds. */
  readonly diskBytes: number;
  /** Requests of one session kept for its trace. */
  readonly traceEvents: number;
}

/** Default bounds of a server. */
export const defaultLimits: Limits = {
  bodyBytes: 64 * 2 ** 20,
  decompressedBytes: 64 * 2 ** 20,
  jsonBytes: 16 * 2 ** 20,
  jsonParts: 2 ** 18,
  jsonValues: 2 * 2 ** 20,
  arrivingBytes: 512 * 2 ** 20,
  bodyIdleMs: 30_000,
  bodyBytesPerSecond: 32 * 1024,
  datumsPerRequest: 4096,
  tokensPerRequest: 4 * 2 ** 20,
  targetsPerToken: 256,
  targetsPerRequest: 8 * 2 ** 20,
  loraRank: 256,
  modelsPerSession: 512,
  customLossesPerSession: 256,
  customLossGraphBytes: 512 * 1024,
  customLossBytes: 64 * 2 ** 20,
  openSessions: 1024,
  openModels: 2048,
  samplersPerSession: 4096,
  queuedRequestsPerModel: 4096,
  queuedBytes: 2 ** 30,
  queuedSequences: 32_768,
  samplesPerRequest: 1024,
  tokensPerPosition: 256,
  likeliestTokens: 2 ** 20,
  stopSequences: 64,
  resultBytes: 512 * 2 ** 20,
  fetchedResults: 1000,
  fetchedResultBytes: 8 * 2 ** 20,
  storedResponses: 1000,
  storedResponseBytes: 256 * 2 ** 20,
  inlineResultBytes: 2 ** 20,
  loadedSamplers: 24,
  ephemeralSamplers: 256,
  unnamedSamplers: 2048,
  diskBytes: Number.POSITIVE_INFINITY,
  traceEvents: 4_000,
};
