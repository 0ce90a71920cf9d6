// Turns a seed and a number into a request: the same ones give the same request but for the ids of the run.
import { oneOf, randomFor, weighted } from "../shared/random.mjs";
import { endpoints } from "./endpoints.mjs";
import * as bad from "./mutations.mjs";

const KINDS = new Map([
  ["valid", 4],
  ["broken JSON", 12],
  ["wrong types", 12],
  ["huge and negative numbers", 10],
  ["deep nesting", 5],
  ["broken protobuf", 12],
  ["bombs", 4],
  ["large bodies", 0.3],
  ["path tricks", 12],
  ["foreign ids", 12],
  ["wrong keys", 6],
  ["forged links", 4],
  ["wrong content types", 4],
  ["absurd headers", 7],
  ["slow and broken senders", 4],
]);

/** @returns {{ index: number, kind: string, endpoint: object, request: object, mustRefuse: boolean }} */
export function generate(world, seed, index) {
  const random = randomFor("hostile", seed, index);
  const kind = weighted(random, KINDS);
  const { attacker } = world;
  const all = endpoints(attacker, index);
  const withBody = all.filter(({ body }) => body !== undefined);
  const of = (candidates) => oneOf(random, candidates);
  const made = (endpoint, changes = {}, mustRefuse = false) => ({
    index,
    kind,
    endpoint,
    mustRefuse,
    request: { ...requestOf(endpoint, attacker.key), ...changes },
  });
  switch (kind) {
    case "valid":
      return made(of(all));
    case "broken JSON": {
      const endpoint = of(withBody);
      return made(endpoint, { body: bad.brokenJson(random, endpoint.body) });
    }
    case "wrong types": {
      const endpoint = of(withBody);
      let { body } = endpoint;
      for (let count = 1 + Math.floor(random() * 3); count > 0; count -= 1)
        body = bad.replacePart(random, body, () => of(bad.ODD_VALUES));
      return made(endpoint, { body: bad.text(JSON.stringify(body)) });
    }
    case "huge and negative numbers": {
      if (random() < 0.2) {
        const endpoint = of(all.filter(({ path }) => path.includes("?")));
        const value = String(of(bad.ODD_NUMBERS));
        return made(endpoint, { path: endpoint.path.replace(/=[^&]*/, `=${encodeURIComponent(value)}`) });
      }
      const endpoint = of(withBody);
      const isNumber = (value) => typeof value === "number";
      const body = bad.replacePart(random, endpoint.body, () => of(bad.ODD_NUMBERS), isNumber);
      return made(endpoint, { body: bad.text(JSON.stringify(body)) });
    }
    case "deep nesting": {
      const endpoint = of(withBody);
      return made(endpoint, { body: bad.deepJson(random, endpoint.body) });
    }
    case "broken protobuf": {
      const endpoint = all.find(({ bytes }) => bytes !== undefined);
      const body =
        random() < 0.5
          ? bad.brokenProtobuf(random, endpoint.bytes)
          : bad.oddTensors(random, attacker.model, attacker.nextSeqId + index);
      return made(endpoint, { body });
    }
    case "bombs": {
      const endpoint = of([...withBody, ...all.filter(({ bytes }) => bytes !== undefined)]);
      const [encoding, body] = bad.bomb(random);
      const { headers } = requestOf(endpoint, attacker.key);
      return made(endpoint, { body, headers: [...headers, ["content-encoding", encoding]] });
    }
    case "large bodies": {
      const endpoint = of(withBody);
      const size = of([1, 5, 30, 70]) * 2 ** 20;
      const filler = of([
        () => Buffer.alloc(size, "[1,"),
        () => Buffer.alloc(size, " "),
        () => Buffer.alloc(size, "1"),
      ])();
      const json = JSON.stringify({ ...endpoint.body, extra: "\u0001" });
      const [before, after] = json.split('"\\u0001"');
      return made(endpoint, { body: Buffer.concat([bad.text(before), filler, bad.text(after)]) });
    }
    case "path tricks":
      return pathTrick(random, world, all, made);
    case "foreign ids": {
      const endpoint = of(endpoints(world.victim, index).filter(({ hasId }) => hasId !== false));
      const published = random() < 0.15;
      const swap = (value) =>
        published ? value?.replaceAll(world.victim.weights, world.victim.published) : value;
      const body = endpoint.body === undefined ? undefined : JSON.parse(swap(JSON.stringify(endpoint.body)));
      const used = { ...endpoint, ...(body === undefined ? {} : { body }) };
      return made(used, {}, endpoint.harmless !== true && !published);
    }
    case "wrong keys": {
      const endpoint = of(all.filter(({ open }) => open !== true));
      return made(endpoint, { headers: withKey(endpoint, wrongKey(random, world)) }, true);
    }
    case "forged links":
      return forgedLink(random, world, all, made);
    case "wrong content types": {
      const endpoint = of([...withBody, ...all.filter(({ bytes }) => bytes !== undefined)]);
      const headers = withKey(endpoint, attacker.key).filter(([name]) => name !== "content-type");
      return made(endpoint, { headers: [...headers, ["content-type", of(bad.CONTENT_TYPES)]] });
    }
    case "absurd headers": {
      const endpoint = of(all);
      const method =
        random() < 0.15
          ? of(["OPTIONS", "TRACE", "PATCH", "HEAD", "PROPFIND", "CONNECT", "get", "G\u0001T"])
          : endpoint.method;
      const extra = bad.absurdHeaders(random);
      // A body that was announced otherwise never comes; half of one says as much.
      const announces = extra.some(([name]) => /^(content-length|transfer-encoding)$/.test(name));
      return made(endpoint, {
        method,
        headers: [...withKey(endpoint, attacker.key), ...extra],
        ...(announces ? { manner: "half" } : {}),
      });
    }
    case "slow and broken senders": {
      const endpoint = of(withBody);
      return made(endpoint, { manner: of(["half", "stall", "reset", "half-head", "trickle"]) });
    }
    default:
      throw new Error(`no such kind: ${kind}`);
  }
}

