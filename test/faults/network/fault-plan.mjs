// Which fault meets which request. It follows from the seed, the operation and the number of the try, not from the
// order in which requests happen to arrive, so that a run can be repeated from its seed.
import { peekRequest } from "../../../dist/wire/protobuf.js";
import { between, oneOf, randomFor, weighted } from "../shared/random.mjs";

const ALL = ["submit", "save", "poll", "poll-many", "other"];
const POLLS = ["poll", "poll-many"];

/**
 * Every kind of fault, with the requests on which a client can mend it by the protocol:
 * a 409 to a named save means that the name is taken, a 410 anywhere but on a poll that the session or model is
 * gone, a 400 with a body to anything but a poll that the request is wrong. Those are answers, not faults.
 * "bad" answers are those a client asks for again three times at most, "gone" those after which it sends the
 * request again three times at most.
 */
const KINDS = {
  latency: { on: ALL },
  reset: { on: ALL },
  "reset-mid-request": { on: ALL },
  "half-close": { on: ALL },
  "half-close-to-server": { on: ALL },
  "truncated-body": { on: ALL },
  "trickled-answer": { on: ALL },
  "trickled-request": { on: ALL },
  "dropped-answer": { on: ALL },
  "duplicated-request": { on: ALL },
  silence: { on: ALL, share: 0.1 },
  408: { on: ALL },
  "408-queue-state": { on: ["poll"] },
  409: { on: ["submit", "other"] },
  425: { on: ALL },
  "429-seconds": { on: ALL },
  "429-date": { on: ALL },
  "429-milliseconds": { on: ALL },
  "429-no-retry-after": { on: ALL },
  "429-absurd-retry-after": { on: ALL },
  402: { on: ALL, share: 0.2 },
  410: { on: ["poll"], group: "gone" },
  500: { on: ALL },
  502: { on: ALL },
  503: { on: ALL },
  504: { on: ALL },
  "400-empty": { on: ALL },
  400: { on: POLLS, group: "bad" },
  "html-error-page": { on: ALL },
  "html-page": { on: ALL, group: "bad" },
  "wrong-content-type": { on: ALL, group: "bad" },
  "corrupt-protobuf": { on: ["poll"], group: "bad" },
  "cut-json": { on: ALL, group: "bad" },
  "late-duplicate": { on: ALL, share: 3 },
};

const MOST_IN_A_ROW = 6;
const MOST_OF_GROUP = 3;
const MOST_SILENCES = 1;

const SUBMITS = new Set(
  [
    "forward_backward",
    "forward",
    "optim_step",
    "load_weights",
    "create_model",
    "unload_model",
    "asample",
  ].map((name) => `/api/v1/${name}`),
);
const SAVES = new Set(["/api/v1/save_weights", "/api/v1/save_weights_for_sampler"]);

export class FaultPlan {
  /** Faults met so far, by kind. */
  injected = {};
  /** Milliseconds of each way, and by how much that varies. */
  latencyMs;
  jitterMs;
  #seed;
  #rate;
  #weights = new Map();
  #operations = new Map();
  #requests = 0;
  #connections = 0;
  #silences = 0;

  constructor(seed) {
    this.#seed = seed;
    const random = randomFor(seed, "mix");
    this.#rate = between(random, 0.04, 0.3);
    this.latencyMs = oneOf(random, [0, 0, 1, 3]);
    this.jitterMs = oneOf(random, [0, 1, 4]);
    for (const [kind, { share = 1 }] of Object.entries(KINDS)) {
      // A third of all kinds is absent from each run, the others come in very different shares.
      if (random() < 1 / 3) continue;
      this.#weights.set(kind, share * -Math.log(1 - random()));
    }
    this.slowConnections = oneOf(random, [0, 0.02, 0.1]);
    this.outages = oneOf(random, [0, 0.0005, 0.002]);
  }

  count(kind) {
    this.injected[kind] = (this.injected[kind] ?? 0) + 1;
  }

  /** Bytes per second of the next connection. */
  bandwidth() {
    const random = randomFor(this.#seed, "connection", this.#connections++);
    if (random() >= this.slowConnections) return Number.POSITIVE_INFINITY;
    this.count("bandwidth-limit");
    return between(random, 10_000, 200_000);
  }

  /** How long nothing can be reached from now on, mostly 0. */
  outageMs() {
    const random = randomFor(this.#seed, "outage", this.#requests++);
    if (random() >= this.outages) return 0;
    this.count("refused-connections");
    return between(random, 10, 150);
  }

  /** The fault of this request, if any, with a generator for its details. */
  faultOf(request) {
    const { route, operation } = describe(request);
    const state = this.#operations.get(operation) ?? { tries: 0, inARow: 0, bad: 0, gone: 0 };
    this.#operations.set(operation, state);
    const random = randomFor(this.#seed, operation, state.tries++);
    const isHit = random() < this.#rate && state.inARow < MOST_IN_A_ROW;
    const kind = isHit ? weighted(random, this.#possible(route, state)) : undefined;
    if (kind === undefined) {
      state.inARow = 0;
      return undefined;
    }
    state.inARow += 1;
    const { group } = KINDS[kind];
    if (group !== undefined) state[group] += 1;
    if (kind === "silence") this.#silences += 1;
    this.count(kind);
    return { kind, random };
  }

  #possible(route, state) {
    const possible = new Map();
    for (const [kind, weight] of this.#weights) {
      const { on, group } = KINDS[kind];
      if (!on.includes(route) || (group !== undefined && state[group] >= MOST_OF_GROUP)) continue;
      // Each one costs a whole timeout.
      if (kind === "silence" && this.#silences >= MOST_SILENCES) continue;
      possible.set(kind, weight);
    }
    return possible;
  }
}

/** What a request is about, without the ids that differ from run to run. */
function describe({ path, body, headers }) {
  const [pathname] = path.split("?");
  let fields = {};
  if (headers.get("content-type") === "application/x-protobuf") {
    const { modelId, seqId } = peekRequest(body);
    fields = { model_id: modelId, seq_id: seqId };
  } else if (body.length > 0) {
    fields = JSON.parse(body.toString());
  }
  const ids = [
    fields.request_id,
    fields.model_id ?? fields.sampling_session_id ?? fields.target?.sampling_session_id,
    fields.seq_id,
  ];
  return {
    route: routeOf(pathname),
    operation: [pathname, ...ids.map((id) => String(id ?? "").replace(/^[^:]*:/, ""))]
      .join(" ")
      .replace(/[0-9a-f-]{36}/g, "*"),
  };
}

function routeOf(pathname) {
  if (pathname === "/api/v1/retrieve_future") return "poll";
  if (pathname === "/api/v1/retrieve_futures") return "poll-many";
  if (SAVES.has(pathname)) return "save";
  return SUBMITS.has(pathname) ? "submit" : "other";
}
