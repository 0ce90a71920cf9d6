import { ValidationError } from "../../../errors.js";
import { compileLossGraph } from "../../../training/loss-graph/index.js";
import { inWireWords } from "../../../wire/endpoints/field-names.js";
import { endpoints } from "../../../wire/endpoints/index.js";
import type { CustomLossGraph, CustomLossInput } from "../../../wire/training/custom-loss-graph.js";
import { outcomeOf } from "../futures/future-store.js";
import { conflict, HttpError, invalid, tooBusy } from "../http/http-error.js";
import type { Route } from "../http/route.js";
import type { Services } from "../services.js";
import { fingerprintJson } from "../sessions/fingerprint.js";
import type { LiveSession, SessionLoss } from "../sessions/live-sessions.js";

/** Custom losses: checked and kept with the session that creates them. */
export function addCustomLossRoute(route: Route, services: Services): void {
  const { sessions, futures, limits, clientConfig } = services;
  const endpoint = endpoints.createCustomLoss;

  route(endpoint, (request, call) => {
    const session = sessions.use(call.get("identity"), request.sessionId);
    if (clientConfig.customLossServerSide !== true)
      throw invalid("graph", "cannot be stored: this server was started without custom losses");
    const { graph, inputs } = request;
    // First of all: what follows goes through its arguments, however deep they are.
    checkGraph(graph, inputs);
    const bytes = checkSize(graph);
    const lossId = `${session.record.id}:loss:${request.customLossSeqId}`;
    const known = session.customLosses.get(lossId);
    const fingerprint = fingerprintJson(request);
    if (known === undefined)
      session.customLosses.set(lossId, newLoss(session, { ...request, fingerprint, bytes }));
    else if (known.fingerprint !== fingerprint)
      throw conflict(
        `Session ${session.record.id} has created another loss under number ${request.customLossSeqId}.`,
      );
    const future = futures.get(lossId) ?? futures.create({ requestId: lossId, owner: session.record.owner });
    futures.end(future, outcomeOf(endpoint, { lossId }));
    return { requestId: lossId };
  });

  function newLoss(
    session: LiveSession,
    { name, inputs, graph, fingerprint, bytes }: SessionLoss,
  ): SessionLoss {
    const { size } = session.customLosses;
    if (size >= limits.customLossesPerSession)
      throw new HttpError(
        400,
        `Session ${session.record.id} has ${size} custom losses, its limit; open a new session.`,
      );
    const held = sessions.held(limits.customLossBytes, ({ customLosses }) =>
      [...customLosses.values()].reduce((sum, loss) => sum + loss.bytes, 0),
    );
    if (!held.admits(session.record.owner, bytes))
      throw tooBusy("Your sessions hold too many custom losses; close some sessions first.", 5);
    return { name: name.slice(0, MAX_NAME_CHARACTERS), inputs, graph, fingerprint, bytes };
  }

  function checkSize(graph: CustomLossGraph): number {
    const bytes = JSON.stringify(graph).length;
    if (bytes <= limits.customLossGraphBytes) return bytes;
    throw invalid("graph", `has ${bytes} bytes; at most ${limits.customLossGraphBytes} are allowed`);
  }
}

const MAX_NAME_CHARACTERS = 256;

/** A graph that this server cannot run is refused at once, in the words of the wire. */
function checkGraph(graph: CustomLossGraph, inputs: readonly CustomLossInput[]): void {
  try {
    compileLossGraph(graph, inputs);
  } catch (error) {
    if (error instanceof ValidationError) throw new HttpError(400, inWireWords(error.message));
    throw error;
  }
}
