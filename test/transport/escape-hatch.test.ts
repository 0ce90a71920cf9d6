import { getEventListeners } from "node:events";
import { describe, expect, it, vi } from "vitest";
import { APIConnectionError, APIUserAbortError, NotFoundError } from "../../src/errors.js";
import { APIPromise } from "../../src/transport/index.js";
import { clientForTest, ROUTE, serverForTest } from "./helpers.js";

const PATH = "/api/v1/thing";

describe("get, post, put, delete", () => {
  it("speak to any endpoint, JSON in and out", async () => {
    const server = await serverForTest();
    for (const method of ["GET", "POST", "PUT", "DELETE"])
      server.on(`${method} ${PATH}`, { json: { method } });
    const client = clientForTest(server);
    const body = { snake_case: 1, camelCase: [true, null] };
    const typed: { method: string } = await client.get<{ method: string }>(PATH, { query: { a: 1 } });
    expect(typed).toEqual({ method: "GET" });
    expect(await client.post(PATH, { body })).toEqual({ method: "POST" });
    expect(await client.put(PATH, { body })).toEqual({ method: "PUT" });
    expect(await client.delete(PATH)).toEqual({ method: "DELETE" });
    expect(server.requests[0]?.query.get("a")).toBe("1");
    expect(server.requests[1]?.json()).toEqual(body);
    expect(server.requests[2]?.headers["content-type"]).toBe("application/json");
    expect(server.requests[3]?.headers["content-type"]).toBeUndefined();
  });

  it.each<[string, unknown, string, string]>([
    ["text", "hello", "text/plain;charset=UTF-8", "hello"],
    ["bytes", new Uint8Array([104, 105]), "application/octet-stream", "hi"],
    ["a buffer", new TextEncoder().encode("hey").buffer, "application/octet-stream", "hey"],
    ["a form", new URLSearchParams({ a: "1 2" }), "application/x-www-form-urlencoded;charset=UTF-8", "a=1+2"],
    ["a blob", new Blob(["b"], { type: "text/csv" }), "text/csv", "b"],
    ["a list", [1, 2], "application/json", "[1,2]"],
    ["a number", 7, "application/json", "7"],
    ["null", null, "application/json", "null"],
  ])("send %s as what it is", async (_name, body, contentType, expected) => {
    const server = await serverForTest();
    server.on(ROUTE, { json: {} });
    await clientForTest(server).post(PATH, { body });
    expect(server.requests[0]?.headers["content-type"]).toBe(contentType);
    expect(Buffer.from(server.requests[0]!.body).toString()).toBe(expected);
  });

  it("let the caller name the type", async () => {
    const server = await serverForTest();
    server.on(ROUTE, { json: {} });
    await clientForTest(server).post(PATH, { body: "a,b", contentType: "text/csv", accept: "text/csv" });
    expect(server.requests[0]?.headers).toMatchObject({ "content-type": "text/csv", accept: "text/csv" });
  });

  it("send FormData with a file, again on retry", async () => {
    const server = await serverForTest();
    server.on(ROUTE, [{ status: 500 }, { json: {} }]);
    const form = new FormData();
    form.append("name", "wörld");
    form.append(
      "file",
      new File([new Uint8Array([0, 255, 13, 10])], "data.bin", { type: "application/x-data" }),
    );
    await clientForTest(server).post(PATH, { body: form });
    expect(server.requests).toHaveLength(2);
    for (const request of server.requests) {
      const contentType = String(request.headers["content-type"]);
      expect(contentType).toMatch(/^multipart\/form-data; boundary=/);
      const parsed = await new Response(Buffer.from(request.body), {
        headers: { "content-type": contentType },
      }).formData();
      expect(parsed.get("name")).toBe("wörld");
      const file = parsed.get("file") as File;
      expect([file.name, file.type]).toEqual(["data.bin", "application/x-data"]);
      expect([...new Uint8Array(await file.arrayBuffer())]).toEqual([0, 255, 13, 10]);
    }
  });

  it("send a stream, which cannot be sent twice", async () => {
    const server = await serverForTest();
    server.on(ROUTE, [{ json: { ok: 1 } }, { status: 503, json: {} }]);
    const client = clientForTest(server);
    const stream = () => new Blob(["abc"]).stream();
    expect(await client.post(PATH, { body: stream() })).toEqual({ ok: 1 });
    expect(Buffer.from(server.requests[0]!.body).toString()).toBe("abc");
    await expect(client.post(PATH, { body: stream() })).rejects.toThrow("503");
    expect(server.requests).toHaveLength(2);
  });

  it("give text and bytes where the answer is not JSON, and undefined where it is empty", async () => {
    const server = await serverForTest();
    server.on(ROUTE, [{ text: "plain" }, { bytes: new Uint8Array([9]) }, { status: 204 }]);
    const client = clientForTest(server);
    expect(await client.post(PATH)).toBe("plain");
    expect(await client.post(PATH)).toEqual(new Uint8Array([9]));
    expect(await client.post(PATH)).toBeUndefined();
  });

  it("are sent once, whether awaited once, twice or never", async () => {
    const server = await serverForTest();
    server.on(ROUTE, () => ({ json: { n: server.requests.length } }));
    const client = clientForTest(server);
    const call = client.post(PATH);
    expect(call).toBeInstanceOf(APIPromise);
    expect(await call).toEqual({ n: 1 });
    expect(await call).toEqual({ n: 1 });
    void client.post(PATH);
    await vi.waitFor(() => expect(server.requests).toHaveLength(2));
  });

  it("reject like any promise", async () => {
    const server = await serverForTest();
    const client = clientForTest(server);
    await expect(client.get("/nothing")).rejects.toBeInstanceOf(NotFoundError);
    expect(await client.get("/nothing").catch((error: unknown) => (error as NotFoundError).status)).toBe(404);
    let ended = false;
    await client
      .get("/nothing")
      .finally(() => {
        ended = true;
      })
      .catch(() => {});
    expect(ended).toBe(true);
  });
});

