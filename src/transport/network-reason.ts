const TIMEOUT_CODES: ReadonlySet<unknown> = new Set(["UND_ERR_CONNECT_TIMEOUT", "ETIMEDOUT"]);

/** Why a request did not get through, in words without a full stop. */
export function networkReason(error: unknown): { text: string; isTimeout: boolean } {
  // fetch says only "fetch failed"; the reason is its cause, and behind several addresses a list of them.
  let inner: unknown = error;
  while (inner instanceof Error) {
    const next: unknown = inner instanceof AggregateError ? inner.errors[0] : inner.cause;
    if (!(next instanceof Error)) break;
    inner = next;
  }
  const code: unknown = inner instanceof Error && "code" in inner ? inner.code : undefined;
  const message = inner instanceof Error ? inner.message : String(inner);
  const text = typeof code === "string" && !message.includes(code) ? `${message} (${code})` : message;
  return { text: (text || "no reason given").replace(/\.$/, ""), isTimeout: TIMEOUT_CODES.has(code) };
}
