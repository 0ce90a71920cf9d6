// A TCP proxy that stands between a client and a backend and does to their connections what networks do.
import { connect, createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { between, randomFor } from "../shared/random.mjs";
import { actsFirst, isMadeUp, isSpoilt, madeUpAnswer, spoiltAnswer } from "./faulty-answers.mjs";
import { MessageReader } from "./http-messages.mjs";

export class FaultProxy {
  exchanges = 0;
  #plan;
  #jitter;
  #wallNow;
  #upstreamPort;
  #port = 0;
  #listener;
  #clients = new Set();
  #upstreams = new Set();
  #outage;
  #late = new Set();

  constructor({ seed, baseURL, plan, wallNow }) {
    this.#jitter = randomFor(seed, "jitter");
    this.#upstreamPort = Number(new URL(baseURL).port);
    this.#plan = plan;
    this.#wallNow = wallNow;
  }

  async start() {
    this.#listener = createServer((socket) => void this.#serve(socket));
    await new Promise((resolve) => this.#listener.listen(this.#port, "127.0.0.1", resolve));
    this.#port = this.#listener.address().port;
  }

  get baseURL() {
    return `http://127.0.0.1:${this.#port}`;
  }

  get openConnections() {
    return this.#clients.size;
  }

  async close() {
    for (const timer of this.#late) clearTimeout(timer);
    await this.#outage;
    this.#goDown();
  }

  #goDown() {
    this.#listener.close();
    for (const socket of [...this.#clients, ...this.#upstreams]) socket.destroy();
  }

  /** The port is closed for a while, and earlier connections are gone. */
  #breakDown(durationMs) {
    this.#outage ??= (async () => {
      this.#goDown();
      await sleep(durationMs);
      await this.start();
      this.#outage = undefined;
    })();
  }

  async #serve(client) {
    const link = { client, upstream: undefined, bytesPerSecond: this.#plan.bandwidth() };
    track(this.#clients, client);
    client.once("close", () => link.upstream?.socket.destroy());
    const requests = new MessageReader(client, "request");
    try {
      for (;;) {
        const request = await requests.next();
        if (request === undefined) break;
        this.exchanges += 1;
        const outageMs = this.#plan.outageMs();
        if (outageMs > 0) return this.#breakDown(outageMs);
        if ((await this.#exchange(link, request)) !== "keep") break;
      }
    } catch (error) {
      if (!client.destroyed) throw error;
    } finally {
      client.destroySoon();
      link.upstream?.socket.destroy();
    }
  }

  /** Hands one request on and its answer back, or does worse; "keep" when the connection may be used again. */
  async #exchange(link, request) {
    const fault = this.#plan.faultOf(request);
    const kind = fault?.kind;
    const { client } = link;
    await this.#delay(fault);
    if (fault === undefined || kind === "latency") return this.#pass(link, request);
    const { random } = fault;
    if (isMadeUp(kind)) {
      if (actsFirst(kind, random) && (await this.#ask(link, request)) === undefined) return "end";
      return this.#write(link, madeUpAnswer(kind, random, this.#wallNow));
    }
    if (isSpoilt(kind)) {
      const answer = await this.#ask(link, request);
      return answer && this.#write(link, spoiltAnswer(kind, answer, random));
    }
    switch (kind) {
      case "reset":
        client.resetAndDestroy();
        return "end";
      case "reset-mid-request": {
        const { socket } = await this.#upstream(link);
        socket.write(request.bytes.subarray(0, Math.floor(request.bytes.length * random())));
        await sleep(5 * random());
        socket.resetAndDestroy();
        client.resetAndDestroy();
        return "end";
      }
      case "half-close":
        // The answer never comes, but what the client still has to say is taken.
        await this.#ask(link, request);
        client.end();
        await sleep(20);
        return "end";
      case "half-close-to-server": {
        const { socket, answers } = await this.#upstream(link);
        socket.end(request.bytes);
        const answer = await answers.next();
        link.upstream = undefined;
        return answer && this.#write(link, answer.bytes);
      }
      case "truncated-body": {
        const answer = await this.#ask(link, request);
        if (answer === undefined) return "end";
        const cutAt = answer.bodyAt + (answer.bytes.length - answer.bodyAt) * random();
        client.end(answer.bytes.subarray(0, Math.min(Math.floor(cutAt), answer.bytes.length - 1)));
        await sleep(20);
        return "end";
      }
      case "trickled-answer": {
        const answer = await this.#ask(link, request);
        return answer && trickle(client, answer.bytes, random);
      }
      case "trickled-request": {
        const { socket, answers } = await this.#upstream(link);
        await trickle(socket, request.bytes, random);
        const answer = await answers.next();
        return answer && this.#write(link, answer.bytes);
      }
      case "dropped-answer":
        await this.#ask(link, request);
        client.resetAndDestroy();
        return "end";
      case "silence":
        await this.#ask(link, request);
        await new Promise((resolve) => client.once("close", resolve));
        return "end";
      case "duplicated-request": {
        const twin = { ...link, upstream: undefined };
        const answers = await Promise.all([this.#ask(link, request), this.#ask(twin, request)]);
        twin.upstream?.socket.destroy();
        const answer = random() < 0.5 ? answers[0] : answers[1];
        return answer && this.#write(link, answer.bytes);
      }
      case "late-duplicate": {
        const answer = await this.#ask(link, request);
        this.#deliverLate(request, between(random, 20, 2_000));
        return answer && this.#write(link, answer.bytes);
      }
      default:
        throw new Error(`the proxy does not know the fault ${kind}`);
    }
  }

  /** A copy that was held back on its way arrives when the client has gone on; nobody reads its answer. */
  #deliverLate(request, delayMs) {
    const timer = setTimeout(async () => {
      this.#late.delete(timer);
      const link = { upstream: undefined, bytesPerSecond: Number.POSITIVE_INFINITY };
      await this.#ask(link, request);
      link.upstream.socket.destroy();
    }, delayMs);
    this.#late.add(timer);
  }

  async #pass(link, request) {
    const answer = await this.#ask(link, request);
    if (answer === undefined) return "end";
    await this.#delay();
    return this.#write(link, answer.bytes);
  }

  async #ask(link, request) {
    const { socket, answers } = await this.#upstream(link);
    await throttled(socket, request.bytes, link.bytesPerSecond);
    return answers.next();
  }

  async #write(link, bytes) {
    await throttled(link.client, bytes, link.bytesPerSecond);
    return "keep";
  }

  async #upstream(link) {
    if (link.upstream === undefined || link.upstream.socket.destroyed) {
      const socket = connect(this.#upstreamPort, "127.0.0.1");
      socket.setNoDelay(true);
      track(this.#upstreams, socket);
      link.upstream = { socket, answers: new MessageReader(socket, "response") };
    }
    return link.upstream;
  }

  #delay(fault) {
    const { latencyMs, jitterMs } = this.#plan;
    const extraMs = fault?.kind === "latency" ? between(fault.random, 20, 200) : 0;
    const delayMs = latencyMs + jitterMs * this.#jitter() + extraMs;
    return delayMs > 0 ? sleep(delayMs) : undefined;
  }
}

function track(sockets, socket) {
  sockets.add(socket);
  // A waiting reader sees the socket close; the reason does not matter here.
  socket.on("error", () => {});
  socket.once("close", () => sockets.delete(socket));
}

/** Writes in pieces no faster than the limit. */
async function throttled(socket, bytes, bytesPerSecond) {
  if (bytesPerSecond === Number.POSITIVE_INFINITY) {
    socket.write(bytes);
    return;
  }
  const pieceBytes = Math.max(Math.floor(bytesPerSecond / 100), 1);
  for (let at = 0; at < bytes.length && !socket.destroyed; at += pieceBytes) {
    socket.write(bytes.subarray(at, at + pieceBytes));
    await sleep(10);
  }
}

/** Writes in a few small pieces with pauses; the last one is the largest. */
async function trickle(socket, bytes, random) {
  const pieces = 2 + Math.floor(random() * 8);
  const pieceBytes = Math.min(1 + Math.floor(random() * 64), Math.ceil(bytes.length / pieces));
  for (let piece = 0; piece < pieces && !socket.destroyed; piece += 1) {
    socket.write(bytes.subarray(piece * pieceBytes, (piece + 1) * pieceBytes));
    await sleep(5);
  }
  socket.write(bytes.subarray(pieces * pieceBytes));
  return "keep";
}
