import { execFile } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { defaultModel } from "../../src/local/default-model.js";
import { decodeForwardBackwardRequest } from "../../src/wire/protobuf.js";
import { silent } from "../local/raw-client.js";
import { explainSkip, hasPython, Judge, python, pythonFile } from "./judge.js";
import { plainRequest } from "./plain.js";
import { type RecordedRequest, startRecorder } from "./recorder.js";
import { writeReport } from "./report.js";
import { runSameScript } from "./same-script.js";

explainSkip("same-script.test.ts");

const run = promisify(execFile);

/** Small chunks, so that most batches of the script travel in several. */
const OPTIONS = {
  logger: silent,
  random: () => 0.5,
  clientConfig: { fwdbwdMaxChunkLen: 4, createModelViaLoadWeights: true },
};

/** Requests that come and go with time, or belong to the transport. */
const BACKGROUND: Readonly<Record<string, string>> = {
  "/session_heartbeat": "heartbeats follow the clock",
  "/telemetry": "telemetry follows the clock, and says other things",
  "/retrieve_future": "how often a result is asked for depends on when it is ready",
  "/retrieve_futures": "as above",
  "/client/config": "the Python SDK asks once for each of its REST clients",
  "/client/dynamic_config": "asked again in the background",
};

/** The package's model of each JSON body. */
const BODY_TYPES: Readonly<Record<string, string>> = {
  "/create_session": "CreateSessionRequest",
  "/create_model": "CreateModelRequest",
  "/get_info": "GetInfoRequest",
  "/optim_step": "OptimStepRequest",
  "/save_weights": "SaveWeightsRequest",
  "/save_weights_for_sampler": "SaveWeightsForSamplerRequest",
  "/load_weights": "LoadWeightsRequest",
  "/create_sampling_session": "CreateSamplingSessionRequest",
  "/asample": "SampleRequest",
};

interface Seen {
  readonly request: string;
  readonly seqId: number;
  readonly body: unknown;
}

describe.skipIf(!hasPython)("one script, through the Python SDK and through ours", () => {
  it("gives the same results, and the backend sees the same requests", async () => {
    const hasTorch = await run(python, ["-c", "import torch"]).then(
      () => true,
      () => false,
    );
    if (!hasTorch)
      console.log("The custom loss of the script is left out: the Python at hand has no PyTorch.");
    await using judge = new Judge();

    await using theirs = await startRecorder(OPTIONS);
    const { stdout } = await run(python, [pythonFile("same_script.py")], {
      env: {
        ...process.env,
        TINKER_BASE_URL: theirs.baseURL,
        TINKER_API_KEY: "tml-local",
        MODEL: defaultModel.name,
        ...(hasTorch ? { HAS_CUSTOM_LOSS: "1" } : {}),
      },
      maxBuffer: 2 ** 26,
    });
    const theirResults = JSON.parse(stdout.trim().split("\n").at(-1)!) as unknown[];

    await using ours = await startRecorder(OPTIONS);
    const ourResults = JSON.parse(
      JSON.stringify(await runSameScript(ours.baseURL, defaultModel.name, hasTorch)),
    ) as unknown[];

    expect(ourResults).toEqual(theirResults);
    const theirFiles = await checkpointFiles(theirs.backend.dataDir);
    expect([...theirFiles.keys()].sort()).toEqual([
      "again/adapter_config.json",
      "again/adapter_model.safetensors",
      "again/optimizer.safetensors",
      "sampler/adapter_config.json",
      "sampler/adapter_model.safetensors",
      "state/adapter_config.json",
      "state/adapter_model.safetensors",
      "state/optimizer.safetensors",
    ]);
    expect(await checkpointFiles(ours.backend.dataDir)).toEqual(theirFiles);

    const [seenTheirs, seenOurs] = [
      (await readRequests(judge, theirs.requests)).filter((_, index, all) => !isLookUp(all, index)),
      await readRequests(judge, ours.requests),
    ];
    expect(seenOurs.map(({ request, seqId }) => `${request} ${seqId}`)).toEqual(
      seenTheirs.map(({ request, seqId }) => `${request} ${seqId}`),
    );
    expect(seenOurs).toEqual(seenTheirs);
    expect(seenOurs.length).toBeGreaterThan(40);
    writeReport("same-script", {
      requests: seenOurs.length,
      differences: 0,
      compared: [
        "tokens",
        "logprobs",
        "metrics",
        hasTorch ? "a custom loss with its gradients" : "(no custom loss: PyTorch was not at hand)",
        `the ${theirFiles.size} files of three checkpoints (adapters and optimizer state)`,
      ],
      normalised: [
        "ids of sessions, which servers make up, and headers",
        "defaults that one side writes and the other leaves out (both bodies are read by the package's own model first), and `false` where the other writes nothing",
        "the order among the chunks of one batch, which travel side by side",
        "`sdk_version`: the version of the package that each side follows",
        "the package's look-ups of what it has just made (`GET /samplers/...`, `/get_info` behind `/load_weights`), which ours does when someone asks",
        ...Object.entries(BACKGROUND).map(([path, why]) => `\`${path}\` (${why})`),
      ],
    });
  }, 400_000);
});

