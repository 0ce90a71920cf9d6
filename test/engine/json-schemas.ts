import { philox } from "../../src/local/engine/philox.js";

type Schema = Record<string, unknown> | boolean;

const AWKWARD = [
  "",
  " ",
  '"',
  "\\",
  'a"b\\c',
  "line\nbreak\ttab",
  "\u0000\u001f",
  "größe",
  "日本語",
  "😀👍🏽",
  "\ud800",
  "</script>",
  "{}",
  "null",
  "__proto__",
];
const PATTERNS = [
  "^[a-z]{2,5}$",
  "^\\d{3}-\\d{4}$",
  "ab+c?",
  "^(foo|bar|ba[^a-y])$",
  "^.{1,3}$",
  '^[^\\s"]+$',
  "^\\w+@\\w+\\.com$",
  "^[äöü€😀]{2}$",
  "^(a|b)*c",
  "x$|^y",
  '\\\\|"',
  "^[\\u0000-\\u0020]{1,2}$",
];
const FORMATS = ["date", "time", "date-time", "uuid", "email", "ipv4", "hostname"];

/** A JSON schema of supported keywords that some JSON fits; the same for the same seed. */
export function randomSchema(seed: number): Schema {
  let drawn = 0;
  const below = (count: number) => philox(seed, [drawn++, 0, 0, 77])[0] % count;
  const pick = <T>(list: readonly T[]) => list[below(list.length)]!;
  const maybe = (changes: Record<string, unknown>) => (below(2) === 0 ? changes : {});
  const defs: Record<string, Schema> = {};

  const text = (): Schema => {
    const min = below(6);
    return pick([
      { type: "string" },
      { type: "string", ...maybe({ minLength: min }), maxLength: min + below(30) },
      { type: "string", pattern: pick(PATTERNS) },
      { type: "string", format: pick(FORMATS) },
      { type: "string", enum: [pick(AWKWARD), pick(AWKWARD), "plain"] },
      { enum: [pick(AWKWARD), 1.5, null, { a: [1, "é"] }] },
      { const: pick<unknown>([...AWKWARD, 0, -1e-7, 1e21, [], { x: { y: 1 } }]) },
    ]);
  };
  const number = (): Schema => {
    const low = pick([-1000, -7, -0.5, 0, 1e-7, 0.1, 3, 99, 123456]);
    const high = low + pick([0.001, 0.5, 1, 10, 250, 1e6]);
    const type = pick(["number", "integer"]);
    return pick([
      { type },
      { type, minimum: low },
      { type, maximum: high },
      { type, exclusiveMinimum: low },
      { type, exclusiveMaximum: high },
      { type, minimum: Math.floor(low), maximum: Math.ceil(high) },
      { type: "number", exclusiveMinimum: low, exclusiveMaximum: high },
      { type: "number", minimum: low, maximum: low },
    ]);
  };
  const object = (depth: number): Schema => {
    const names = ["a", "b", "long name", "ü", 'quo"te', "constructor", "0"].slice(0, 1 + below(7));
    const properties = Object.fromEntries(names.map((name) => [name, value(depth - 1)]));
    return {
      type: "object",
      properties: Object.defineProperty(properties, "last", { value: value(depth - 1), enumerable: true }),
      required: names.filter(() => below(2) === 0),
      ...pick([
        {},
        { additionalProperties: false },
        { additionalProperties: value(depth - 1) },
        { minProperties: 1 },
      ]),
    };
  };
  const array = (depth: number): Schema => {
    const min = below(3);
    return pick<Schema>([
      { type: "array", items: value(depth - 1), maxItems: min + below(4), minItems: min },
      { type: "array", items: value(depth - 1) },
      {
        type: "array",
        prefixItems: [value(depth - 1), value(depth - 1)],
        items: pick([false, value(depth - 1)]),
      },
      { type: "array", prefixItems: [value(depth - 1)], items: value(depth - 1), minItems: 2 },
      { type: "array", maxItems: 2 },
    ]);
  };
  const tagged = (tag: string, depth: number): Schema => ({
    type: "object",
    properties: { tag: { const: tag }, body: value(depth - 1) },
    required: ["tag"],
    additionalProperties: false,
  });
  const combined = (depth: number): Schema =>
    pick<() => Schema>([
      () => ({ anyOf: [value(depth - 1), value(depth - 1)] }),
      () => ({ oneOf: [tagged("x", depth), tagged("y", depth), { type: "array", items: number() }] }),
      () => ({
        oneOf: [{ type: "string", maxLength: 3 }, { type: "null" }, { type: "integer", minimum: 5 }],
      }),
      () => ({
        allOf: [
          { type: "object", properties: { a: { type: "integer" } }, required: ["a"] },
          { properties: { a: { minimum: 3 }, b: text() }, required: ["b"] },
        ],
      }),
      () => ({
        type: "object",
        properties: { one: text(), two: number() },
        anyOf: [{ required: ["one"] }, { required: ["two"] }],
      }),
      () => ({ $ref: "#/$defs/tree", description: "recursive" }),
      () => ({ type: ["string", "null", "boolean"], maxLength: 4 }),
      () => ({ type: "integer", nullable: true }),
      () => true,
    ])();
  const value = (depth: number): Schema => {
    if (depth <= 0) return pick([text, number, () => ({ type: "boolean" })])();
    return pick([text, number, () => object(depth), () => array(depth), () => combined(depth)])();
  };
  defs["tree"] = {
    type: "object",
    properties: {
      name: { type: "string", maxLength: 5 },
      children: { type: "array", items: { $ref: "#/$defs/tree" } },
    },
    required: ["name", "children"],
  };
  const root = value(3);
  return typeof root === "boolean" ? root : { ...root, $defs: defs };
}
