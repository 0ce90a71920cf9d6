import { PageStore } from "./store.js";

const TOKEN = "tinkerts-token";

/** Whether the server takes this page's token. */
export const isRefused = new PageStore(false);

/**
 * Takes the token out of the address, where it could be seen, and keeps it for all tabs of this browser. It is of no use
 * after the dashboard has ended.
 */
export function takeToken(): boolean {
  const found = /^#token=([\w-]+)$/.exec(location.hash);
  if (found === null) return false;
  localStorage.setItem(TOKEN, found[1]!);
  history.replaceState(null, "", "#/runs");
  return true;
}

/** A token as it was typed, or pasted with its address. */
export function giveToken(text: string): void {
  localStorage.setItem(TOKEN, /token=([\w-]+)/.exec(text)?.[1] ?? text.replaceAll(/[^\w-]/g, ""));
  location.reload();
}

/** Whether this browser has a token, also one that the server refuses. */
export function hadToken(): boolean {
  return localStorage.getItem(TOKEN) !== null;
}

/** Asks the dashboard's server; what it refuses is an error with its words. */
export async function ask(path: string, init: RequestInit = {}): Promise<Response> {
  const response = await fetch(`./api/${path}`, {
    ...init,
    headers: {
      authorization: `Bearer ${localStorage.getItem(TOKEN) ?? ""}`,
      ...(init.body === undefined ? {} : { "content-type": "application/json" }),
    },
  });
  if (response.ok) return response;
  if (response.status === 401) isRefused.set(true);
  const { error } = (await response.json().catch(() => ({}))) as { error?: string };
  throw new Error(error ?? `The dashboard's server answered ${response.status}.`);
}

/** Sends a request and reads its answer as JSON. */
export async function askJson<T>(path: string, init?: RequestInit): Promise<T> {
  return (await ask(path, init)).json() as Promise<T>;
}

/** The events of a stream, one by one. */
export async function* eventsOf<T>(response: Response): AsyncGenerator<T, void, undefined> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop()!;
      for (const block of blocks) if (block.startsWith("data: ")) yield JSON.parse(block.slice(6)) as T;
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
