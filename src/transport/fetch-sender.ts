import { platformSignalOf } from "./interruption.js";
import type { Connections } from "./platform-types.js";
import { readPieces, type Sender } from "./sender.js";

/** Every pool over one `fetch`, which has connections of its own. */
export function connectionsOver(fetchFunction: typeof fetch): Connections {
  const sender = fetchSender(fetchFunction);
  return { senderFor: () => sender, renew() {}, async close() {} };
}

/** Sends through `fetch`: the runtime's own, or one that the caller gave. */
function fetchSender(fetchFunction: typeof fetch): Sender {
  return async ({ url, method, headers, body, signal, redirect }) => {
    const init: RequestInit & { duplex?: "half" } = {
      method,
      headers: [...headers],
      signal: platformSignalOf(signal),
      redirect,
    };
    if (body !== undefined) {
      init.body = body as Exclude<RequestInit["body"], undefined>;
      if (body instanceof ReadableStream) init.duplex = "half";
    }
    const response = await fetchFunction(url, init);
    const reader = response.body?.getReader();
    const read = async () => (await reader?.read())?.value;
    return {
      url: response.url || url,
      status: response.status,
      statusText: response.statusText,
      headers: response.headers,
      header: (name) => response.headers.get(name),
      hidesRedirect: response.type === "opaqueredirect",
      read,
      readAll: (onProgress) => readPieces({ read }, onProgress),
      cancel: () => void reader?.cancel().catch(() => {}),
    };
  };
}
