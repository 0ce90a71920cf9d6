import { linkTo, replaceRoute } from "../route.js";

/** How the list of runs is looked at; it is part of the address, so that a reload or a link shows the same. */
export interface RunsLook {
  readonly search: string;
  /** "" for none; undefined: by sweep where there is one. */
  readonly group: string | undefined;
  readonly show: "table" | "scatter" | "parallel";
  readonly sort: string;
  readonly isDown: boolean;
  /** Settings that have a column; undefined: those that sweeps vary. */
  readonly columns: readonly string[] | undefined;
  /** Axes of the scatter plot. */
  readonly x: string | undefined;
  readonly y: string | undefined;
  /** Runs that are chosen to be compared. */
  readonly chosen: readonly string[];
}

/** The look that an address names. */
export function readLook(query: URLSearchParams): RunsLook {
  const show = query.get("show");
  const sort = query.get("sort") ?? "-updated";
  const columns = query.get("columns");
  return {
    search: query.get("search") ?? "",
    group: query.get("group") ?? undefined,
    show: show === "scatter" || show === "parallel" ? show : "table",
    sort: sort.replace(/^-/, ""),
    isDown: sort.startsWith("-"),
    columns: columns === null ? undefined : columns.split(",").filter(Boolean),
    x: query.get("x") ?? undefined,
    y: query.get("y") ?? undefined,
    chosen: query.getAll("run"),
  };
}

/** Puts a look into the address. */
export function showLook({ search, group, show, sort, isDown, columns, x, y, chosen }: RunsLook): void {
  const order = `${isDown ? "-" : ""}${sort}`;
  replaceRoute(
    linkTo("runs", {
      run: chosen,
      search: search || undefined,
      group,
      show: show === "table" ? undefined : show,
      sort: order === "-updated" ? undefined : order,
      columns: columns?.join(","),
      ...{ x, y },
    }),
  );
}
