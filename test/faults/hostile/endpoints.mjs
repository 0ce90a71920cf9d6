// Every endpoint of the server, with a request that it would accept from `who`.
import { Datum, encodeForwardBackwardRequest } from "../../../dist/wire/index.js";
import { BASE_MODEL, passBody, sampleBody } from "./world.mjs";

/** Answers that are allowed for another tenant's ids: empty ones, or those without the tenant's data. */
const HARMLESS = { harmless: true };
/** What a stream must be; the last is the shape of a call. */
const CONSTRAINTS = [
  { type: "json_object" },
  { type: "json_schema", schema: { type: "object", properties: { a: { enum: [1, 2] } }, required: ["a"] } },
  {
    type: "shape",
    shape: {
      type: "sequence",
      parts: [
        { type: "sign", text: "<tool_call>" },
        {
          type: "choice",
          options: [
            { type: "plain", text: "a" },
            { type: "json", tool: "a" },
          ],
        },
        { type: "repeat", item: { type: "sign", text: "b" }, max: 2 },
      ],
    },
  },
];
/** It has no id to abuse. */
const NO_ID = { hasId: false };

/**
 * @param who whose ids the request names  @param index makes names and numbers of their own
 * @returns {{ name: string, method: string, path: string, body?: unknown, bytes?: Uint8Array }[]}
 */
