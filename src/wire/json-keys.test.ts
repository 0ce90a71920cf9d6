import { describe, expect, it } from "vitest";
import { camelToSnake, fromWireJson, snakeToCamel, toWireJson } from "./json-keys.js";
import type { BillingUsage, SessionSummary } from "./records/rest-types.js";
import { ModelInput } from "./sampling/model-input.js";
import { TensorData } from "./tensors/tensor-data.js";

describe("names", () => {
  it.each([
    ["size_bytes", "sizeBytes"],
    ["prompt_alt_tokens_k", "promptAltTokensK"],
    ["beta1", "beta1"],
    ["fwdbwd_max_chunk_bytes_count", "fwdbwdMaxChunkBytesCount"],
    ["key_1", "key_1"],
    ["_private", "Private"],
  ])("%s is %s and back", (snake, camel) => {
    expect(snakeToCamel(snake)).toBe(camel);
    expect(camelToSnake(camel)).toBe(snake);
  });
});

describe("toWireJson", () => {
  it("converts names at every depth, leaves undefined out and keeps null", () => {
    expect(
      toWireJson({
        modelId: "m",
        ttlSeconds: null,
        path: undefined,
        loraConfig: { trainMlp: true },
        list: [{ aB: 1 }],
      }),
    ).toEqual({ model_id: "m", ttl_seconds: null, lora_config: { train_mlp: true }, list: [{ a_b: 1 }] });
  });

  it("leaves alone what belongs to the user", () => {
    const own = { myKey: { innerKey: 1 }, "loss:sum": 2 };
    expect(toWireJson({ userMetadata: own, eventData: own, metrics: own, kwargs: own, args: [own] })).toEqual(
      {
        user_metadata: own,
        event_data: own,
        metrics: own,
        kwargs: own,
        args: [own],
      },
    );
  });

  it("writes dates, bytes, tensors and inputs", () => {
    expect(
      toWireJson({
        startingOn: new Date("2026-01-02T03:00:00Z"),
        rawBytes: Uint8Array.of(1, 2, 3),
        targets: TensorData.from([1, 2]),
        prompt: ModelInput.fromInts([1]),
      }),
    ).toEqual({
      starting_on: "2026-01-02T03:00:00.000Z",
      raw_bytes: "AQID",
      targets: { data: [1, 2], dtype: "int64", shape: [2] },
      prompt: { chunks: [{ type: "encoded_text", tokens: [1] }] },
    });
  });
});

describe("fromWireJson", () => {
  it("converts names, keeps unknown fields, and leaves alone what belongs to the user or the server", () => {
    expect(
      fromWireJson({
        training_runs: [{ training_run_id: "r", last_checkpoint: null, brand_new_field: { deep_field: 1 } }],
        user_metadata: { my_key: "v" },
        event_details: { actor_urn: "u" },
        urls: { "a_b/c_d.bin": "https://x" },
        metrics: { "loss_a:sum": 1 },
      }),
    ).toEqual({
      trainingRuns: [{ trainingRunId: "r", lastCheckpoint: null, brandNewField: { deepField: 1 } }],
      userMetadata: { my_key: "v" },
      eventDetails: { actor_urn: "u" },
      urls: { "a_b/c_d.bin": "https://x" },
      metrics: { "loss_a:sum": 1 },
    });
  });

  it("keeps the ids of sessions where they are a map, and converts them where they are a list", () => {
    const usage = fromWireJson<BillingUsage>({
      data: [],
      sessions: { sess_a_b: { user_metadata: { k_k: "v" } } },
    });
    expect(usage.sessions).toEqual({ sess_a_b: { userMetadata: { k_k: "v" } } });
    const found = fromWireJson<{ sessions: SessionSummary[] }>({ sessions: [{ session_id: "sess_a_b" }] });
    expect(found.sessions[0]?.sessionId).toBe("sess_a_b");
    expect(fromWireJson({ sessions: ["sess_a_b"] })).toEqual({ sessions: ["sess_a_b"] });
  });

  it("does not let an answer change what objects inherit", () => {
    const converted = fromWireJson<Record<string, unknown>>(JSON.parse('{"__proto__": {"polluted": true}}'));
    expect(Object.getPrototypeOf(converted)).toBe(Object.prototype);
    expect(({} as Record<string, unknown>)["polluted"]).toBeUndefined();
  });

  it("passes plain values through", () => {
    for (const value of [null, 1, "a_b", true]) expect(fromWireJson(value)).toBe(value);
  });
});
