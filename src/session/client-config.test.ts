import { describe, expect, it } from "vitest";
import { fakeHttp } from "../../test/session/fake-http.js";
import { FakeClock } from "../../test/support/fake-clock.js";
import { DynamicConfigRefresher, fetchClientConfig, fetchDynamicConfig } from "./client-config.js";

const defaults = {
  pjwtAuthEnabled: false,
  credentialDefaultSource: "api_key",
  sampleDispatchBytesSemaphoreSize: 10_485_760,
  inflightResponseBytesSemaphoreSize: 52_428_800,
  parallelFwdbwdChunks: true,
  protoCompressFwdbwd: false,
  fwdbwdMaxChunkLen: 1024,
  fwdbwdMaxChunkBytesCount: 5_000_000,
  fwdbwdDispatchBytesSemaphoreSize: 50_000_000,
  billingExceptionMaxPauseDurationSec: 3600,
  sampleNoRetries: false,
  sampleEnableStuckDetection: true,
  sampleMaxConcurrentRequests: 2000,
  createModelViaLoadWeights: false,
  sampleUseRetrieveFutures: false,
  customLossServerSide: false,
  sampleJoinSamplingSession: false,
};

describe("fetchClientConfig", () => {
  it("asks with the protocol version", async () => {
    const { http, requests } = fakeHttp();
    await fetchClientConfig(http);
    expect(requests[0]).toMatchObject({
      method: "POST",
      path: "/api/v1/client/config",
      json: { sdk_version: "0.36.0" },
    });
  });

  it("is all defaults for an empty answer, a missing endpoint, and a body that is not an object", async () => {
    for (const answer of [{ json: {} }, { status: 404 }, { json: "<html>" }, { json: null }]) {
      expect(await fetchClientConfig(fakeHttp(() => answer).http)).toMatchObject(defaults);
    }
  });

  it("takes the flags of the server and ignores those it does not know", async () => {
    const json = {
      pjwt_auth_enabled: true,
      credential_default_source: "credential_cmd",
      fwdbwd_max_chunk_len: 16,
      parallel_fwdbwd_chunks: false,
      billing_exception_max_pause_duration_sec: 0,
      a_flag_of_the_future: { deep: [1] },
    };
    const config = await fetchClientConfig(fakeHttp(() => ({ json })).http);
    expect(config).toMatchObject({
      ...defaults,
      pjwtAuthEnabled: true,
      credentialDefaultSource: "credential_cmd",
      fwdbwdMaxChunkLen: 16,
      parallelFwdbwdChunks: false,
      billingExceptionMaxPauseDurationSec: 0,
    });
    expect(config).not.toHaveProperty("aFlagOfTheFuture");
  });

  it("keeps the default in place of a value of the wrong kind or one that would stop the client", async () => {
    const json = {
      pjwt_auth_enabled: "yes",
      credential_default_source: null,
      fwdbwd_max_chunk_len: 0,
      fwdbwd_max_chunk_bytes_count: -5,
      sample_max_concurrent_requests: "2000",
    };
    expect(await fetchClientConfig(fakeHttp(() => ({ json })).http)).toMatchObject(defaults);
  });

  it("does not hide any other failure", async () => {
    await expect(fetchClientConfig(fakeHttp(() => ({ status: 401 })).http)).rejects.toMatchObject({
      status: 401,
    });
    await expect(fetchClientConfig(fakeHttp(() => ({ drop: true })).http)).rejects.toThrow("refused");
  });
});

describe("fetchDynamicConfig", () => {
  it("reads the flags, or the defaults at a server without the endpoint", async () => {
    const json = { refresh_interval_sec: 60, sample_cancel_enabled: true };
    expect(await fetchDynamicConfig(fakeHttp(() => ({ json })).http)).toEqual({
      refreshIntervalSec: 60,
      sampleCancelEnabled: true,
      sampleCancelMaxBatchSize: 64,
    });
    expect(await fetchDynamicConfig(fakeHttp(() => ({ status: 404 })).http)).toEqual({
      refreshIntervalSec: 300,
      sampleCancelEnabled: false,
      sampleCancelMaxBatchSize: 64,
    });
  });
});

describe("DynamicConfigRefresher", () => {
  const initial = { refreshIntervalSec: 60, sampleCancelEnabled: false, sampleCancelMaxBatchSize: 64 };

  it("follows the interval the server last asked for", async () => {
    const clock = new FakeClock();
    const { http, requests } = fakeHttp(
      () => ({ json: { refresh_interval_sec: 120, sample_cancel_enabled: true } }),
      clock,
    );
    const refresher = new DynamicConfigRefresher(http, initial);
    await clock.advance(59_999);
    expect(requests).toHaveLength(0);
    await clock.advance(1);
    expect(refresher.current).toMatchObject({ refreshIntervalSec: 120, sampleCancelEnabled: true });
    await clock.advance(240_000);
    expect(requests.map((request) => request.atMs)).toEqual([60_000, 180_000, 300_000]);
    expect(requests[0]).toMatchObject({
      path: "/api/v1/client/dynamic_config",
      timeout: 10_000,
      maxRetries: 0,
    });
    refresher.stop();
  });

  it("never asks more often than every 10 s", async () => {
    const clock = new FakeClock();
    const { http, requests } = fakeHttp(() => ({ json: { refresh_interval_sec: 0.001 } }), clock);
    const refresher = new DynamicConfigRefresher(http, { ...initial, refreshIntervalSec: 1 });
    await clock.advance(35_000);
    expect(requests.map((request) => request.atMs)).toEqual([10_000, 20_000, 30_000]);
    refresher.stop();
  });

  it("keeps the last good values over failures of any kind, and goes on asking", async () => {
    const clock = new FakeClock();
    const good = { json: { refresh_interval_sec: 10, sample_cancel_max_batch_size: 8 } };
    const answers = [good, { status: 500 }, { drop: true }, { status: 404 }, good];
    const { http, requests } = fakeHttp(() => answers.shift() ?? good, clock);
    const refresher = new DynamicConfigRefresher(http, { ...initial, refreshIntervalSec: 10 });
    for (let round = 0; round < 5; round += 1) {
      await clock.advance(10_000);
      expect(requests).toHaveLength(round + 1);
      expect(refresher.current).toMatchObject({ refreshIntervalSec: 10, sampleCancelMaxBatchSize: 8 });
    }
    refresher.stop();
  });

  it("leaves no timer when stopped, also during a request", async () => {
    const clock = new FakeClock();
    let answer: () => void = () => {};
    const { http, requests } = fakeHttp(
      () =>
        new Promise((resolve) => {
          answer = () => resolve({});
        }),
      clock,
    );
    const refresher = new DynamicConfigRefresher(http, initial);
    await clock.advance(60_000);
    expect(requests).toHaveLength(1);
    refresher.stop();
    answer();
    await clock.advance(1_000_000);
    expect(requests).toHaveLength(1);
    expect(clock.pending).toBe(0);
  });
});
