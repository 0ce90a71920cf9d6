import { expect, it, vi } from "vitest";
import { startProtocolServer } from "../../test/support/protocol-server.js";
import { HttpClient } from "../transport/index.js";
import { Session } from "./session.js";

// Lists of active resources leave out what is unref'ed; the process report does not.
const workerCount = () => (process.report.getReport() as unknown as { workers: unknown[] }).workers.length;

it("after close nothing of a session is left: no thread, socket, timer, hook or listener", async () => {
  vi.stubEnv("TINKER_TELEMETRY", "1");
  const timers = { set: vi.spyOn(globalThis, "setTimeout"), clear: vi.spyOn(globalThis, "clearTimeout") };
  const listeners = () => process.eventNames().map((name) => [name, process.listenerCount(name)]);
  const server = await startProtocolServer();
  const workersBefore = workerCount();
  const listenersBefore = listeners();
  try {
    for (let round = 0; round < 3; round += 1) {
      const http = new HttpClient({ baseURL: server.url, apiKey: "tml-key" });
      const session = await Session.open(http, { tags: ["test"] });
      session.telemetry.logException(new Error("for the record"));
      await vi.waitFor(() => expect(workerCount()).toBe(workersBefore + 1));
      await session.close();

      expect(workerCount()).toBe(workersBefore);
      expect(http.hooks).toHaveLength(0);
      await vi.waitFor(() => expect(server.openConnections()).toBe(0));
    }
    expect(listeners()).toEqual(listenersBefore);
    expect(server.requestsTo("POST /api/v1/telemetry").length).toBeGreaterThanOrEqual(3);
    const longTimers = timers.set.mock.results.filter(
      (_, index) => (timers.set.mock.calls[index]?.[1] ?? 0) >= 5_000,
    );
    const cleared = new Set(timers.clear.mock.calls.map(([timer]) => timer));
    expect(longTimers.length).toBeGreaterThan(0);
    expect(longTimers.every(({ value }) => cleared.has(value as NodeJS.Timeout))).toBe(true);
  } finally {
    vi.restoreAllMocks();
    vi.unstubAllEnvs();
    await server.close();
  }
});
