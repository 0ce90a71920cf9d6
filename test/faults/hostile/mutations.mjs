// What can be done to a request that would otherwise be accepted. Each function takes a request and gives a worse one.
import { gzipSync } from "node:zlib";
import { oneOf } from "../shared/random.mjs";

const encoder = new TextEncoder();
export const text = (value) => encoder.encode(value);
const whole = (random, below) => Math.floor(random() * below);

// ---- JSON

const BROKEN_JSON = [
  (json, random) => json.slice(0, whole(random, json.length)),
  (json, random) => flip(json, random, 1),
  (json, random) => flip(json, random, 10),
  (json) => `${json}${json}`,
  (json) => `\ufeff${json}`,
  (json) => json.replaceAll('"', "'"),
  (json) => json.replace("{", "{,"),
  (json) => json.replace(/\d+/, "NaN"),
  (json) => json.replace(/\d+/, "1e99999"),
  (json) => json.replace(/\d+/, "0x10"),
  (json) => json.replace(/:/, ":/* */"),
  (json) => json.replace("}", ',"\\ud800":"\\udfff\\u0000"}'),
  (json) => `[${json}]`,
  () => "null",
  () => "true",
  () => '"text"',
  () => "12",
  () => "",
  () => "{}",
  () => "[]",
  () => "{",
  () => "\u0000",
  (json) => json.replace("{", '{"__proto__":{"isAdmin":true},"constructor":{"prototype":{"x":1}},'),
  (json) => json.replace("{", `{"${"k".repeat(100_000)}":1,`),
];

function flip(json, random, count) {
  const characters = [...json];
  for (let index = 0; index < count; index += 1)
    characters[whole(random, characters.length)] = String.fromCharCode(whole(random, 256));
  return characters.join("");
}

export function brokenJson(random, body) {
  const json = JSON.stringify(body ?? {});
  const broken = oneOf(random, BROKEN_JSON)(json, random);
  // Encodings that are no UTF-8, now and then.
  if (random() < 0.1) return Buffer.from(broken, "utf16le");
  if (random() < 0.1) return Buffer.from(broken, "latin1");
  return text(broken);
}

export const ODD_VALUES = [
  null,
  true,
  "",
  "x".repeat(5000),
  "\u0000\ud800",
  -1,
  0,
  -0,
  1.5,
  1e308,
  -1e308,
  2 ** 31,
  2 ** 53,
  -(2 ** 63),
  Number.MIN_VALUE,
  [],
  {},
  [[]],
  [null],
  { type: "encoded_text" },
  { $ref: "#" },
  "1e5",
  "-5",
  "NaN",
  "__proto__",
  "constructor",
  "toString",
  Array(3000).fill(1),
  Object.fromEntries(Array.from({ length: 3000 }, (_, index) => [`k${index}`, index])),
];
export const ODD_NUMBERS = [
  -1,
  0,
  1.5,
  -1e308,
  1e308,
  2 ** 31,
  2 ** 31 - 1,
  2 ** 32,
  2 ** 53,
  2 ** 63,
  -(2 ** 63),
  1e12,
  999_999_999,
];

/** Puts `choose()` in the place of one part, however deep. */
export function replacePart(random, body, choose, accepts = () => true) {
  const copy = structuredClone(body);
  const places = [];
  const visit = (holder) => {
    for (const key of Object.keys(holder)) {
      if (accepts(holder[key])) places.push([holder, key]);
      if (typeof holder[key] === "object" && holder[key] !== null) visit(holder[key]);
    }
  };
  visit(copy);
  if (places.length === 0) return copy;
  const [holder, key] = oneOf(random, places);
  if (random() < 0.1) delete holder[key];
  else holder[key] = choose();
  return copy;
}

export function deepJson(random, body) {
  const depth = oneOf(random, [100, 2_000, 20_000, 200_000]);
  const [open, close] = oneOf(random, [
    ["[", "]"],
    ['{"a":', "}"],
    ['{"chunks":[', "]}"],
    ['[{"type":"encoded_text","tokens":', "}]"],
  ]);
  const nested = `${open.repeat(depth)}1${random() < 0.8 ? close.repeat(depth) : ""}`;
  const keys = Object.keys(body ?? {});
  if (keys.length === 0 || random() < 0.3) return text(nested);
  const key = JSON.stringify(oneOf(random, keys));
  const json = JSON.stringify({ ...body, [JSON.parse(key)]: "\u0001" });
  return text(json.replace('"\\u0001"', nested));
}

// ---- protobuf

export function brokenProtobuf(random, bytes) {
  const copy = Uint8Array.from(bytes);
  switch (whole(random, 8)) {
    case 0:
      return copy.subarray(0, whole(random, copy.length));
    case 1:
      copy[whole(random, copy.length)] = whole(random, 256);
      return copy;
    case 2:
      for (let index = 0; index < 8; index += 1) copy[whole(random, copy.length)] = whole(random, 256);
      return copy;
    case 3:
      return Buffer.concat([copy, Buffer.from(Array.from({ length: 40 }, () => whole(random, 256)))]);
    // A field that says it is gigabytes long.
    case 4:
      return Buffer.concat([copy, Buffer.from([0x1a, 0xff, 0xff, 0xff, 0xff, 0x0f, 1, 2])]);
    // A number without an end.
    case 5:
      return Buffer.concat([copy, Buffer.from([0x10, ...Array(20).fill(0xff)])]);
    // Groups inside groups, which clients no longer send.
    case 6:
      return Buffer.concat([copy, Buffer.alloc(5000, 0x2b)]);
    default:
      return Buffer.concat(Array(1 + whole(random, 50)).fill(copy));
  }
}

