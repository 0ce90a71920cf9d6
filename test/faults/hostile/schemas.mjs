// JSON schemas that are small to send and large to compile, to open or to follow token by token.
import { oneOf } from "../shared/random.mjs";

const whole = (random, low, high) => low + Math.floor(random() * (high - low + 1));
const times = (count, make) => Array.from({ length: count }, (_, index) => make(index));
const record = (entries) => Object.fromEntries(entries);
const nested = (depth, inner, around) => {
  let schema = inner;
  for (let level = 0; level < depth; level += 1) schema = around(schema, level);
  return schema;
};
const text = (pattern) => ({ type: "string", pattern });

/** By kind, from a random source: schemas of at most a few hundred KB. */
const KINDS = {
  "nested repeats": (random) => {
    const count = () => oneOf(random, ["{1000}", "{0,1000}", "{500,999}", "{1,}", "*", "+", "{30}"]);
    const atom = oneOf(random, ["a?", "a", "a*", "[^b]?", "(a|)", "(a|b|ab)", ".?", "\\w{0,9}"]);
    const pattern = nested(whole(random, 2, 40), atom, (inner) => `(${inner})${count()}`);
    return text(`^${pattern}$`);
  },
  "repeats side by side": (random) => {
    const part = oneOf(random, ["(a?){1000}", "(a*){1000}", "a{0,1000}", "(a|aa){900}", "(.?){1000}", ".*"]);
    return text(`${oneOf(random, ["", "^"])}${part.repeat(whole(random, 2, 90))}${oneOf(random, ["", "$"])}`);
  },
  "wide patterns": (random) => {
    const range = () => String.fromCodePoint(whole(random, 0x20, 0xd7ff)).replace(/[\]\\^-]/, "x");
    const pattern = `[${times(whole(random, 100, 900), range).join("")}]{1,1000}`;
    return {
      type: "object",
      properties: record(times(whole(random, 1, 60), (index) => [`p${index}`, text(pattern)])),
    };
  },
  "many ways at once": (random) => ({
    anyOf: times(whole(random, 200, 1500), (index) => text(`a.*${index % 2 ? "b" : "c"}{${index % 999}}`)),
  }),
  "properties and others": (random) => {
    const name = oneOf(random, [
      (index) => `property_${index}`,
      (index) => `${"a".repeat(index % 900)}${index}`,
      (index) => String.fromCodePoint(0x4e00 + index),
      (index) => `${index.toString(36)}${"é".repeat(20)}`,
    ]);
    return {
      type: "object",
      properties: record(times(oneOf(random, [1000, 2000, 5000, 9000]), (index) => [name(index), {}])),
      additionalProperties: oneOf(random, [true, {}, { type: "string" }]),
    };
  },
  "long names": (random) => {
    const name = oneOf(random, ["a", "é", "🜁", '"', "\u0000"]).repeat(whole(random, 3000, 60_000));
    return {
      type: "object",
      properties: { [name]: { type: "integer" }, [`${name}b`]: {} },
      ...oneOf(random, [{ additionalProperties: true }, { required: [name] }, {}]),
    };
  },
  "constants in oneOf": (random) => {
    const constant = oneOf(random, [
      (index) => ({ const: index }),
      (index) => ({ enum: [`value ${index}`, index] }),
      (index) => ({ const: { kind: index, list: [index] } }),
      (index) => ({
        type: "object",
        properties: { kind: { const: index } },
        required: ["kind"],
        additionalProperties: false,
      }),
      (index) => ({ type: "object", properties: { [`p${index}`]: { type: "null" } } }),
    ]);
    return { oneOf: times(oneOf(random, [1500, 5000, 9000]), constant) };
  },
  "products of alternatives": (random) => ({
    [oneOf(random, ["allOf", "oneOf", "anyOf"])]: times(whole(random, 2, 40), (index) => ({
      anyOf: times(whole(random, 2, 40), (way) => ({
        type: "object",
        properties: { [`p${index}`]: { const: way }, [`q${way}`]: { type: "string" } },
      })),
    })),
    properties: { x: { type: "integer" } },
  }),
  "references that double": (random) => {
    const levels = whole(random, 15, 200);
    const both = oneOf(random, [
      (next) => ({ allOf: [next, next, { properties: { x: next } }] }),
      (next) => ({ type: "object", properties: { left: next, right: next }, required: ["left", "right"] }),
      (next) => ({ anyOf: [next, { type: "array", items: next, minItems: 2 }] }),
      (next) => ({ oneOf: [next, { const: 1 }] }),
      (next) => ({ type: "array", prefixItems: [next, next], minItems: 2, items: next }),
    ]);
    const $defs = record(times(levels, (level) => [`d${level}`, both({ $ref: `#/$defs/d${level + 1}` })]));
    return { $ref: "#/$defs/d0", $defs: { ...$defs, [`d${levels}`]: { type: "integer" } } };
  },
  "references to themselves": (random) => {
    const self = { $ref: "#" };
    return oneOf(random, [
      self,
      { allOf: [self, self] },
      { anyOf: [self, self, { type: "null" }] },
      { oneOf: [{ type: "array", items: self }, self] },
      { properties: { x: { allOf: [self, { properties: { x: { allOf: [self, self] } } }] } } },
      { allOf: [{ properties: { a: self, b: self } }, { properties: { b: self, a: self } }] },
    ]);
  },
  "deep nesting": (random) =>
    nested(
      oneOf(random, [90, 150, 600, 1500]),
      { type: "integer" },
      oneOf(random, [
        (inner) => ({ type: "array", items: inner }),
        (inner) => ({ properties: { x: inner } }),
        (inner) => ({ allOf: [inner, true] }),
        (inner) => ({ anyOf: [inner, inner.anyOf ? { const: 1 } : { const: 2 }] }),
        (inner) => ({ const: inner }),
      ]),
    ),
  "huge counts": (random) => {
    const count = oneOf(random, [1e4, 1e6, 2 ** 31, 1e15, 1e300]);
    return oneOf(random, [
      { type: "string", minLength: count },
      { type: "string", maxLength: count },
      nested(4, { type: "integer" }, (items) => ({ type: "array", items, minItems: count, maxItems: count })),
      nested(5, {}, (items) => ({ type: "array", items, maxItems: 1000 })),
      { type: "object", minProperties: count, maxProperties: count },
      { type: "number", minimum: -1 / count, exclusiveMaximum: count },
    ]);
  },
  "long lists": (random) => {
    const count = oneOf(random, [2000, 9000, 20_000]);
    return oneOf(random, [
      { enum: times(count, (index) => `value ${index}`) },
      { enum: times(count, (index) => index), minimum: 3, maximum: 1e9 },
      { enum: times(count >> 3, (index) => "a".repeat(index % 40)), pattern: "^(a?){40}a{20}$" },
      { enum: ["x".repeat(200_000)], pattern: "x(x?x?)*$" },
      { type: "array", prefixItems: times(count, () => ({ type: "integer" })), minItems: count },
      { type: "object", required: times(count, (index) => `r${index}`) },
      { type: times(count, () => "string") },
      { const: times(count, (index) => [index]) },
    ]);
  },
  "many bounds": (random) => ({
    type: "object",
    properties: record(
      times(whole(random, 200, 2000), (index) => [
        `n${index}`,
        { type: "number", minimum: random() * 10 ** -(index % 300), maximum: 1e14 + random() * 1e14 },
      ]),
    ),
    required: ["n0"],
  }),
  "odd references": (random) =>
    oneOf(random, [
      { $ref: `#${"/properties/x".repeat(20_000)}`, properties: { x: {} } },
      { $ref: `#/${"%25".repeat(50_000)}` },
      { properties: record(times(3000, (index) => [`p${index}`, { $ref: "#" }])) },
      { anyOf: times(5000, () => ({ $ref: "#/$defs/a" })), $defs: { a: { type: "string" } } },
      { allOf: times(5000, () => ({ $ref: "#/$defs/a" })), $defs: { a: { type: "string" } } },
    ]),
};

