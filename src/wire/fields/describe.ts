/** A short text for a value that was not what was expected, fit for an error message. */
export function describe(value: unknown): string {
  if (typeof value === "string") return value.length > 40 ? `"${value.slice(0, 40)}…"` : `"${value}"`;
  if (typeof value === "bigint") return `${value}n`;
  if (value === null || typeof value !== "object") {
    return typeof value === "function" ? "a function" : String(value);
  }
  if (Array.isArray(value)) return `a list of ${value.length}`;
  const name = Object.getPrototypeOf(value)?.constructor?.name;
  return typeof name === "string" && name !== "Object" && name !== "" ? `a ${name}` : "an object";
}

/** Names that other libraries use. */
const OTHER_NAMES: Readonly<Record<string, string>> = { lr: "learningRate" };

/** The candidate a misspelt or snake_case name was most likely meant to be. */
export function closestName(name: string, candidates: Iterable<string>): string | undefined {
  const otherName = Object.hasOwn(OTHER_NAMES, name) ? OTHER_NAMES[name] : undefined;
  const plain = name.replaceAll("_", "").toLowerCase();
  let best: string | undefined;
  let bestDistance = Math.min(3, Math.floor(plain.length / 3) + 1);
  for (const candidate of candidates) {
    if (candidate === otherName) return candidate;
    const distance = editDistance(plain, candidate.toLowerCase());
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/** Edits (insert, delete, replace, swap neighbours) between two short names. */
function editDistance(left: string, right: string): number {
  if (Math.abs(left.length - right.length) > 3) return Number.POSITIVE_INFINITY;
  const rows: number[][] = [Array.from({ length: right.length + 1 }, (_, column) => column)];
  for (let row = 1; row <= left.length; row++) {
    const current = [row];
    for (let column = 1; column <= right.length; column++) {
      const same = left[row - 1] === right[column - 1];
      let cost = Math.min(
        rows[row - 1]![column]! + 1,
        current[column - 1]! + 1,
        rows[row - 1]![column - 1]! + (same ? 0 : 1),
      );
      const swapped =
        row > 1 && column > 1 && left[row - 1] === right[column - 2] && left[row - 2] === right[column - 1];
      if (swapped) cost = Math.min(cost, rows[row - 2]![column - 2]! + 1);
      current.push(cost);
    }
    rows.push(current);
  }
  return rows[left.length]![right.length]!;
}
