import { refuse, type Steps } from "./steps.js";

/** A JSON schema that is an object of keywords. */
export type Keywords = Readonly<Record<string, unknown>>;

/** A JSON schema. */
export type Schema = boolean | Keywords;

const TYPES = ["object", "array", "string", "number", "integer", "boolean", "null"] as const;

/** A type as JSON schema calls it. */
export type SchemaType = (typeof TYPES)[number];

/** One way to satisfy a schema, free of `$ref`, `allOf`, `anyOf` and `oneOf`; absent parts do not restrict it. */
export interface Part {
  readonly types?: readonly SchemaType[];
  readonly values?: readonly unknown[];
  readonly numbers: Readonly<Partial<Record<NumberKeyword, number>>>;
  readonly pattern?: string;
  readonly format?: string;
  readonly properties?: ReadonlyMap<string, Schema>;
  readonly required?: ReadonlySet<string>;
  readonly additionalProperties?: Schema;
  readonly prefixItems?: readonly Schema[];
  readonly items?: Schema;
}

const LOWER_BOUNDS = ["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"] as const;
const UPPER_BOUNDS = ["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"] as const;
const COUNTS = /Length$|Items$|Properties$/;

type NumberKeyword = (typeof LOWER_BOUNDS)[number] | (typeof UPPER_BOUNDS)[number];

/** Keywords that restrict JSON and cannot be guaranteed. */
const REFUSED = [
  "not",
  "if",
  "then",
  "else",
  "multipleOf",
  "uniqueItems",
  "contains",
  "minContains",
  "maxContains",
  "additionalItems",
  "unevaluatedItems",
  "unevaluatedProperties",
  "patternProperties",
  "propertyNames",
  "dependencies",
  "dependentRequired",
  "dependentSchemas",
  "$dynamicRef",
  "$recursiveRef",
];

/** A schema must be an object or a boolean. */
export function schemaAt(value: unknown, path: string): Schema {
  if (typeof value === "boolean" || isKeywords(value)) return value;
  return refuse(path, "a schema must be an object, true or false");
}

/** The schemas in a list, each with its path. */
export function schemaListAt(value: unknown, path: string): { schema: Schema; path: string }[] {
  if (!Array.isArray(value) || value.length === 0)
    refuse(path, "must be a list of schemas with at least one");
  return (value as unknown[]).map((schema, index) => ({
    schema: schemaAt(schema, `${path}/${index}`),
    path: `${path}/${index}`,
  }));
}

