import type { Hono } from "hono";
import { HTTPException } from "hono/http-exception";
import { streamSSE } from "hono/streaming";
import type { DashboardEvent, RunList } from "../api.js";
import type { MetricsCursor } from "../runs/metrics-file.js";
import type { DashboardParts } from "./app.js";

const LOOK_MS = 1000;
/** Interval of pings, so that proxies and sleeping machines do not take a quiet stream for a dead one. */
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
      const changes = new ListChanges();
      let spokeAt = performance.now();
      const look = async () => {
        const events = await growthOf(cursors, parts);
        const changed = changes.since(await parts.summaries.list());
        if (changed !== undefined) events.unshift(changed);
        for (const event of events) await send(event);
        if (events.length > 0) spokeAt = performance.now();
        else if (performance.now() - spokeAt > PING_MS) {
          await stream.write(": still here\n\n");
          spokeAt = performance.now();
        }
      };
      while (!stream.aborted && !parts.closed.aborted) {
        await look();
        await sleepUntil(parts.closed, LOOK_MS);
      }
      if (stream.aborted) return;
      // What the run wrote last, and how it ended.
      parts.summaries.forget();
      await look();
      await send({ type: "ended" });
    });
  });
}

/** Changes of the list that a page does not have yet. */
class ListChanges {
  #frame = "";
  #shown: ReadonlyMap<string, string> = new Map();

  since(list: RunList): DashboardEvent | undefined {
    const texts = new Map(list.runs.map((run) => [run.id, JSON.stringify(run)]));
    const runs = list.runs.filter(({ id }) => texts.get(id) !== this.#shown.get(id));
    const ids = [...texts.keys()];
    const frame = JSON.stringify([{ ...list, runs: [] }, ids]);
    const isSame = frame === this.#frame && runs.length === 0;
    this.#frame = frame;
    this.#shown = texts;
    return isSame ? undefined : { type: "runs", ids, list: { ...list, runs } };
  }
}

/** Ends early when the dashboard is closed. */
function sleepUntil(closed: AbortSignal, milliseconds: number): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      closed.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    closed.addEventListener("abort", done, { once: true });
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
      // Sent once; the page loads the run again and asks from a valid place.
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
