import { commonTypes, commonValues, hasType, type Part, type Schema, sortedJson } from "./schema-parts.js";
import type { Steps } from "./steps.js";

/** Maximum depth to which nested properties are compared. */
const MAX_COMPARED_DEPTH = 20;

/** Access to the schemas that compared parts come from. */
export interface PartComparison {
  alternatives(schema: Schema, depth: number): readonly Part[];
  readonly steps: Steps;
}

type Branch = readonly [index: number, parts: readonly Part[]];

/** Two branches that may both fit some JSON; undefined where surely no JSON fits two of them. */
export function overlappingBranches(
  branches: readonly (readonly Part[])[],
  comparison: PartComparison,
  depth: number,
): readonly [number, number] | undefined {
  const all: Branch[] = [...branches.entries()];
  const isListed = ([, parts]: Branch) => parts.every(({ values }) => values);
  const listed = all.filter(isListed);
  const plain = all.filter((branch) => !isListed(branch));
  // Values differ by their texts, objects by a property with a value of its own in each: no pair is compared.
  const twice = repeatedValue(listed, (part) => part.values!, comparison);
  if (twice) return twice;
  const tagOf = discriminator(plain, comparison, depth);
  const isToldApart = tagOf !== undefined && !repeatedValue(plain, tagOf, comparison);
  for (const [at, [index, parts]] of plain.entries()) {
    const others = isToldApart ? listed : [...listed, ...plain.slice(at + 1)];
    for (const [other, otherParts] of others) {
      if (!parts.every((a) => otherParts.every((b) => disjointParts(a, b, comparison, depth))))
        return [Math.min(index, other), Math.max(index, other)];
    }
  }
  return undefined;
}

/** Two branches with the same value. */
function repeatedValue(
  branches: readonly Branch[],
  valuesOf: (part: Part) => readonly unknown[],
  { steps }: PartComparison,
): readonly [number, number] | undefined {
  const owners = new Map<string, number>();
  for (const [index, parts] of branches) {
    for (const value of parts.flatMap(valuesOf)) {
      const text = sortedJson(value, steps);
      const owner = owners.get(text) ?? index;
      if (owner !== index) return [owner, index];
      owners.set(text, index);
    }
  }
  return undefined;
}

/** Reads a property that all parts require and take from a list of values; undefined where there is none. */
function discriminator(
  branches: readonly Branch[],
  { alternatives }: PartComparison,
  depth: number,
): ((part: Part) => readonly unknown[]) | undefined {
  const valuesOf = (part: Part, name: string): readonly unknown[] | undefined => {
    if (part.types?.join() !== "object" || !part.required?.has(name)) return undefined;
    const schema = part.properties?.get(name);
    const ways = schema === undefined ? [] : alternatives(schema, depth + 1);
    return ways.length > 0 && ways.every(({ values }) => values)
      ? ways.flatMap(({ values }) => values!)
      : undefined;
  };
  const parts = branches.flatMap(([, each]) => each);
  for (const name of parts[0]?.required ?? [])
    if (parts.every((part) => valuesOf(part, name))) return (part) => valuesOf(part, name)!;
  return undefined;
}

/** True if certainly no JSON fits both; false also if that is unknown. */
function disjointParts(a: Part, b: Part, comparison: PartComparison, depth: number): boolean {
  const { alternatives, steps } = comparison;
  steps.take(1 + (a.required?.size ?? 0) + (b.required?.size ?? 0), "#", "oneOf");
  if (a.values && b.values) return commonValues(a.values, b.values, steps).length === 0;
  steps.take((a.values ?? b.values ?? []).length, "#", "oneOf");
  if (a.values && b.types) return !a.values.some((value) => hasType(value, b.types!));
  if (b.values && a.types) return !b.values.some((value) => hasType(value, a.types!));
  if (!a.types || !b.types) return false;
  const types = commonTypes(a.types, b.types);
  if (types.length === 0) return true;
  if (types.length > 1 || types[0] !== "object" || depth > MAX_COMPARED_DEPTH) return false;
  const lacks = (part: Part, name: string) =>
    part.additionalProperties === false && !part.properties?.has(name);
  for (const name of a.required ?? []) {
    if (lacks(b, name)) return true;
    const [first, second] = [a.properties?.get(name), b.properties?.get(name)];
    if (!b.required?.has(name) || first === undefined || second === undefined) continue;
    const others = alternatives(second, depth + 1);
    const isDisjoint = alternatives(first, depth + 1).every((one) =>
      others.every((other) => disjointParts(one, other, comparison, depth + 1)),
    );
    if (isDisjoint) return true;
  }
  return [...(b.required ?? [])].some((name) => lacks(a, name));
}