export function endpoints(who, index) {
  const run = `/api/v1/training_runs/${who.model}`;
  const weights = `${run}/checkpoints/weights/canary`;
  const name = `n${index}`;
  const { model } = who;
  const seqId = who.nextSeqId + index;
  const post = (path, body, options) => ({
    name: path,
    method: "POST",
    path: `/api/v1${path}`,
    body,
    ...options,
  });
  const get = (path, options) => ({
    name: path.split("?")[0],
    method: "GET",
    path: `/api/v1${path}`,
    ...options,
  });
  const { forward_backward_input: input, ...pass } = passBody(model, seqId);
  const samplerId = encodeURIComponent(who.sampler);
  return [
    { name: "healthz", method: "GET", path: "/healthz", ...NO_ID, open: true },
    get("/healthz", { ...NO_ID, open: true }),
    get("/get_server_capabilities", NO_ID),
    get(`/tokenizer?model=${encodeURIComponent(BASE_MODEL)}`, NO_ID),
    post("/client/config", { sdk_version: "0.36.0" }, NO_ID),
    post("/client/dynamic_config", { sdk_version: "0.36.0" }, NO_ID),
    post("/auth/token", {}, NO_ID),
    { name: "auth/token", method: "DELETE", path: "/api/v1/auth/token", ...NO_ID },
    get("/auth/apikey/me", NO_ID),
    { name: "apikey/me", method: "DELETE", path: "/api/v1/auth/apikey/me", ...NO_ID },
    post("/telemetry", { events: [{ event: "x" }], session_id: who.session }, HARMLESS),
    post("/create_custom_loss", { graph: {} }, NO_ID),
    post("/tinkerts/import_adapter", { folder: "no-such-folder", name: "imported" }, NO_ID),
    post("/create_session", { tags: ["a"], user_metadata: { a: "b" }, sdk_version: "1" }, NO_ID),
    post("/session_heartbeat", { session_id: who.session }),
    post("/create_model", {
      session_id: who.session,
      model_seq_id: 2 + (index % 3),
      base_model: BASE_MODEL,
      lora_config: { rank: 2, seed: 1 },
    }),
    post("/get_info", { model_id: model }),
    post("/unload_model", { model_id: who.spareSession ? `${who.session}:train:${2 + (index % 3)}` : model }),
    post("/forward_backward", passBody(model, seqId)),
    {
      ...post("/forward_backward"),
      name: "/forward_backward (protobuf)",
      bytes: encodeForwardBackwardRequest({
        modelId: model,
        seqId,
        data: [
          new Datum({
            modelInput: [7, 8, 9],
            lossFnInputs: { targetTokens: [8, 9, 10], weights: [1, 1, 1] },
          }),
        ],
        lossFn: "cross_entropy",
        forwardOnly: index % 2 === 0,
      }),
    },
    post("/forward", { ...pass, forward_input: input }),
    post("/optim_step", { model_id: model, seq_id: seqId, adam_params: { learning_rate: 1e-5 } }),
    post("/save_weights", { model_id: model, seq_id: seqId, path: name, ttl_seconds: 1 }),
    post("/save_weights_for_sampler", { model_id: model, seq_id: seqId, path: name, ttl_seconds: 1 }),
    post("/save_weights_external", { model_id: model, seq_id: seqId, path: name, ttl_seconds: 1 }),
    post("/load_weights", { model_id: model, seq_id: seqId, path: who.weights, optimizer: true }),
    post("/copy_weights", { destination_project_id: "p", source_path: who.weights, ttl_seconds: 1 }),
    post("/create_sampling_session", {
      session_id: who.session,
      sampling_session_seq_id: 1 + (index % 5),
      model_path: who.samplerWeights,
    }),
    post("/join_sampling_session", { sampling_session_id: who.sampler }),
    get(`/samplers/${samplerId}`, { name: "/samplers/:id" }),
    post("/asample", sampleBody(who.sampler, index + 2)),
    post("/stream_sample", { ...sampleBody(who.sampler, index + 2), constraint: CONSTRAINTS[index % 3] }),
    post("/retrieve_future", { request_id: who.request, allow_metadata_only: index % 2 === 0 }),
    post("/retrieve_futures", {
      target: { type: "sampling_session", sampling_session_id: who.sampler, cloned_sampler_id: 0 },
      prev_cursor: 0,
      timeout: 0.1,
      retrieved_request_ids: [`${who.sampler}:${index}`],
    }),
    post("/cancel_future", { request_id: who.request }, HARMLESS),
    get("/training_runs?limit=5&offset=0&access_scope=owned", HARMLESS),
    get(`/training_runs/${model}`, { name: "/training_runs/:run" }),
    get(`/training_runs/${model}/checkpoints`, { name: "/training_runs/:run/checkpoints" }),
    get("/checkpoints?limit=5&offset=0", HARMLESS),
    {
      name: "delete checkpoint",
      method: "DELETE",
      path: who.spareSession ? weights.replace("canary", name) : weights,
    },
    { name: "publish", method: "POST", path: `${weights}/publish` },
    { name: "unpublish", method: "DELETE", path: `${weights}/publish` },
    { name: "ttl", method: "PUT", path: `${weights}/ttl`, body: { ttl_seconds: 1000 + index } },
    { name: "archive", method: "GET", path: `${weights}/archive` },
    {
      name: "external_weights_urls",
      method: "GET",
      path: `${run}/checkpoints/external_weights/canary/external_weights_urls`,
    },
    { name: "bare checkpoint id", method: "GET", path: `${run}/checkpoints/canary` },
    post("/weights_info", { tinker_path: who.weights }),
    get("/sessions?limit=3&offset=0", HARMLESS),
    post(
      "/sessions/search",
      { session_id: who.session, limit: 5, user_metadata: {}, statuses: [{ type: "active" }] },
      HARMLESS,
    ),
    get(`/sessions/${who.session}`, { name: "/sessions/:id" }),
    {
      name: "project",
      method: "PUT",
      path: `/api/v1/sessions/${who.session}/project`,
      body: { project_id: "p2" },
    },
    {
      name: "finish",
      method: "POST",
      path: `/api/v1/sessions/${who.spareSession ?? who.session}/finish`,
      body: { reason: { type: "success" } },
    },
    { name: "trace_export", method: "GET", path: `/api/v1/sessions/${who.session}/trace_export` },
    get("/audit?event_type=all&day=2026-01-31", HARMLESS),
    get(
      "/billing/usage/events?starting_on=2026-01-01T00:00:00Z&ending_before=2026-01-02T00:00:00Z",
      HARMLESS,
    ),
    get("/billing/usage/checkpoints/current?project_id=p", HARMLESS),
    {
      ...get(`/downloads/archive?path=${encodeURIComponent(who.weights)}&expires=9999999999&signature=AAAA`),
      open: true,
    },
    {
      ...get(
        `/downloads/file?path=${encodeURIComponent(who.externalWeights)}&file=adapter_config.json&expires=9999999999&signature=`,
      ),
      open: true,
    },
    { ...get(`/downloads/trace?session=${who.session}&expires=9999999999&signature=xyz`), open: true },
    ...openAiEndpoints(who, index),
    ...anthropicEndpoints(who, index),
  ];
}