function isKeywords(value: unknown): value is Keywords {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Steps for reading all keywords of a schema. */
const PART_SIZE = 15;

/** Reads the keywords of one schema object that are not references to others. */
export function readPart(schema: Keywords, path: string, steps: Steps): Part {
  steps.take(PART_SIZE, path, Object.keys(schema)[0]);
  for (const [keyword, value] of Object.entries(schema)) steps.take(1 + entryCount(value), path, keyword);
  for (const keyword of REFUSED) {
    if (!Object.hasOwn(schema, keyword)) continue;
    // Some generators write them although they restrict nothing.
    if (keyword === "uniqueItems" && schema[keyword] === false) continue;
    refuse(path, `"${keyword}" is not supported: JSON that surely fits it cannot be promised`);
  }
  const types = readTypes(schema, path);
  const values = readValues(schema, path, steps);
  return {
    ...(types === undefined ? {} : { types }),
    ...(values === undefined ? {} : { values }),
    numbers: readNumbers(schema, path),
    ...readText(schema, "pattern", path),
    ...readText(schema, "format", path),
    ...readObject(schema, path),
    ...readArray(schema, path),
  };
}

function entryCount(value: unknown): number {
  if (Array.isArray(value)) return value.length;
  return isKeywords(value) ? Object.keys(value).length : 0;
}

function readTypes(schema: Keywords, path: string): SchemaType[] | undefined {
  const { type, nullable } = schema;
  if (type === undefined) return undefined;
  const types = Array.isArray(type) ? (type as unknown[]) : [type];
  for (const name of types) {
    if (!TYPES.includes(name as SchemaType))
      refuse(path, `"type" must be one or several of ${TYPES.join(", ")}`);
  }
  return [...new Set([...types, ...(nullable === true ? ["null"] : [])] as SchemaType[])];
}

function readValues(schema: Keywords, path: string, steps: Steps): unknown[] | undefined {
  const values = Object.hasOwn(schema, "const") ? [schema["const"]] : undefined;
  if (!Object.hasOwn(schema, "enum")) return values;
  const list = schema["enum"];
  if (!Array.isArray(list)) return refuse(path, '"enum" must be a list');
  return values === undefined ? list : commonValues(values, list, steps);
}

function readNumbers(schema: Keywords, path: string): Part["numbers"] {
  const numbers: Partial<Record<NumberKeyword, number>> = {};
  for (const keyword of [...LOWER_BOUNDS, ...UPPER_BOUNDS]) {
    const value = schema[keyword];
    if (value === undefined) continue;
    if (typeof value !== "number" || !Number.isFinite(value)) refuse(path, `"${keyword}" must be a number`);
    if (COUNTS.test(keyword) && (!Number.isInteger(value) || (value as number) < 0))
      refuse(path, `"${keyword}" must be a whole number, zero or more`);
    numbers[keyword] = value as number;
  }
  return numbers;
}

function readText<K extends "pattern" | "format">(
  schema: Keywords,
  keyword: K,
  path: string,
): { [P in K]?: string } {
  const value = schema[keyword];
  if (value === undefined) return {};
  if (typeof value !== "string") return refuse(path, `"${keyword}" must be a string`);
  return { [keyword]: value } as { [P in K]?: string };
}

function readObject(schema: Keywords, path: string): Partial<Part> {
  const { properties, required, additionalProperties } = schema;
  if (properties !== undefined && !isKeywords(properties)) refuse(path, '"properties" must be an object');
  const isNames = Array.isArray(required) && required.every((name) => typeof name === "string");
  if (required !== undefined && !isNames) refuse(path, '"required" must be a list of names');
  return {
    ...(properties === undefined
      ? {}
      : {
          properties: new Map(
            Object.entries(properties as Keywords).map(([name, value]) => [
              name,
              schemaAt(value, `${path}/properties/${name}`),
            ]),
          ),
        }),
    ...(required === undefined ? {} : { required: new Set(required as string[]) }),
    ...(additionalProperties === undefined
      ? {}
      : { additionalProperties: schemaAt(additionalProperties, `${path}/additionalProperties`) }),
  };
}

function readArray(schema: Keywords, path: string): Partial<Part> {
  const { prefixItems, items } = schema;
  if (Array.isArray(items))
    refuse(path, '"items" must be one schema; a list of them is called "prefixItems"');
  return {
    ...(prefixItems === undefined
      ? {}
      : { prefixItems: schemaListAt(prefixItems, `${path}/prefixItems`).map(({ schema: item }) => item) }),
    ...(items === undefined ? {} : { items: schemaAt(items, `${path}/items`) }),
  };
}

/** The part that satisfies both; undefined if nothing does. */
export function bothParts(a: Part, b: Part, path: string, steps: Steps): Part | undefined {
  steps.take(partSize(a) + partSize(b), path);
  const types = a.types && b.types ? commonTypes(a.types, b.types) : (a.types ?? b.types);
  const values = a.values && b.values ? commonValues(a.values, b.values, steps) : (a.values ?? b.values);
  if (types?.length === 0 || values?.length === 0) return undefined;
  const numbers: Partial<Record<NumberKeyword, number>> = { ...a.numbers };
  for (const [keyword, value] of Object.entries(b.numbers) as [NumberKeyword, number][]) {
    const tighter = (LOWER_BOUNDS as readonly string[]).includes(keyword) ? Math.max : Math.min;
    numbers[keyword] = tighter(value, numbers[keyword] ?? value);
  }
  const additionalProperties = bothSchemas(a.additionalProperties, b.additionalProperties);
  const items = bothSchemas(a.items, b.items);
  const propertyOf = (part: Part, name: string) => part.properties?.get(name) ?? part.additionalProperties;
  const itemOf = (part: Part, index: number) => part.prefixItems?.[index] ?? part.items;
  const names = new Set([...(a.properties?.keys() ?? []), ...(b.properties?.keys() ?? [])]);
  const prefix = Math.max(a.prefixItems?.length ?? 0, b.prefixItems?.length ?? 0);
  return {
    ...(types === undefined ? {} : { types }),
    ...(values === undefined ? {} : { values }),
    numbers,
    ...sameText(a, b, "pattern", path),
    ...sameText(a, b, "format", path),
    ...(names.size === 0
      ? {}
      : {
          properties: new Map(
            [...names].map((name) => [name, bothSchemas(propertyOf(a, name), propertyOf(b, name)) ?? true]),
          ),
        }),
    ...(a.required || b.required
      ? { required: new Set([...(a.required ?? []), ...(b.required ?? [])]) }
      : {}),
    ...(additionalProperties === undefined ? {} : { additionalProperties }),
    ...(prefix === 0
      ? {}
      : {
          prefixItems: Array.from(
            { length: prefix },
            (_, index) => bothSchemas(itemOf(a, index), itemOf(b, index)) ?? true,
          ),
        }),
    ...(items === undefined ? {} : { items }),
  };
}

function partSize({ properties, required, prefixItems }: Part): number {
  return 10 + (properties?.size ?? 0) + (required?.size ?? 0) + (prefixItems?.length ?? 0);
}

/** By both of its halves: the same two schemas give the same one, so that recursion is recognized. */
const bothByHalf = new WeakMap<Keywords, WeakMap<Keywords, Schema>>();

function bothSchemas(a: Schema | undefined, b: Schema | undefined): Schema | undefined {
  if (a === undefined || a === true || a === b) return b ?? a;
  if (b === undefined || b === true) return a;
  if (a === false || b === false) return false;
  const others = bothByHalf.get(a) ?? new WeakMap<Keywords, Schema>();
  bothByHalf.set(a, others);
  const both = others.get(b) ?? { allOf: [a, b] };
  others.set(b, both);
  return both;
}

function sameText<K extends "pattern" | "format">(
  a: Part,
  b: Part,
  keyword: K,
  path: string,
): { [P in K]?: string } {
  const [first, second] = [a[keyword], b[keyword]];
  if (first !== undefined && second !== undefined && first !== second)
    refuse(path, `two values of "${keyword}" have to hold at once, which is not supported`);
  const text = first ?? second;
  return text === undefined ? {} : ({ [keyword]: text } as { [P in K]?: string });
}

/** Types that both lists allow; whole numbers are numbers. */
export function commonTypes(a: readonly SchemaType[], b: readonly SchemaType[]): SchemaType[] {
  const allows = (types: readonly SchemaType[], type: SchemaType) =>
    types.includes(type) || (type === "integer" && types.includes("number"));
  return TYPES.filter(
    (type) => (a.includes(type) && allows(b, type)) || (b.includes(type) && allows(a, type)),
  );
}

/** Values that are in both lists. */
export function commonValues(a: readonly unknown[], b: readonly unknown[], steps: Steps): unknown[] {
  const texts = new Set(b.map((value) => sortedJson(value, steps)));
  return a.filter((value) => texts.has(sortedJson(value, steps)));
}

/** Characters that are written in one step. */
const CHARACTERS_PER_STEP = 8;

/** A text that is equal for equal values, in any order of their members. */
export function sortedJson(value: unknown, steps: Steps): string {
  const text = JSON.stringify(value, (_, inner: unknown) =>
    isKeywords(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([x], [y]) => (x < y ? -1 : 1)))
      : inner,
  );
  steps.take(1 + text.length / CHARACTERS_PER_STEP, "#", "enum");
  return text;
}

/** The type that a value has. */
export function hasType(value: unknown, types: readonly SchemaType[]): boolean {
  if (value === null) return types.includes("null");
  if (Array.isArray(value)) return types.includes("array");
  if (typeof value === "number")
    return types.includes("number") || (Number.isInteger(value) && types.includes("integer"));
  return types.includes(typeof value as SchemaType);
}