function chat(world, schema, index) {
  const model = world.attacker.samplerWeights;
  const messages = [{ role: "user", content: "JSON" }];
  const isAnthropic = index % 5 === 4;
  const body = isAnthropic
    ? { model, messages, max_tokens: 100, output_config: { format: { type: "json_schema", schema } } }
    : {
        model,
        messages,
        max_tokens: 100,
        response_format: { type: "json_schema", json_schema: { name: "s", schema } },
      };
  return {
    request: {
      method: "POST",
      path: isAnthropic ? "/anthropic/v1/messages" : "/v1/chat/completions",
      headers: [
        ["x-api-key", world.attacker.key],
        ["content-type", "application/json"],
      ],
      body: Buffer.from(JSON.stringify(body)),
    },
    check: (answer) => {
      const written = isAnthropic ? answer.content?.[0]?.text : answer.choices?.[0]?.message?.content;
      try {
        JSON.parse(written);
        return undefined;
      } catch {
        return "the answer's text is no JSON";
      }
    },
  };
}

/** Schemas as people write them. */
function ordinarySchema(index) {
  return {
    type: "object",
    properties: {
      title: { type: "string", maxLength: 10 + (index % 5) },
      kind: { enum: ["article", "book", "talk"] },
      year: { type: "integer", minimum: 1900, maximum: 2100 },
      day: { type: "string", format: "date" },
      code: { type: "string", pattern: "^[A-Z]{2}-\\d{3,5}$" },
    },
    required: ["kind", "year"],
    additionalProperties: false,
  };
}

export const schemas = {
  name: "schemas",
  ordinary: (_random, world, index) => ({ kind: "ordinary", ...chat(world, ordinarySchema(index), index) }),
  hostile: (random, world, index) => {
    const names = Object.keys(KINDS);
    const kind = names[index % names.length];
    return { kind, ...chat(world, KINDS[kind](random), index) };
  },
};