/** A forward-backward request with sizes that do not fit, or that are huge. */
export function oddTensors(random, modelId, seqId) {
  const varint = (value) => {
    const out = [];
    let left = BigInt.asUintN(64, BigInt(value));
    do {
      out.push(Number(left & 127n) | (left > 127n ? 128 : 0));
      left >>= 7n;
    } while (left > 0n);
    return out;
  };
  const field = (number, bytes) =>
    Buffer.from([...varint((number << 3) | 2), ...varint(bytes.length), ...bytes]);
  const shape = oneOf(random, [
    [-1],
    [0],
    [2 ** 31],
    [Number.MAX_SAFE_INTEGER],
    [3, -3],
    [3, 2 ** 40],
    [1, 3],
    [3, 1, 1, 1],
    [],
  ]);
  const tensor = (data, dtype) =>
    Buffer.concat([
      field(1, data),
      Buffer.from([3 << 3, ...varint(dtype)]),
      field(
        4,
        shape.flatMap((value) => varint(value)),
      ),
    ]);
  const sparse = () =>
    Buffer.concat([
      field(
        2,
        Buffer.concat([
          field(1, Buffer.alloc(whole(random, 64))),
          field(2, Buffer.alloc(8 * whole(random, 6), whole(random, 256))),
          field(3, Buffer.alloc(8 * whole(random, 6), whole(random, 256))),
        ]),
      ),
      Buffer.from([3 << 3, ...varint(1 + whole(random, 5))]),
      field(
        4,
        shape.flatMap((value) => varint(value)),
      ),
    ]);
  const entry = (key, value) => field(2, Buffer.concat([field(1, text(key)), field(2, value)]));
  const data = Buffer.alloc(oneOf(random, [0, 1, 7, 12, 24, 100]), whole(random, 256));
  const datum = Buffer.concat([
    field(1, field(1, field(1, Buffer.alloc(oneOf(random, [0, 1, 3, 12, 40_000]), whole(random, 2))))),
    entry("target_tokens", random() < 0.5 ? tensor(data, 1 + whole(random, 6)) : sparse()),
    entry(
      oneOf(random, ["weights", "__proto__", "logprobs", ""]),
      random() < 0.5 ? tensor(data, 1) : sparse(),
    ),
  ]);
  return Buffer.concat([
    field(1, text(modelId)),
    Buffer.from([2 << 3, ...varint(oneOf(random, [seqId, -1, 0, 2 ** 31, Number.MAX_SAFE_INTEGER]))]),
    ...Array(1 + whole(random, 3)).fill(field(3, datum)),
    field(4, text(oneOf(random, ["cross_entropy", "ppo", "", "__proto__", "x".repeat(1000)]))),
  ]);
}

// ---- bodies that are small on the wire and large behind it

const MAGIC = [0x28, 0xb5, 0x2f, 0xfd];

/** A frame of runs of one letter, 4 bytes for up to 128 KiB each. */
function runs(count, size, header) {
  const frame = Buffer.alloc(4 + header.length + 4 * count);
  frame.set([...MAGIC, ...header]);
  for (let index = 0; index < count; index += 1) {
    const value = (size << 3) | (1 << 1) | (index === count - 1 ? 1 : 0);
    frame.set([value & 255, (value >> 8) & 255, value >> 16, 0x20], 4 + header.length + 4 * index);
  }
  return frame;
}

const gzipBomb = gzipSync(Buffer.alloc(300 * 2 ** 20, " "), { level: 9 });
const doubleGzip = gzipSync(gzipBomb);

/** @returns {[encoding: string, bytes: Uint8Array]} */
export function bomb(random) {
  const window = 0x58;
  return oneOf(random, [
    () => ["zstd", runs(8, 131_072, [0x00, window])],
    () => ["zstd", runs(5_000, 131_072, [0x00, window])],
    () => ["zstd", runs(100_000, 131_072, [0x00, window])],
    () => ["zstd", Buffer.concat(Array(50).fill(runs(100, 131_072, [0x00, window])))],
    () => ["zstd", runs(2, 100, [0xe0, 0, 0, 0, 0, 255, 0, 0, 0])],
    () => ["zstd", runs(2, 100, [0xa0, 0, 0, 0, 64])],
    () => ["zstd", runs(2, 100, [0x00, 0xf8])],
    () => ["zstd", Buffer.from([...MAGIC, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff])],
    () => [
      "zstd",
      Buffer.from(Array.from({ length: 200 }, (_, index) => (index < 4 ? MAGIC[index] : whole(random, 256)))),
    ],
    () => [
      "zstd",
      Buffer.concat([Buffer.from([0x50, 0x2a, 0x4d, 0x18, 0xff, 0xff, 0xff, 0xff]), Buffer.alloc(10)]),
    ],
    () => ["zstd", Buffer.alloc(0)],
    () => ["gzip", gzipBomb],
    () => ["gzip", doubleGzip],
    () => ["gzip", gzipBomb.subarray(0, 1000)],
    () => ["deflate", Buffer.from([0x78, 0x9c, ...Array(100).fill(255)])],
    () => ["br", Buffer.from("abc")],
    () => ["zstd, gzip", Buffer.from("abc")],
  ])();
}

