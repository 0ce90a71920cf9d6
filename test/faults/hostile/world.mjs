// Two customers of one server: a victim with things worth stealing, and an attacker with a key of its own.
import { fork } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";

export const BASE_MODEL = "tinkerts/nano";
export const NANO = fileURLToPath(new URL("../../../models/nano", import.meta.url));
/** Short, so that those who send half a body get their answer within the suite's patience. */
export const BODY_IDLE_MS = 400;

export class World {
  constructor(folder, child, port, victim, attacker, outsider) {
    Object.assign(this, { folder, child, port, victim, attacker, outsider });
    this.dataDir = join(folder, "data");
    this.crashed = undefined;
    child.on("exit", (code, signal) => {
      this.crashed = `the server's process ended (${code ?? signal})`;
    });
  }

  /** `makeModels(folder)` writes models and gives their names and paths: the server has them beside its own. */
  static async start(limits = {}, makeModels = async () => []) {
    const folder = await mkdtemp(join(tmpdir(), "tinkerts-hostile-"));
    await mkdir(join(folder, "models"));
    const models = await makeModels(join(folder, "models"));
    const outsideSecret = `outside-${randomBytes(12).toString("hex")}`;
    await writeFile(join(folder, "secret.txt"), outsideSecret);
    await mkdir(join(folder, "neighbour"));
    await writeFile(join(folder, "neighbour", "adapter_config.json"), JSON.stringify({ outsideSecret }));
    const keys = ["victim", "attacker"].map((name) => `tml-${name}-${randomBytes(12).toString("hex")}`);
    const settings = {
      dataDir: join(folder, "data"),
      apiKeys: keys,
      models: [{ name: BASE_MODEL, path: NANO }, ...models],
      limits: { bodyIdleMs: BODY_IDLE_MS, ...limits },
    };
    const child = fork(fileURLToPath(new URL("./server.mjs", import.meta.url)), [JSON.stringify(settings)], {
      execArgv: ["--expose-gc"],
      stdio: ["ignore", "inherit", "inherit", "ipc"],
    });
    const [{ baseURL }] = await once(child, "message");
    const port = Number(new URL(baseURL).port);
    const [victim, attacker] = keys.map((key) => new Customer(baseURL, key));
    const world = new World(folder, child, port, victim, attacker, { secret: outsideSecret });
    await victim.settle("victim");
    await victim.publishSomething();
    await attacker.settle("attacker");
    await attacker.prepareForAttack();
    world.secrets = await world.#secrets(outsideSecret);
    world.before = await world.#snapshot();
    return world;
  }

  async memory() {
    this.child.send("memory");
    const [answer] = await once(this.child, "message");
    return answer;
  }

  /** What no answer to the attacker may hold. */
  async #secrets(outsideSecret) {
    const weights = await readFile(
      join(this.#runFolder(this.victim.model), "checkpoints/weights/canary/adapter_model.safetensors"),
    );
    return [
      ["a file outside the data folder", Buffer.from(outsideSecret)],
      ["the victim's metadata", Buffer.from(this.victim.secret)],
      ["the victim's key", Buffer.from(this.victim.key)],
      ["the victim's weights", weights.subarray(-64)],
      ["the path of the data folder", Buffer.from(this.dataDir)],
    ];
  }

  #runFolder(runId) {
    return join(this.dataDir, "runs", runId.replaceAll(":", "_"));
  }

  /** Everything that must be the same afterwards: what lies outside the data folder, and what the victim has and sees. */
  async #snapshot() {
    const files = {};
    for (const path of await allFiles(this.folder)) {
      const name = relative(this.folder, path);
      const isVictims = this.victim.owns(name);
      if (!name.startsWith("data/") || isVictims)
        files[name] = createHash("sha256")
          .update(await readFile(path))
          .digest("hex");
    }
    const views = {};
    for (const path of this.victim.viewPaths()) views[path] = await this.victim.get(path);
    return { files, views };
  }

  /** Differences between the victim's world before and after, one sentence each. */
  async damage() {
    const found = [];
    const after = await this.#snapshot();
    for (const part of ["files", "views"]) {
      for (const name of new Set([...Object.keys(this.before[part]), ...Object.keys(after[part])])) {
        const [was, is] = [this.before[part][name], after[part][name]].map((value) => JSON.stringify(value));
        if (was !== is) found.push(`${name} is ${is?.slice(0, 300)}, was ${was?.slice(0, 300)}`);
      }
    }
    for (const path of await allFiles(this.dataDir)) {
      const name = relative(this.dataDir, path);
      if (!EXPECTED_FILE.test(name)) found.push(`a file where none belongs: ${name}`);
    }
    found.push(...(await this.victim.trainsOnAsBefore(this)));
    return found;
  }

  async close() {
    if (this.crashed === undefined) {
      this.child.send("close");
      await once(this.child, "exit");
    }
    await rm(this.folder, { recursive: true, force: true });
  }
}

