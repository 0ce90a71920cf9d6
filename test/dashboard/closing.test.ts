import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it, vi } from "vitest";
import { startDashboard } from "../../src/dashboard/index.js";

describe("a dashboard that is closed", () => {
  let runs: string;
  const sockets: Socket[] = [];
  beforeEach(() => {
    runs = mkdtempSync(join(tmpdir(), "tinkerts-closing-"));
  });
  afterEach(() => {
    vi.useRealTimers();
    for (const socket of sockets.splice(0)) socket.destroy();
    rmSync(runs, { recursive: true, force: true });
  });

  async function connected(address: string): Promise<Socket> {
    const socket = connect(Number(new URL(address).port), "127.0.0.1");
    socket.on("error", () => {});
    sockets.push(socket);
    await once(socket, "connect");
    return socket;
  }

  it("ends at once where nobody waits for an answer", async () => {
    const dashboard = await startDashboard({ folders: [runs] });
    // Browsers open connections before they have a request for them.
    const silent = await connected(dashboard.address);
    const begun = await connected(dashboard.address);
    begun.write("GET / HTTP/1.1\r\nHost: ");
    await (await fetch(new URL("/", dashboard.address))).text();
    const ends = Promise.all([silent, begun].map((socket) => once(socket, "close")));
    // The time that pages get for their last state does not pass.
    vi.useFakeTimers({ toFake: ["setTimeout"] });
    await dashboard.close();
    await ends;
  });
});
