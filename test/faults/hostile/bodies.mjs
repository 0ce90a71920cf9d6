// Bodies that are small on the way and large to read: every repeated field of every message, JSON of many small parts,
// plain and compressed.
import { deflateSync, gzipSync } from "node:zlib";
import { between, oneOf } from "../shared/random.mjs";

const MIB = 2 ** 20;

function varint(value) {
  const bytes = [];
  let rest = value;
  for (; rest > 127; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 128);
  return [...bytes, rest];
}

/** A field that is a message, a text, bytes or a packed list. */
const part = (field, content) =>
  Buffer.concat([Buffer.from([...varint(field * 8 + 2), ...varint(content.length)]), content]);
const times = (bytes, content) => Buffer.alloc(Math.floor(bytes / content.length) * content.length, content);
const empty = Buffer.alloc(0);
const within = (path, content) => path.reduceRight((inner, field) => part(field, inner), content);

/** Where a field can be repeated: the path of fields to it, and what is repeated there. */
const PROTOBUF = {
  datums: [[], part(3, empty)],
  chunks: [[3], part(1, empty)],
  texts: [[3], part(1, part(1, empty))],
  "texts of one chunk": [[3, 1], part(1, empty)],
  tokens: [[3, 1, 1], part(1, empty)],
  images: [[3, 1], part(2, empty)],
  "sizes of images": [[3, 1, 2], part(4, empty)],
  audio: [[3, 1], part(3, empty)],
  tensors: [[3], part(2, empty)],
  "tensors of one entry": [[3, 2], part(2, empty)],
  sparse: [[3, 2, 2], part(2, empty)],
  indices: [[3, 2, 2, 2], part(3, empty)],
  "shapes one by one": [[3, 2, 2], Buffer.from([32, 1])],
  "packed shapes": [[3, 2, 2, 4], Buffer.from([1])],
  "spans of inputs": [[3], part(3, empty)],
  "spans of targets": [[3], part(4, part(2, empty))],
  settings: [[], part(5, empty)],
  "newer settings": [[], part(7, part(2, empty))],
  names: [[], part(1, Buffer.from("a"))],
  numbers: [[], Buffer.from([16, 1])],
  "unknown fields": [[], Buffer.from([120, 1])],
  "unknown fields of datums": [[3], Buffer.from([120, 1])],
  groups: [[], Buffer.from([123])],
  "a long name": [[1], Buffer.from("a")],
  "a long key": [[3, 2, 1], Buffer.from("a")],
  "many datums of one chunk": [[], part(3, part(1, empty))],
  "datums below the limit": [[], part(3, part(1, part(1, empty))), 4000 * 6],
};

const JSON_PARTS = [
  "{}",
  "[]",
  '""',
  "1",
  "null",
  "-1.5e3",
  '{"a":{"b":1}}',
  '"\\u0041"',
  "[[[[]]]]",
  '{"tokens":[]}',
];

function post(world, path, contentType, body, encoding) {
  return {
    request: {
      method: "POST",
      path,
      headers: [
        ["x-api-key", world.attacker.key],
        ["content-type", contentType],
        ...(encoding === "identity" ? [] : [["content-encoding", encoding]]),
      ],
      body,
    },
  };
}

const compress = {
  identity: (bytes) => bytes,
  gzip: (bytes) => gzipSync(bytes, { level: 1 }),
  deflate: (bytes) => deflateSync(bytes, { level: 1 }),
};

function sent(world, path, contentType, body, encoding) {
  return post(world, path, contentType, compress[encoding](body), encoding);
}

const opening = (world, seqId) =>
  Buffer.concat([part(1, Buffer.from(world.attacker.model)), Buffer.from([16, ...varint(seqId)])]);

function hostileProtobuf(random, world, kind) {
  const [path, repeated, most] = PROTOBUF[kind];
  const bytes = most ?? Math.floor(between(random, 1, 60)) * MIB;
  // A body that does not begin with its model makes the server look for it.
  const begin = oneOf(random, [opening(world, 1), Buffer.alloc(0)]);
  const body = Buffer.concat([begin, within(path, times(bytes, repeated))]);
  const encoding = oneOf(random, bytes > 8 * MIB ? ["gzip", "deflate"] : Object.keys(compress));
  return sent(world, "/api/v1/forward_backward", "application/x-protobuf", body, encoding);
}

function hostileJson(random, world, index) {
  const repeated = `${JSON_PARTS[index % JSON_PARTS.length]},`;
  const list = `[${repeated.repeat(Math.floor(between(random, 1, 15)) * (MIB / repeated.length))}1]`;
  const keys = Array.from({ length: 100_000 }, (_, key) => `"k${key}":1`).join();
  const { model } = world.attacker;
  const [path, body] = oneOf(random, [
    [
      "/api/v1/forward_backward",
      `{"model_id":"${model}","seq_id":1,"forward_backward_input":{"data":${list}}}`,
    ],
    ["/api/v1/telemetry", `{"events":${list}}`],
    ["/v1/chat/completions", `{"model":"${model}","messages":${list}}`],
    ["/anthropic/v1/messages", `{"model":"${model}","messages":${list}}`],
    ["/api/v1/asample", `{"prompt":{"chunks":${list}}}`],
    ["/api/v1/create_session", `{${keys}}`],
    ["/api/v1/forward_backward", `{"model_id":"${"a".repeat(10 * MIB)}","seq_id":1}`],
  ]);
  return sent(world, path, "application/json", Buffer.from(body), oneOf(random, Object.keys(compress)));
}

export const bodies = {
  name: "bodies",
  /** Fields of a newer client, as many bytes as a body may have. */
  ordinary: (_random, world, index) => {
    const newer = part(15, Buffer.alloc((index % 4 === 0 ? 60 : 1) * MIB));
    const tokens = Buffer.alloc(16, Uint8Array.of(1, 0, 0, 0));
    const tensor = Buffer.concat([
      part(1, Buffer.alloc(32, Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0))),
      Buffer.from([24, 2]),
    ]);
    const input = part(2, Buffer.concat([part(1, Buffer.from("target_tokens")), part(2, tensor)]));
    const datum = part(3, Buffer.concat([part(1, part(1, part(1, tokens))), input]));
    const loss = part(4, Buffer.from("cross_entropy"));
    const seqId = world.attacker.nextSeqId + index;
    const body = Buffer.concat([opening(world, seqId), datum, loss, Buffer.from([48, 1]), newer]);
    return {
      kind: "ordinary",
      ...sent(world, "/api/v1/forward_backward", "application/x-protobuf", body, "gzip"),
    };
  },
  hostile: (random, world, index) => {
    const kinds = Object.keys(PROTOBUF);
    const kind = kinds[index % (kinds.length + JSON_PARTS.length)];
    if (kind !== undefined) return { kind, ...hostileProtobuf(random, world, kind) };
    return { kind: "JSON", ...hostileJson(random, world, index) };
  },
};
