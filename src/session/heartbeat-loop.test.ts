import { describe, expect, it } from "vitest";
import { type Answer, fakeHttp } from "../../test/session/fake-http.js";
import { FakeClock } from "../../test/support/fake-clock.js";
import { type Beat, startHeartbeat } from "./heartbeat-loop.js";

async function setUp(answer?: Answer) {
  const clock = new FakeClock();
  const { http, requests } = fakeHttp(answer, clock);
  const beats: Beat[] = [];
  const loop = await startHeartbeat({ http, sessionId: "session-1", onBeat: (beat) => beats.push(beat) });
  return { clock, requests, beats, loop };
}

describe("heartbeat from a timer", () => {
  it("is sent every 10 s, with a 10 s timeout and no retries", async () => {
    const { clock, requests, beats, loop } = await setUp();
    await clock.advance(9_999);
    expect(requests).toHaveLength(0);
    await clock.advance(30_001);
    expect(requests.map((request) => request.atMs)).toEqual([10_000, 20_000, 30_000, 40_000]);
    expect(requests[0]).toMatchObject({
      method: "POST",
      path: "/api/v1/session_heartbeat",
      json: { session_id: "session-1", type: "session_heartbeat" },
      pool: "session",
      timeout: 10_000,
      maxRetries: 0,
    });
    expect(beats).toHaveLength(4);
    await loop.stop();
  });

  it("keeps its beat when answers are slow", async () => {
    const clock = new FakeClock();
    const { http, requests } = fakeHttp(async () => {
      await clock.sleep(4_000);
      return {};
    }, clock);
    const loop = await startHeartbeat({ http, sessionId: "session-1", onBeat: () => {} });
    await clock.advance(45_000);
    expect(requests.map((request) => request.atMs)).toEqual([10_000, 20_000, 30_000, 40_000]);
    await loop.stop();
  });

  it("says how long it has been failing, and goes on", async () => {
    let healthy = false;
    const { clock, beats, loop } = await setUp(() => (healthy ? {} : { status: 503 }));
    await clock.advance(30_000);
    healthy = true;
    await clock.advance(10_000);
    expect(beats.map((beat) => [beat.status, beat.failedForMs])).toEqual([
      [503, 10_000],
      [503, 20_000],
      [503, 30_000],
      [200, 0],
    ]);
    expect(beats[0]?.reason).toContain("503");
    await loop.stop();
  });

  it("ends at 410", async () => {
    const { clock, requests, beats } = await setUp(() => ({ status: 410 }));
    await clock.advance(100_000);
    expect(requests).toHaveLength(1);
    expect(beats.map((beat) => beat.status)).toEqual([410]);
    expect(clock.pending).toBe(0);
  });

  it("leaves no timer when stopped, also during a beat", async () => {
    let answer: () => void = () => {};
    const { clock, requests, beats, loop } = await setUp(
      () =>
        new Promise((resolve) => {
          answer = () => resolve({});
        }),
    );
    await clock.advance(10_000);
    expect(requests).toHaveLength(1);
    await loop.stop();
    answer();
    await clock.advance(100_000);
    expect(beats).toHaveLength(0);
    expect(requests).toHaveLength(1);
    expect(clock.pending).toBe(0);
  });
});