describe("withResponse", () => {
  it("gives the data and the response it came in", async () => {
    const server = await serverForTest();
    server.on(ROUTE, { status: 201, json: { a: 1 }, headers: { "x-request-id": "r1" } });
    const { data, response } = await clientForTest(server).post<{ a: number }>(PATH).withResponse();
    expect(data.a).toBe(1);
    expect(response).toBeInstanceOf(Response);
    expect(response.status).toBe(201);
    expect(response.headers.get("x-request-id")).toBe("r1");
    expect(await response.json()).toEqual({ a: 1 });
  });
});

describe("asResponse", () => {
  it("gives the response before its body has come", async () => {
    const server = await serverForTest();
    server.on(ROUTE, { text: "0123456789", stallMs: 50 });
    const client = clientForTest(server);
    const { signal } = new AbortController();
    const response = await client.post(PATH, { signal }).asResponse();
    expect(response).toBeInstanceOf(Response);
    expect(response.url).toBe(`${server.url}${PATH}`);
    expect(response.headers.get("content-type")).toBe("text/plain");
    expect(response.bodyUsed).toBe(false);
    expect(getEventListeners(signal, "abort")).toHaveLength(1);
    expect(client.clock.pending).toBe(0);
    expect(await response.text()).toBe("0123456789");
    expect(getEventListeners(signal, "abort")).toHaveLength(0);
    expect(server.requests).toHaveLength(1);
  });

  it("retries and throws as ever", async () => {
    const server = await serverForTest();
    server.on(ROUTE, [{ status: 503 }, { status: 404, json: { detail: "gone fishing" } }]);
    await expect(clientForTest(server).post(PATH).asResponse()).rejects.toThrow("answered 404: gone fishing");
    expect(server.requests).toHaveLength(2);
  });

  it("obeys the signal while the body is read", async () => {
    const server = await serverForTest();
    server.on(ROUTE, { text: "0123456789", stallMs: Number.POSITIVE_INFINITY });
    const controller = new AbortController();
    const response = await clientForTest(server).post(PATH, { signal: controller.signal }).asResponse();
    const reading = response.text();
    setTimeout(() => controller.abort(), 10);
    await expect(reading).rejects.toBeInstanceOf(APIUserAbortError);
    expect(getEventListeners(controller.signal, "abort")).toHaveLength(0);
    await vi.waitFor(() => expect(server.openConnections()).toBe(0));
  });

  it("frees everything when the body is cancelled unread", async () => {
    const server = await serverForTest();
    server.on(ROUTE, { text: "0123456789", stallMs: Number.POSITIVE_INFINITY });
    const { signal } = new AbortController();
    const response = await clientForTest(server).post(PATH, { signal }).asResponse();
    await response.body?.cancel();
    expect(getEventListeners(signal, "abort")).toHaveLength(0);
    await vi.waitFor(() => expect(server.openConnections()).toBe(0));
  });

  it("has a broken body end in a connection error", async () => {
    const server = await serverForTest();
    server.on(ROUTE, { text: "0123456789", drop: "mid-body" });
    const response = await clientForTest(server).post(PATH).asResponse();
    await expect(response.text()).rejects.toBeInstanceOf(APIConnectionError);
  });

  it("gives the answer from memory when asked late", async () => {
    const server = await serverForTest();
    server.on(ROUTE, { json: { a: 1 } });
    const call = clientForTest(server).post(PATH);
    await call;
    expect(await (await call.asResponse()).json()).toEqual({ a: 1 });
    expect(await (await call.asResponse()).json()).toEqual({ a: 1 });
    expect(server.requests).toHaveLength(1);
  });

  it("stands an answer without a body", async () => {
    const server = await serverForTest();
    server.on(ROUTE, { status: 204 });
    const response = await clientForTest(server).post(PATH).asResponse();
    expect([response.status, await response.text()]).toEqual([204, ""]);
  });
});

