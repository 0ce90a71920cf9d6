import type { Hono } from "hono";
import { HTTPException } from "hono/http-exception";
import { streamSSE } from "hono/streaming";
import type { DashboardEvent } from "../api.js";
import type { MetricsCursor } from "../runs/metrics-file.js";
import type { DashboardParts } from "./app.js";

const LOOK_MS = 1000;
/** Proxies and sleeping machines: a stream that is alive says something now and then. */
const PING_MS = 15_000;
const MAX_FOLLOWED_RUNS = 8;

/**
 * One stream of events for a page: the list of runs when it changes, and the new lines of the runs that it follows,
 * each from where the page stands (`?run=ID,GENERATION,ROWS`). The server remembers nothing of a page.
 */
export function addEventRoute(app: Hono, parts: DashboardParts): void {
  app.get("/api/events", (context) => {
    const cursors = new Map((context.req.queries("run") ?? []).map(readCursor));
    if (cursors.size > MAX_FOLLOWED_RUNS) {
      throw new HTTPException(400, { message: `A page follows at most ${MAX_FOLLOWED_RUNS} runs.` });
    }
    return streamSSE(context, async (stream) => {
      const send = (event: DashboardEvent) => stream.writeSSE({ data: JSON.stringify(event) });
      const close = () => stream.abort();
      parts.closed.addEventListener("abort", close, { once: true });
      try {
        let shown = "";
        let spokeAt = performance.now();
        while (!stream.aborted && !parts.closed.aborted) {
          const events = await growthOf(cursors, parts);
          const list = await parts.summaries.list();
          const text = JSON.stringify(list);
          if (text !== shown) events.unshift({ type: "runs", list });
          shown = text;
          for (const event of events) await send(event);
          if (events.length > 0) spokeAt = performance.now();
          else if (performance.now() - spokeAt > PING_MS) {
            await stream.write(": still here\n\n");
            spokeAt = performance.now();
          }
          await stream.sleep(LOOK_MS);
        }
      } finally {
        parts.closed.removeEventListener("abort", close);
      }
    });
  });
}

async function growthOf(
  cursors: Map<string, MetricsCursor>,
  { folders, metrics }: DashboardParts,
): Promise<DashboardEvent[]> {
  const events: DashboardEvent[] = [];
  for (const [run, cursor] of cursors) {
    const folder = await folders.find(run);
    const growth = folder && (await (await metrics.of(folder)).growth(cursor));
    if (growth === undefined) continue;
    if (growth === "stale") {
      // Told once; the page comes back with a place that is true.
      cursors.delete(run);
      events.push({ type: "stale", run });
    } else {
      cursors.set(run, { generation: growth.generation, rows: growth.rows });
      events.push({ type: "metrics", growth });
    }
  }
  return events;
}

function readCursor(text: string): [string, MetricsCursor] {
  const [run = "", generation = "", rows = ""] = text.split(",");
  if (!/^\d+$/.test(rows)) throw new HTTPException(400, { message: "run must look like ID,GENERATION,ROWS" });
  return [run, { generation, rows: Number(rows) }];
}
