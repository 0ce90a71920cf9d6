import { useEffect, useState } from "preact/hooks";

/** Where in the page one is: `#/curves?run=A&run=B`. */
export interface PageRoute {
  readonly view: string;
  readonly query: URLSearchParams;
}

function read(): PageRoute {
  const [view = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { view: view || "runs", query: new URLSearchParams(query) };
}

/** The place, which changes with the address. */
export function useRoute(): PageRoute {
  const [route, setRoute] = useState(read);
  useEffect(() => {
    const update = () => setRoute(read());
    addEventListener("hashchange", update);
    return () => removeEventListener("hashchange", update);
  }, []);
  return route;
}

/** The address of a place. */
export function linkTo(
  view: string,
  query: Readonly<Record<string, string | readonly string[] | undefined>> = {},
): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query))
    for (const item of value === undefined ? [] : [value].flat()) search.append(name, item as string);
  const text = search.toString();
  return `#/${view}${text === "" ? "" : `?${text}`}`;
}

/** Changes the address without a step in the history. */
export function replaceRoute(address: string): void {
  history.replaceState(null, "", address);
  dispatchEvent(new HashChangeEvent("hashchange"));
}
