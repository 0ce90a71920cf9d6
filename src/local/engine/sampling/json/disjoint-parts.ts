import { commonTypes, commonValues, hasType, type Part, type Schema } from "./schema-parts.js";

/** How deep properties of properties are compared. */
const MAX_COMPARED_DEPTH = 20;

/** Surely no JSON fits both; false also where that cannot be seen. */
export function disjointParts(
  a: Part,
  b: Part,
  alternatives: (schema: Schema, depth: number) => Part[],
  depth: number,
): boolean {
  if (a.values && b.values) return commonValues(a.values, b.values).length === 0;
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
      others.every((other) => disjointParts(one, other, alternatives, depth + 1)),
    );
    if (isDisjoint) return true;
  }
  return [...(b.required ?? [])].some((name) => lacks(a, name));
}