describe("redirects", () => {
  it("are followed on the same server with the key", async () => {
    const server = await serverForTest();
    server.on("GET /api/v1/old", { status: 302, headers: { location: "/api/v1/new?x=1" } });
    server.on("GET /api/v1/new", { json: { ok: true } });
    expect(await clientForTest(server).get("/api/v1/old")).toEqual({ ok: true });
    expect(server.requests.map(({ headers }) => headers["x-api-key"])).toEqual(["tml-test", "tml-test"]);
    expect(server.requests[1]?.query.get("x")).toBe("1");
  });

  it("to another server carry no credential", async () => {
    const server = await serverForTest();
    const other = await serverForTest();
    other.on("GET /file", { text: "content" });
    server.on("GET /api/v1/file", { status: 302, headers: { location: `${other.url}/file` } });
    const client = clientForTest(server, {
      defaultHeaders: { authorization: "Bearer x", "x-plain": "stays" },
    });
    expect(await client.get("/api/v1/file")).toBe("content");
    const { headers } = other.requests[0]!;
    expect(headers["x-api-key"]).toBeUndefined();
    expect(headers["authorization"]).toBeUndefined();
    expect(headers["x-plain"]).toBe("stays");
  });

  it.each([
    [303, "GET", ""],
    [302, "GET", ""],
    [307, "POST", "payload"],
    [308, "POST", "payload"],
  ])("of status %i turn a POST into %s", async (status, method, body) => {
    const server = await serverForTest();
    server.on(ROUTE, { status, headers: { location: "/api/v1/next" } });
    server.on(`${method} /api/v1/next`, { json: {} });
    await clientForTest(server).post(PATH, { body: "payload" });
    expect(server.requests[1]?.method).toBe(method);
    expect(Buffer.from(server.requests[1]!.body).toString()).toBe(body);
  });

  it("without end are given up", async () => {
    const server = await serverForTest();
    server.on("GET /api/v1/loop", { status: 302, headers: { location: "/api/v1/loop" } });
    await expect(clientForTest(server, { maxRetries: 0 }).get("/api/v1/loop")).rejects.toThrow(
      /more than 10 redirects/,
    );
  });

  it("are shown on request", async () => {
    const server = await serverForTest();
    server.on("GET /api/v1/archive", {
      status: 302,
      headers: { location: "https://store/x", expires: "soon" },
    });
    const response = await clientForTest(server).exchange({
      method: "GET",
      path: "/api/v1/archive",
      redirect: "manual",
    });
    expect(response.status).toBe(302);
    expect(response.headers.get("location")).toBe("https://store/x");
    expect(server.requests).toHaveLength(1);
  });
});
