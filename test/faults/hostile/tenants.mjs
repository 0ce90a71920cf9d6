// A customer who takes as much as it gets of everything that is shared: sessions, models, places in the sampler's queue,
// stored results, disk and memory for arriving bodies. The server's limits are low, so that a few hundred requests reach them;
// that each was reached is asserted, and that the neighbour can still do all of it.
import { send } from "./send.mjs";
import { BASE_MODEL, sampleBody } from "./world.mjs";

const MIB = 2 ** 20;
/** Requests of one kind that follow each other, so that several are under way at once. */
const IN_A_ROW = 8;

const post = (world, path, body, manner) => ({
  request: {
    method: "POST",
    path: `/api/v1${path}`,
    headers: [
      ["x-api-key", world.attacker.key],
      ["content-type", "application/json"],
    ],
    body: Buffer.from(JSON.stringify(body)),
    ...(manner && { manner }),
  },
});

const sample = (world, seqId, changes, params) => {
  const body = sampleBody(world.attacker.sampler, seqId);
  return { ...body, ...changes, sampling_params: { ...body.sampling_params, ...params } };
};

const saved = (world, before) => ({
  model_id: world.attacker.model,
  path: `taken-${before}`,
  seq_id: world.attacker.nextSeqId + before,
});

const largeBody = () => ({ events: "a".repeat(5 * MIB) });

/**
 * By what is used up: `make` from the world, the number of the request, and how many of its kind came before; `refusal`, what
 * the server says at the limit, at once or in the result that the request promises (`inResult`): one that is fetched as soon
 * as it is there, or only at the end, when later results have taken its place.
 */
const KINDS = {
  sessions: {
    make: (world) => post(world, "/create_session", {}),
    refusal: /^You have \d+ open sessions, and may have \d+ now/,
  },
  models: {
    make: (world, _, before) =>
      post(world, "/create_model", {
        session_id: world.attacker.session,
        model_seq_id: 1 + before,
        base_model: BASE_MODEL,
        lora_config: { rank: 4 },
      }),
    refusal: /^You have \d+ models in training, and may have \d+ now/,
  },
  results: {
    make: (world, index) =>
      post(world, "/asample", {
        ...sample(world, 1000 + index, {}, { max_tokens: 1 }),
        prompt: {
          chunks: [{ type: "encoded_text", tokens: Array.from({ length: 500 }, (_, at) => 20 + (at % 64)) }],
        },
        topk_prompt_logprobs: 20,
      }),
    inResult: "at the end",
    refusal: /^The result of request \S+ is gone/,
  },
  "checkpoints on disk": {
    make: (world, _, before) => post(world, "/save_weights", saved(world, before)),
    inResult: "soon",
    refusal: /of disk that you may use now/,
  },
  "copies on disk": {
    make: (world) =>
      post(world, "/copy_weights", { source_path: world.attacker.weights, destination_project_id: "p" }),
    refusal: /of disk that you may use now/,
  },
  "arriving bodies": {
    make: (world) => post(world, "/telemetry", largeBody(), "stall"),
    refusal: /^Your request bodies of \d+ bytes are arriving at once; at most \d+ may now/,
  },
  "slow bodies": {
    make: (world) => post(world, "/telemetry", { events: "a".repeat(1000) }, "stall"),
    refusal: /^The request body stopped after \d+ bytes/,
  },
  sequences: {
    make: (world, index) =>
      post(world, "/asample", sample(world, 1000 + index, { num_samples: 64 }, { max_tokens: 500 })),
    refusal: /sequences are being sampled or waiting, \d+ of them yours; at most \d+ may/,
  },
};
const NAMES = Object.keys(KINDS);

/** What the server refused, kind by kind, and the requests whose results may say more. */
class Attack {
  #reached = new Set();
  /** By kind: functions that fetch one result. */
  #results = Object.fromEntries(NAMES.map((name) => [name, []]));

  see(kind, answer, world) {
    const body = JSON.parse(answer.body.toString("utf8") || "{}");
    if (answer.status !== 200) return this.#note(kind, body);
    const when = KINDS[kind].inResult;
    if (when === undefined || this.#reached.has(kind)) return;
    const fetched = () => world.attacker.resultOf(body.request_id);
    const soon = when === "soon" ? fetched().catch(() => ({})) : undefined;
    this.#results[kind].push(() => soon ?? fetched());
  }

  #note(kind, body) {
    if (KINDS[kind].refusal.test(body.error ?? body.detail?.[0]?.msg ?? body.detail)) this.#reached.add(kind);
  }

  /** The limits that were not reached, a sentence each. */
  async missed() {
    for (const [kind, results] of Object.entries(this.#results)) {
      for (const result of results) if (!this.#reached.has(kind)) this.#note(kind, await result());
    }
    return NAMES.filter((name) => !this.#reached.has(name)).map(
      (name) => `tenants: the limit of ${name} was never reached`,
    );
  }
}

/** The neighbour's requests while the attacker holds its share and its bodies are arriving. */
async function harmToNeighbour(world) {
  const { victim } = world;
  const slow = Array.from({ length: 4 }, () =>
    send({ port: world.port }, post(world, "/telemetry", largeBody(), "stall").request),
  );
  const works = {
    "open a session": () => victim.post("/create_session", {}),
    "train another model": () => victim.createModel(9),
    "save weights": () =>
      victim.result("/save_weights", {
        model_id: victim.model,
        path: "meanwhile",
        seq_id: victim.nextSeqId + 1,
      }),
    "copy weights": () =>
      victim.post("/copy_weights", { source_path: victim.weights, destination_project_id: "p" }),
    "send a body of 1 MiB": () => victim.post("/telemetry", { events: [], note: "a".repeat(MIB) }),
    "get the result of 64 samples": () =>
      victim.result("/asample", { ...sampleBody(victim.sampler, 77), num_samples: 64 }),
  };
  const failures = [];
  for (const [work, run] of Object.entries(works))
    await run().catch((error) => failures.push(`tenants: the neighbour cannot ${work}: ${error.message}`));
  await Promise.all(slow);
  return failures;
}

export const tenants = {
  name: "tenants",
  /** Fewer do not reach every limit. */
  least: 3 * IN_A_ROW * NAMES.length,
  limits: {
    openSessions: 16,
    openModels: 16,
    queuedSequences: 256,
    resultBytes: MIB / 2,
    arrivingBytes: 8 * MIB,
    diskBytes: 16 * MIB,
  },
  ordinary: (_random, world) => {
    const model = world.attacker.samplerWeights;
    const { request } = post(world, "", { model, prompt: [7, 8], n: 4, max_tokens: 64 });
    return { kind: "ordinary", request: { ...request, path: "/v1/completions" } };
  },
  hostile: (_random, world, index) => {
    const row = Math.floor(index / IN_A_ROW);
    const kind = NAMES[row % NAMES.length];
    const before = Math.floor(row / NAMES.length) * IN_A_ROW + (index % IN_A_ROW);
    return { kind, ...KINDS[kind].make(world, index, before) };
  },
  begin: () => {
    const attack = new Attack();
    return {
      see: (kind, answer, world) => attack.see(kind, answer, world),
      end: async (world) => [...(await attack.missed()), ...(await harmToNeighbour(world))],
    };
  },
};