// ---- names and paths

export const PATH_TRICKS = [
  "..",
  "../..",
  "../../secret.txt",
  "..%2f..%2fsecret.txt",
  "..%252f..%252fsecret.txt",
  "%2e%2e/%2e%2e/secret.txt",
  "..\\..\\secret.txt",
  "/etc/passwd",
  "//etc/passwd",
  "file:///etc/passwd",
  "../neighbour",
  "....//....//secret.txt",
  ".",
  "",
  " ",
  "a/b",
  "a\\b",
  ".hidden",
  ".tmp-x",
  ".old-x",
  "canary/../canary",
  "canary\u0000",
  "canary%00",
  "canary.",
  "CON",
  "nul.txt",
  "x".repeat(300),
  "x".repeat(20_000),
  "‮evil",
  "café",
  "café",
  "a\nb",
  "a\r\nX-Injected: 1",
  "checkpoint.json",
  "__proto__",
  "constructor",
  "$(touch /tmp/pwned)",
  "`id`",
  "'; drop table runs; --",
  "{{7*7}}",
  "*",
  "?",
  "canary?x=1",
  "canary#x",
];

// ---- headers

export function absurdHeaders(random) {
  return oneOf(random, [
    () => Array.from({ length: 90 }, (_, index) => [`x-header-${index}`, "v".repeat(50)]),
    () => Array.from({ length: 3000 }, (_, index) => [`x-h-${index}`, "1"]),
    () => [["x-long", "v".repeat(12_000)]],
    () => [["x-long", "v".repeat(100_000)]],
    () => [["cookie", "a=b; ".repeat(2000)]],
    () => [["host", "evil.example"]],
    () => [["host", ""]],
    () => [["host", "a b\tc"]],
    () => [["host", "127.0.0.1:99999999"]],
    () => [["host", "[::1"]],
    () => [["host", "user:pass@127.0.0.1/../.."]],
    () => [["origin", "https://evil.example"]],
    () => [["origin", "null"]],
    () => [["content-length", "-5"]],
    () => [["content-length", "99999999999999999999"]],
    () => [["content-length", "1e3"]],
    () => [["content-length", "5, 6"]],
    () => [
      ["content-length", "5"],
      ["content-length", "50"],
    ],
    () => [
      ["transfer-encoding", "chunked"],
      ["content-length", "5"],
    ],
    () => [["transfer-encoding", "gzip, chunked"]],
    () => [["transfer-encoding", "chunked"]],
    () => [["transfer-encoding", "chunked, identity"]],
    () => [["expect", "100-continue"]],
    () => [["expect", "something-else"]],
    () => [
      ["upgrade", "websocket"],
      ["connection", "upgrade"],
    ],
    () => [
      ["upgrade", "h2c"],
      ["connection", "upgrade, http2-settings"],
      ["http2-settings", "AAMAAABkAARAAAAAAAIAAAAA"],
    ],
    () => [["range", "bytes=0-1,2-3,4-5,0-,0-,0-,-1"]],
    () => [["range", `bytes=${"0-0,".repeat(3000)}`]],
    () => [
      ["accept", "*/*;q=NaN"],
      ["accept-encoding", "zstd, br, \u0001"],
    ],
    () => [["accept", "application/x-protobuf"]],
    () => [["x-idempotency-key", "\u00ff".repeat(200)]],
    () => [["authorization", "Bearer "]],
    () => [["authorization", `Basic ${"A".repeat(5000)}`]],
    () => [
      ["x-http-method-override", "DELETE"],
      ["x-original-url", "/api/v1/sessions"],
      ["x-forwarded-for", "127.0.0.1"],
    ],
    () => [["bad header", "space"]],
    () => [["x-control", "a\u0001b"]],
    () => [
      ["access-control-request-method", "DELETE"],
      ["access-control-request-headers", "x".repeat(3000)],
      ["origin", "http://localhost:1"],
    ],
    () => [
      ["if-none-match", "*"],
      ["if-modified-since", "not a date"],
      ["if-range", "x"],
    ],
  ])();
}

export const CONTENT_TYPES = [
  "text/plain",
  "application/x-www-form-urlencoded",
  "multipart/form-data; boundary=x",
  "application/xml",
  "application/x-protobuf",
  "application/json; charset=utf-16",
  "application/octet-stream",
  "application/vnd.x+json",
  "APPLICATION/JSON",
  ";",
  "json",
  `application/json; ${"a=b;".repeat(1000)}`,
];