function requestOf(endpoint, key) {
  const { method, path, body, bytes } = endpoint;
  const content = bytes ?? (body === undefined ? undefined : bad.text(JSON.stringify(body)));
  return {
    method,
    path,
    headers: withKey(endpoint, key),
    ...(content === undefined ? {} : { body: content }),
  };
}

function withKey({ body, bytes }, key) {
  const headers = key === undefined ? [] : [["x-api-key", key]];
  if (bytes !== undefined) headers.push(["content-type", "application/x-protobuf"]);
  else if (body !== undefined) headers.push(["content-type", "application/json"]);
  return headers;
}

const isName = (value) => typeof value === "string" && !value.includes(" ");

function pathTrick(random, world, all, made) {
  const trick = oneOf(random, bad.PATH_TRICKS);
  const style = random();
  if (style < 0.35) {
    const endpoint = oneOf(
      random,
      all.filter(({ body }) => body !== undefined && /weights|sampl|path/.test(JSON.stringify(body))),
    );
    const shown = oneOf(random, [
      trick,
      `tinker://${trick}`,
      `tinker://${world.attacker.model}/weights/${trick}`,
      `tinker://${world.attacker.model}/${trick}/canary`,
      `tinker://${trick}/weights/canary`,
      `tinker://${world.victim.model}/weights/canary/../canary`,
    ]);
    return made(endpoint, {
      body: bad.text(JSON.stringify(bad.replacePart(random, endpoint.body, () => shown, isName))),
    });
  }
  if (style < 0.6) {
    const endpoint = oneOf(
      random,
      all.filter(({ path }) => path.includes("?")),
    );
    return made(endpoint, { path: endpoint.path.replace(/=[^&]*/, `=${encodeURIComponent(trick)}`) });
  }
  // In the URL, raw where the request line can hold it.
  const endpoint = oneOf(
    random,
    all.filter(({ path }) => path.split("/").length > 4),
  );
  const parts = endpoint.path.split("?")[0].split("/");
  const at = 3 + Math.floor(random() * (parts.length - 3));
  // biome-ignore lint/suspicious/noControlCharactersInRegex: what a request line cannot hold.
  const line = /[\s\u0000-\u001f\u007f-\uffff]/;
  parts[at] = random() < 0.5 || line.test(trick) ? encodeURIComponent(trick) : trick;
  return made(endpoint, { path: parts.join("/") });
}

function wrongKey(random, world) {
  const encode = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const { victim, attacker } = world;
  const claims = { owner: "local", exp: 9_999_999_999, sub: "tinkerts:user:local" };
  return oneOf(random, [
    undefined,
    "",
    " ",
    "tml-",
    "tml-local",
    victim.key.slice(0, -1),
    `${victim.key}x`,
    victim.key.toUpperCase(),
    `tml-${"x".repeat(4000)}`,
    `${attacker.key},${victim.key}`,
    "null",
    "eyJ",
    "eyJ..",
    `${encode({ alg: "none", typ: "JWT" })}.${encode(claims)}.`,
    `${encode({ alg: "HS256", typ: "JWT" })}.${encode(claims)}.${"A".repeat(43)}`,
    `${encode({ alg: "HS256", typ: "JWT" })}.${encode({ ...claims, owner: null })}.${encode({})}`,
    `eyJ${"A".repeat(3000)}.${"B".repeat(3000)}.${"C".repeat(3000)}`,
    "eyJ\u00e9.\u00e9.\u00e9",
  ]);
}

/** Links of the attacker's own, bent towards what is not the attacker's. */
function forgedLink(random, world, all, made) {
  const { attacker, victim } = world;
  const kind = oneOf(random, Object.keys(attacker.links));
  const url = new URL(attacker.links[kind]);
  const endpoint = all.find(({ path }) => path.startsWith(url.pathname));
  const change = oneOf(random, [
    () => url.searchParams.set("path", victim.weights),
    () => url.searchParams.append("path", victim.weights),
    () => url.searchParams.set("session", victim.session),
    () => url.searchParams.set("file", oneOf(random, bad.PATH_TRICKS)),
    () => url.searchParams.set("file", "checkpoint.json"),
    () => url.searchParams.set("expires", "99999999999"),
    () => url.searchParams.set("expires", "NaN"),
    () => url.searchParams.set("signature", ""),
    () => url.searchParams.set("signature", "A".repeat(43)),
    () => url.searchParams.delete("signature"),
    () => {
      url.pathname = oneOf(
        random,
        ["/api/v1/downloads/archive", "/api/v1/downloads/file", "/api/v1/downloads/trace"].filter(
          (path) => path !== url.pathname,
        ),
      );
    },
  ]);
  const before = url.href;
  change();
  return made(endpoint, { method: "GET", path: `${url.pathname}${url.search}` }, url.href !== before);
}
