import { z } from "zod";
import { APIError } from "../../errors.js";
import { HttpClient } from "../../transport/index.js";
import { clientOptions } from "../clients.js";
import type { CommandContext } from "../context.js";
import { isHosted } from "../credential.js";
import { keyDetails } from "./credential-file.js";

const PATH = "/api/v1/auth/apikey/me";
/** What a server answers to a path or a method that it does not have. */
const UNKNOWN_ROUTE = new Set([404, 405, 501]);

const description = z.object({ name: z.string(), note: z.string(), details: keyDetails });

/** What a server knows about a key. */
export interface KeyDescription extends z.infer<typeof description> {
  readonly keyId: string;
}

/**
 * Asks the server whose key it is. A server of one's own may accept keys and have no answer to that: undefined.
 * Throws where the key is not accepted.
 */
export function describeKey(context: CommandContext, key: string): Promise<KeyDescription | undefined> {
  return withKey(context, key, async (http, signal) => {
    try {
      const response = await http.exchange({ method: "GET", path: PATH, expect: "json", signal });
      return readDescription(http.baseURL, response.json(), new TextDecoder().decode(response.bytes));
    } catch (error) {
      const isUnknown = error instanceof APIError && UNKNOWN_ROUTE.has(error.status);
      if (!isUnknown || isHosted(context.globals())) throw error;
      await http.exchange({
        method: "GET",
        path: "/api/v1/get_server_capabilities",
        expect: "json",
        signal,
      });
      return undefined;
    }
  });
}

/** Deletes the key itself, everywhere. */
export function deleteKey(context: CommandContext, key: string): Promise<void> {
  return withKey(context, key, async (http, signal) => {
    await http.exchange({ method: "DELETE", path: PATH, signal });
  });
}

/** The key goes as it is: no other credential counts, and it is exchanged for no token. */
async function withKey<T>(
  context: CommandContext,
  key: string,
  work: (http: HttpClient, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const http = new HttpClient({ ...clientOptions(context), apiKey: () => key });
  try {
    return await work(http, context.interruption());
  } finally {
    await http.close();
  }
}

function readDescription(server: string, json: unknown, text: string): KeyDescription {
  const { success, data, error } = description.safeParse(json);
  // As the server wrote it: a number of 64 bits would lose its last digits.
  const keyId = /"key_id"\s*:\s*(\d+)/.exec(text)?.[1];
  if (success && keyId !== undefined) return { keyId, ...data };
  const [issue] = error?.issues ?? [];
  const what =
    issue === undefined ? "key_id: expected a whole number" : `${issue.path.join(".")}: ${issue.message}`;
  throw new Error(`${server} described the key in an unexpected way (${what}); is it a Tinker server?`);
}
