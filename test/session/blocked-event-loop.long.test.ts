import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { Session } from "../../src/session/index.js";
import { HttpClient } from "../../src/transport/index.js";

const BLOCKED_MS = 30_000;
const MAX_SILENCE_MS = 25_000;

interface ServerSideSession {
  beatsAtMs: number[];
  expired: boolean;
}

it("a session outlives an event loop that is blocked for 30 s; one beaten by a timer does not", async () => {
  const child = fork(fileURLToPath(new URL("./beat-server.mjs", import.meta.url)), [String(MAX_SILENCE_MS)], {
    execArgv: [],
  });
  try {
    const [port] = (await once(child, "message")) as [number];
    const baseURL = `http://127.0.0.1:${port}`;
    const threaded = await Session.open(new HttpClient({ baseURL, logLevel: "off" }));
    // An injected fetch keeps the heartbeat on this event loop: the control that shows the block is real.
    const onTimer = await Session.open(
      new HttpClient({ baseURL, logLevel: "off", fetch: (input, init) => fetch(input, init) }),
    );

    const startedMs = Date.now();
    const endMs = startedMs + BLOCKED_MS;
    while (Date.now() < endMs) Math.sqrt(endMs);

    child.send("report");
    const [sessions] = (await once(child, "message")) as [Record<string, ServerSideSession>];
    const beatsDuringBlock = (session: Session) =>
      sessions[session.id ?? ""]?.beatsAtMs.filter((atMs) => atMs > startedMs && atMs <= endMs).length;
    expect(beatsDuringBlock(threaded)).toBeGreaterThanOrEqual(2);
    expect(sessions[threaded.id ?? ""]?.expired).toBe(false);
    expect(beatsDuringBlock(onTimer)).toBe(0);
    expect(sessions[onTimer.id ?? ""]?.expired).toBe(true);

    expect(threaded.finished).toBe(false);
    expect(threaded.metrics.snapshot().counters["requests.status.200"]).toBeGreaterThanOrEqual(3);
    await Promise.all([threaded.close(), onTimer.close()]);
  } finally {
    child.disconnect();
  }
});
