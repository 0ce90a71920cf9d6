import { isLoopbackHost } from "../../transport/request-encoding.js";
import { UsageError } from "../context.js";

/** Refuses an address that other machines can reach where there are no keys. */
export function checkReach(host: string, apiKeys: readonly string[], variable: string): void {
  if (apiKeys.length > 0 || isLoopbackHost(host)) return;
  throw new UsageError(
    `listening on ${host} lets other machines in, which needs an API key: give --api-key-file or set ${variable}, or leave --host out to stay on this machine`,
  );
}

/** Starts something that listens; says which option to change where the port or the address is not available. */
export async function explainListening<T>(
  { port, host }: { readonly port?: number | undefined; readonly host?: string | undefined },
  start: () => Promise<T>,
): Promise<T> {
  try {
    return await start();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EADDRINUSE")
      throw new Error(`port ${port} is taken: give another with --port, or 0 for any free one`);
    if (code === "EADDRNOTAVAIL" || code === "ENOTFOUND")
      throw new Error(`${host} is not an address of this machine: give another --host, or leave it out`);
    throw error;
  }
}

/** Resolves with the signal's abort. */
export function whenAborted(signal: AbortSignal): Promise<void> {
  return new Promise<void>((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
