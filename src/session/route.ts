/**
 * The path with what names one object replaced by `{id}`, so that a metric per route stays a metric per
 * route: `/api/v1/training_runs/run-1/checkpoints` becomes `/api/v1/training_runs/{id}/checkpoints`.
 */
export function routeOf(path: string): string {
  const [pathname = ""] = path.split("?", 1);
  let parent = "";
  return pathname
    .split("/")
    .map((segment) => {
      const isName = (NAMED_BY_ID.has(parent) && segment !== "search") || !/^(v\d+)?[a-z_]*$/.test(segment);
      parent = segment;
      return isName && segment !== "" ? "{id}" : segment;
    })
    .join("/");
}

/** Collections whose next segment is always a name, even one that looks like a word of the API. */
const NAMED_BY_ID: ReadonlySet<string> = new Set([
  "sessions",
  "training_runs",
  "samplers",
  "weights",
  "sampler_weights",
]);
