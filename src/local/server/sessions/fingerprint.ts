import { createHash } from "node:crypto";

/** A fingerprint that is equal for equal JSON values, in any order of keys; undefined and null count as absent. */
export function fingerprintJson(value: unknown): string {
  return createHash("sha256")
    .update(JSON.stringify(canonical(value)))
    .digest("base64");
}

function canonical(value: unknown): unknown {
  if (ArrayBuffer.isView(value)) {
    return createHash("sha256")
      .update(new Uint8Array(value.buffer, value.byteOffset, value.byteLength))
      .digest("base64");
  }
  if (Array.isArray(value)) return value.map(canonical);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, item]) => item !== undefined && item !== null)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, item]) => [key, canonical(item)]),
  );
}
