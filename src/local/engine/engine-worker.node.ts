import { parentPort, workerData } from "node:worker_threads";
import type { EngineOptions, ReplaceableEngine, SampledToken } from "./engine.js";
import { callMethod } from "./engine-methods.js";
import { type Standstill, standStillIfAsked } from "./standstill.js";
import { createEngineCore } from "./start-engine.node.js";
import { type EngineAnswer, type EngineRequest, packError, transferables } from "./worker-messages.js";

const port = parentPort;
if (!port) throw new Error("engine-worker runs in a worker thread only");

const { options, standstill } = workerData as { options: EngineOptions; standstill: Standstill };
const send = (answer: EngineAnswer) => port.postMessage(answer, transferables(answer));

let engine: ReplaceableEngine;
try {
  engine = await createEngineCore(options, () => standStillIfAsked(standstill));
  engine.onLost((error) => send({ kind: "lost", error: packError(error) }));
  send({ kind: "ready", device: await engine.device() });
} catch (error) {
  send({ kind: "failed", error: packError(error) });
  throw error;
}

port.on("message", (request: EngineRequest) => {
  if (request.kind === "cancel") {
    engine.cancelSample(request.requestId);
    return;
  }
  const { id, method, wantsTokens } = request;
  const onToken = (token: SampledToken) => send({ kind: "token", id, token });
  const args = wantsTokens ? [...request.args, onToken] : request.args;
  Promise.resolve()
    .then(() => callMethod(engine, method, args))
    .then(
      (value) => send({ kind: "value", id, value }),
      (error: unknown) => send({ kind: "error", id, error: packError(error) }),
    )
    .then(() => {
      // From within: a thread that is ended by another in the middle of a call into Dawn takes the process along.
      if (method === "close") setImmediate(() => process.exit());
    });
});
