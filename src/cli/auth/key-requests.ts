import { z } from "zod";
import { APIError } from "../../errors.js";
import { HttpClient } from "../../transport/index.js";
import { clientOptions } from "../clients.js";
import type { CommandContext } from "../context.js";
import { isHosted } from "../credential.js";
import { keyDetails } from "./credential-file.js";

const PATH = "/api/v1/auth/apikey/me";
/** Whether a server answered that it does not have the path or the method. */
export function isUnknownRoute(error: unknown): boolean {
  return error instanceof APIError && [404, 405, 501].includes(error.status);
}

const description = z.object({ name: z.string(), note: z.string(), details: keyDetails });

/** A server's answer about a key. */
export interface DescribedKey extends z.infer<typeof description> {
  readonly keyId: string;
}

/**
 * Asks the server who owns a key. Undefined if the server accepts keys but cannot answer. Throws if the key is refused.
 */
export function describeKey(context: CommandContext, key: string): Promise<DescribedKey | undefined> {
  return withKey(context, key, async (http, signal) => {
    try {
      const response = await http.exchange({ method: "GET", path: PATH, expect: "json", signal });
      return readDescription(http.baseURL, response.json(), new TextDecoder().decode(response.bytes));
    } catch (error) {
      if (!isUnknownRoute(error) || isHosted(context.globals())) throw error;
      await http.exchange({ method: "GET", path: "/api/v1/get_server_capabilities", expect: "json", signal });
      return undefined;
    }
  });
}

/** Deletes the key on the server. */
export function deleteKey(context: CommandContext, key: string): Promise<void> {
  return withKey(context, key, async (http, signal) => {
    await http.exchange({ method: "DELETE", path: PATH, signal });
  });
}

/** The key is sent as it is: no other credential is used, and it is not exchanged for a token. */
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

function readDescription(server: string, json: unknown, text: string): DescribedKey {
  const { success, data, error } = description.safeParse(json);
  // As the server wrote it: a 64-bit number would lose its last digits.
  const keyId = /"key_id"\s*:\s*(\d+)/.exec(text)?.[1];
  if (success && keyId !== undefined) return { keyId, ...data };
  const [issue] = error?.issues ?? [];
  const what =
    issue === undefined ? "key_id: expected a whole number" : `${issue.path.join(".")}: ${issue.message}`;
  throw new Error(`${server} described the key in an unexpected way (${what}); is it a Tinker server?`);
}