/** OpenAI's, under both of their paths by turns. */
function openAiEndpoints(who, index) {
  const base = index % 2 === 0 ? "/oai/api/v1" : "/v1";
  const beside = index % 2 === 0 ? "/oai/api" : "";
  const model = who.samplerWeights;
  const post = (path, body, options) => ({ name: `oai${path}`, method: "POST", path, body, ...options });
  const stream = index % 3 === 0;
  const chat = {
    model,
    messages: [{ role: "user", content: "hi" }],
    max_tokens: 2,
    stream,
    stream_options: { include_usage: stream },
  };
  const call = { id: "c", type: "function", function: { name: "f", arguments: "{}" } };
  return [
    { name: "oai/models", method: "GET", path: `${base}/models`, ...NO_ID },
    { name: "oai/models/:id", method: "GET", path: `${base}/models/${encodeURIComponent(model ?? "")}` },
    post(`${base}/chat/completions`, { ...chat, logprobs: true, top_logprobs: 2, n: 2, stop: ["a"] }),
    post(`${base}/chat/completions`, {
      ...chat,
      messages: [
        { role: "developer", content: [{ type: "text", text: "x" }] },
        { role: "assistant", content: null, reasoning_content: "t", tool_calls: [call] },
        { role: "tool", tool_call_id: "c", content: "r" },
      ],
      response_format: { type: "text" },
      chat_template_kwargs: {},
    }),
    post(`${base}/chat/completions`, {
      ...chat,
      tools: [{ type: "function", function: { name: "f", parameters: {} } }],
      tool_choice: ["auto", "required", { type: "function", function: { name: "f" } }][index % 3],
    }),
    post(`${base}/chat/completions`, {
      ...chat,
      max_tokens: 30,
      response_format: {
        type: "json_schema",
        json_schema: {
          name: "s",
          schema: {
            type: "object",
            properties: {
              a: { type: "array", items: { type: "integer", minimum: 1 }, maxItems: 2 },
              b: { enum: ["x", 1, null] },
              c: { type: "string", maxLength: 4, pattern: "^[a-c]+$" },
            },
            required: ["a"],
            additionalProperties: false,
          },
        },
      },
    }),
    post(`${base}/completions`, { model, prompt: "hi", max_tokens: 2, stream }),
    post(`${base}/completions`, {
      model,
      prompt: [
        [1, 2],
        [3, 4],
      ],
      max_tokens: index % 2,
      echo: true,
      logprobs: 2,
      stream,
    }),
    post(`${beside}/tokenize`, { model: BASE_MODEL, prompt: "hi", return_token_strs: true }, NO_ID),
    post(`${beside}/detokenize`, { model: BASE_MODEL, tokens: [1, 2] }, NO_ID),
    { name: "oai/tokenizer_info", method: "GET", path: `${beside}/tokenizer_info`, ...NO_ID },
  ];
}

function anthropicEndpoints(who, index) {
  const model = who.samplerWeights;
  const post = (path, body) => ({
    name: `anthropic${path}`,
    method: "POST",
    path: `/anthropic/v1${path}`,
    body,
  });
  const call = { type: "tool_use", id: "one", name: "look", input: {} };
  const result = { type: "tool_result", tool_use_id: "one", content: [{ type: "text", text: "nothing" }] };
  const conversation = {
    model,
    system: [{ type: "text", text: "Be brief." }],
    messages: [
      { role: "user", content: "hi" },
      { role: "assistant", content: [{ type: "thinking", thinking: "hm", signature: "" }, call] },
      { role: "user", content: [result] },
    ],
    tools: [{ name: "look", input_schema: { type: "object" } }],
  };
  return [
    post("/messages", { ...conversation, max_tokens: 2, stop_sequences: ["a"], stream: index % 2 === 0 }),
    post("/messages", {
      model,
      messages: [{ role: "user", content: "hi" }],
      max_tokens: 2,
      thinking: { type: "disabled" },
      tool_choice: { type: "none" },
    }),
    post("/messages/count_tokens", conversation),
  ];
}