/** From version 0.38 on the package asks for the base model of each sampler, and for the model that it has loaded. */
function isLookUp(seen: readonly Seen[], index: number): boolean {
  const { request } = seen[index]!;
  return (
    request.startsWith("GET /samplers/") ||
    (request === "POST /get_info" && seen[index - 1]?.request === "POST /load_weights")
  );
}

async function readRequests(judge: Judge, recorded: readonly RecordedRequest[]): Promise<Seen[]> {
  const seen: Seen[] = [];
  for (const { method, path, query, contentType, body, status } of recorded) {
    if (path in BACKGROUND) continue;
    expect(status, `${method} ${path}`).toBeLessThan(300);
    const text = Buffer.from(body).toString();
    const content: unknown =
      contentType === "application/x-protobuf"
        ? plainRequest(decodeForwardBackwardRequest(body))
        : body.length > 0
          ? await readBody(judge, path, text)
          : query;
    // A session's id is random, and with it the ids of its models and samplers.
    const stable = JSON.parse(JSON.stringify(content).replace(SESSION, "session"), comparable) as {
      seq_id?: number;
    };
    seen.push({
      request: `${method} ${path.replace(SESSION, "session")}`,
      seqId: stable.seq_id ?? 0,
      body: stable,
    });
  }
  return sortChunks(seen);
}

const SESSION = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g;

/**
 * Leaves out null, and false where nothing is the same as no (what is true by default has been filled in before), and
 * the version: each side sends the one that it follows.
 */
function comparable(key: string, value: unknown): unknown {
  return value === null || value === false || key === "sdk_version" ? undefined : value;
}

async function readBody(judge: Judge, path: string, text: string): Promise<unknown> {
  const type = BODY_TYPES[path];
  if (type === undefined) return JSON.parse(text);
  const [read] = await judge.ask<{ value?: unknown; error?: string }[]>("read", {
    type,
    bodies: [text],
    full: true,
  });
  if (read!.error !== undefined) throw new Error(`${path}: ${text} is not a ${type}: ${read!.error}`);
  return read!.value;
}

/** Chunks of one batch are neighbours, as the script does something else between two batches. */
function sortChunks(seen: readonly Seen[]): Seen[] {
  const sorted: Seen[] = [];
  for (let index = 0; index < seen.length; ) {
    let end = index + 1;
    while (seen[index]!.request === "POST /forward_backward" && seen[end]?.request === seen[index]!.request)
      end++;
    sorted.push(...seen.slice(index, end).sort((left, right) => left.seqId - right.seqId));
    index = end;
  }
  return sorted;
}

/** By the name of the checkpoint; what the store itself notes about it (times, ids) is not part of it. */
async function checkpointFiles(dataDir: string): Promise<Map<string, Buffer>> {
  const files = new Map<string, Buffer>();
  for (const entry of await readdir(dataDir, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || !/checkpoints/.test(entry.parentPath) || entry.name === "checkpoint.json")
      continue;
    const checkpoint = entry.parentPath.split("/").at(-1)!;
    if (["state", "again", "sampler"].includes(checkpoint)) {
      files.set(`${checkpoint}/${entry.name}`, await readFile(join(entry.parentPath, entry.name)));
    }
  }
  return files;
}
