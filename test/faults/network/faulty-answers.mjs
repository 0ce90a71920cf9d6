// The HTTP layer of the faults: answers that a gateway, a proxy or a broken server may give in place of the right one.
import { oneOf } from "../shared/random.mjs";
import { answerBytes } from "./http-messages.mjs";

const json = { "content-type": "application/json" };
const html = { "content-type": "text/html; charset=utf-8" };
const page = (title) =>
  `<!DOCTYPE html><html><head><title>${title}</title></head><body><h1>${title}</h1><hr>gateway</body></html>`;
const detail = (status) => [status, json, JSON.stringify({ detail: `injected ${status}` })];

/** Faults whose answer does not depend on the right one; `acts` tells whether the server may see the request first. */
const MADE_UP = {
  408: { acts: true, answer: () => [408, {}, ""] },
  "408-queue-state": {
    acts: true,
    answer: (random) => [
      408,
      json,
      JSON.stringify({
        queue_state: oneOf(random, ["active", "paused_capacity", "paused_rate_limit", "unheard_of"]),
      }),
    ],
  },
  409: { answer: () => detail(409) },
  425: { answer: () => detail(425) },
  "429-seconds": {
    answer: (random) => [429, { ...json, "retry-after": oneOf(random, ["1", "0.5", "2"]) }, "{}"],
  },
  "429-date": {
    answer: (_, wallNow) => [429, { "retry-after": new Date(wallNow() + 2_000).toUTCString() }, ""],
  },
  "429-milliseconds": {
    answer: (random) => [429, { "retry-after-ms": oneOf(random, ["1", "250", "1500"]) }, ""],
  },
  "429-no-retry-after": { answer: () => detail(429) },
  "429-absurd-retry-after": {
    answer: (random) => [
      429,
      {
        "retry-after": oneOf(random, [
          "86400",
          "-5",
          "soon",
          "1e300",
          "NaN",
          "Thu, 01 Jan 1970 00:00:00 GMT",
          "",
        ]),
      },
      "",
    ],
  },
  402: { answer: () => [402, json, JSON.stringify({ detail: "The account is out of credit." })] },
  410: { acts: true, answer: () => detail(410) },
  500: { acts: true, answer: () => detail(500) },
  502: { acts: true, answer: () => [502, {}, ""] },
  503: { acts: true, answer: (random) => [503, random() < 0.5 ? { "retry-after": "1" } : {}, "no capacity"] },
  504: { acts: true, answer: () => [504, html, page("504 Gateway Time-out")] },
  "400-empty": { answer: () => [400, {}, ""] },
  400: { answer: () => [400, html, page("400 Bad Request")] },
  "html-error-page": {
    acts: true,
    answer: (random) => [oneOf(random, [500, 502, 503, 520]), html, page("Bad Gateway")],
  },
  "html-page": { acts: true, answer: () => [200, html, page("Please accept our terms")] },
};

/** Faults that spoil the right answer. */
const SPOILT = {
  "wrong-content-type": (right, random) => [
    right.status,
    { "content-type": oneOf(random, ["text/html", "application/octet-stream", "application/json", ""]) },
    right.body,
  ],
  "corrupt-protobuf": (right, random) =>
    isProtobuf(right)
      ? [right.status, { "content-type": "application/x-protobuf" }, spoil(right.body, random)]
      : cut(right, random),
  "cut-json": (right, random) =>
    isProtobuf(right)
      ? [right.status, { "content-type": "application/x-protobuf" }, spoil(right.body, random)]
      : cut(right, random),
};

export const isMadeUp = (kind) => Object.hasOwn(MADE_UP, kind);
export const isSpoilt = (kind) => Object.hasOwn(SPOILT, kind);

/** Whether the server gets to see the request that will be answered by a made-up answer. */
export const actsFirst = (kind, random) => MADE_UP[kind].acts === true && random() < 0.5;

export const madeUpAnswer = (kind, random, wallNow) => answerBytes(...MADE_UP[kind].answer(random, wallNow));

export const spoiltAnswer = (kind, right, random) => answerBytes(...SPOILT[kind](right, random));

const isProtobuf = (answer) => answer.headers.get("content-type") === "application/x-protobuf";

/** Only what a reader can notice: the protocol has no checksum, so a changed number is a number. */
function spoil(bytes, random) {
  if (random() < 0.5 && bytes.length > 1) return bytes.subarray(0, bytes.length - 1);
  return Buffer.concat([Buffer.from([0x0f]), bytes]);
}

function cut(right, random) {
  const length = 1 + Math.floor(random() * Math.max(right.body.length - 2, 0));
  return [right.status, json, right.body.length < 3 ? "{" : right.body.subarray(0, length)];
}