const EXPECTED_FILE =
  /^(secret$|\.lock|(sessions|traces)\/[\w-]+\.json|(usage|audit)\/[\w-]+\.jsonl?|runs\/[\w-]+\/(run\.json|checkpoints\/(weights|sampler_weights|external_weights)\/[\w.-]+\/(checkpoint\.json|adapter_config\.json|(adapter_model|optimizer)\.safetensors))|spill\/sampler-\d+\/[\w.]+)$/;

async function allFiles(folder) {
  const files = [];
  for (const name of await readdir(folder)) {
    const path = join(folder, name);
    const found = await stat(path).catch(() => undefined);
    if (found?.isDirectory()) files.push(...(await allFiles(path)));
    else if (found !== undefined) files.push(path);
  }
  return files;
}

/** A tenant with a key, a session, a model, checkpoints and samplers. */
class Customer {
  constructor(baseURL, key) {
    Object.assign(this, { baseURL, key, secret: `private-${randomBytes(12).toString("hex")}` });
  }

  async call(method, path, body) {
    const response = await fetch(`${this.baseURL}/api/v1${path}`, {
      method,
      headers: { "x-api-key": this.key, "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    return { status: response.status, body: text === "" ? null : JSON.parse(text) };
  }

  get = (path) => this.call("GET", path);

  async post(path, body) {
    const answer = await this.call("POST", path, body);
    if (answer.status !== 200)
      throw new Error(`POST ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
    return answer.body;
  }

  async result(path, body) {
    const { request_id: requestId } = await this.post(path, body);
    const result = await this.resultOf(requestId);
    const refusal = result.error ?? result.detail;
    if (refusal !== undefined) throw new Error(`${path}: ${JSON.stringify(refusal)}`);
    return { requestId, ...result };
  }

  /** The body of a result, however long it takes; that of a refusal where it is gone. */
  async resultOf(requestId) {
    for (;;) {
      const { body } = await this.call("POST", "/retrieve_future", { request_id: requestId });
      if (body.type !== "try_again") return body;
    }
  }

  async settle(name) {
    const metadata = name === "victim" ? { secret: this.secret } : { name };
    const { session_id: session } = await this.post("/create_session", {
      tags: name === "victim" ? [this.secret] : [],
      display_name: metadata.secret ?? name,
      project_id: metadata.secret ?? name,
      user_metadata: metadata,
      sdk_version: "0.36.0",
    });
    this.session = session;
    this.model = await this.createModel(0, metadata);
    await this.result("/forward_backward", passBody(this.model, 1));
    await this.result("/optim_step", {
      model_id: this.model,
      seq_id: 2,
      adam_params: { learning_rate: 1e-3 },
    });
    const saved = { model_id: this.model, path: "canary", user_metadata: metadata };
    this.weights = (await this.result("/save_weights", { ...saved, seq_id: 3 })).path;
    this.samplerWeights = (await this.result("/save_weights_for_sampler", { ...saved, seq_id: 4 })).path;
    this.externalWeights = (await this.result("/save_weights_external", { ...saved, seq_id: 5 })).path;
    const sampler = { model_id: this.model, seq_id: 6, sampling_session_seq_id: 0 };
    this.sampler = (await this.result("/save_weights_for_sampler", sampler)).sampling_session_id;
    const sample = await this.result("/asample", sampleBody(this.sampler, 0));
    this.request = sample.requestId;
    this.sampled = JSON.stringify(sample.sequences);
    this.nextSeqId = 7;
  }

  /** Fields that may be lost, and links to other objects, which can be changed. */
  async prepareForAttack() {
    this.spareSession = (await this.post("/create_session", {})).session_id;
    const checkpoints = `/training_runs/${this.model}/checkpoints`;
    this.links = {
      archive: (await this.getJson(`${checkpoints}/weights/canary/archive`)).url,
      file: (await this.getJson(`${checkpoints}/external_weights/canary/external_weights_urls`)).urls[
        "adapter_model.safetensors"
      ],
      trace: (await this.getJson(`/sessions/${this.session}/trace_export`)).url,
    };
  }

  async getJson(path) {
    const response = await fetch(`${this.baseURL}/api/v1${path}`, {
      headers: { "x-api-key": this.key, accept: "application/json" },
    });
    return response.json();
  }

  async createModel(modelSeqId, metadata = {}) {
    const model = await this.result("/create_model", {
      session_id: this.session,
      model_seq_id: modelSeqId,
      base_model: BASE_MODEL,
      user_metadata: metadata,
      lora_config: { rank: 4, seed: modelSeqId + 1 },
    });
    return model.model_id;
  }

  async publishSomething() {
    const model = await this.createModel(1);
    const { path } = await this.result("/save_weights", { model_id: model, path: "open", seq_id: 1 });
    this.published = path;
    const [, , run, kind, name] = path.split("/");
    const answer = await this.call("POST", `/training_runs/${run}/checkpoints/${kind}/${name}/publish`);
    if (answer.status !== 204) throw new Error(`publish: ${answer.status}`);
  }

  owns(file) {
    // The records beside them hold times that change with every request; the views say what matters of those.
    return file.startsWith(`data/runs/${this.session}_`) && !file.endsWith("run.json");
  }

  viewPaths() {
    return [
      `/sessions/${this.session}`,
      "/sessions",
      "/checkpoints",
      `/training_runs/${this.model}/checkpoints`,
      `/samplers/${this.sampler}`,
      "/audit",
    ];
  }

  /** The model as it was, its next number free, its results there. */
  async trainsOnAsBefore(world) {
    const found = [];
    const again = await this.result("/save_weights", {
      model_id: this.model,
      path: "after",
      seq_id: this.nextSeqId,
    });
    const folder = join(world.dataDir, "runs", this.model.replaceAll(":", "_"), "checkpoints/weights");
    for (const file of ["adapter_model.safetensors", "optimizer.safetensors"]) {
      const [was, is] = await Promise.all(
        ["canary", "after"].map((name) => readFile(join(folder, name, file))),
      );
      if (!was.equals(is)) found.push(`the victim's ${file} has changed: ${again.path}`);
    }
    const run = (await this.get(`/training_runs/${this.model}`)).body;
    if (run.corrupted !== false) found.push(`the victim's run is ${JSON.stringify(run)}`);
    const sample = await this.result("/asample", sampleBody(this.sampler, 1));
    if (JSON.stringify(sample.sequences) !== this.sampled)
      found.push("the victim's sampler samples something else");
    return found;
  }
}

export function passBody(model, seqId) {
  return {
    model_id: model,
    seq_id: seqId,
    forward_backward_input: {
      loss_fn: "cross_entropy",
      data: [
        {
          model_input: { chunks: [{ type: "encoded_text", tokens: [7, 8, 9] }] },
          loss_fn_inputs: {
            target_tokens: { data: [8, 9, 10], dtype: "int64", shape: [3] },
            weights: { data: [1, 1, 1], dtype: "float32", shape: [3] },
          },
        },
      ],
    },
  };
}

export function sampleBody(sampler, seqId) {
  return {
    sampling_session_id: sampler,
    seq_id: seqId,
    num_samples: 1,
    prompt: { chunks: [{ type: "encoded_text", tokens: [7, 8] }] },
    sampling_params: { max_tokens: 4, seed: 5, temperature: 1 },
    type: "sample",
  };
}
