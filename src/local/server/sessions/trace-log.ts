import { toWireJson } from "../../../wire/json-keys.js";

/** One request, from when it came to its end. */
export interface TraceEvent {
  readonly name: string;
  /** Events of one track are drawn together: a model or a sampler. */
  readonly track: string;
  /** Milliseconds of the monotonic clock, as are the following. */
  readonly submittedAt: number;
  readonly startedAt: number;
  readonly endedAt: number;
  readonly failed: boolean;
  readonly details: Readonly<Record<string, string | number>>;
}

/** The requests of one session, newest last, as many as the limit allows. */
export class TraceLog {
  readonly #limit: number;
  readonly #epochMs: number;
  #events: TraceEvent[] = [];
  #dropped = 0;

  /** `epochMs`: the wall-clock time at which the monotonic clock read 0. */
  constructor(limit: number, epochMs: number) {
    this.#limit = limit;
    this.#epochMs = epochMs;
  }

  add(event: TraceEvent): void {
    this.#events.push(event);
    // In chunks, so that a full log costs nothing for each event.
    if (this.#events.length > this.#limit * 1.25) {
      this.#dropped += this.#events.length - this.#limit;
      this.#events = this.#events.slice(-this.#limit);
    }
  }

  get isEmpty(): boolean {
    return this.#events.length === 0;
  }

  /** The JSON trace format that Chrome and ui.perfetto.dev read: times in microseconds. */
  toJson(sessionId: string): string {
    const tracks = new Map<string, number>();
    const events: object[] = [];
    for (const event of this.#events) {
      let track = tracks.get(event.track);
      if (track === undefined) {
        track = tracks.size + 1;
        tracks.set(event.track, track);
        // Perfetto draws async events under their process, whatever their thread.
        events.push({
          ph: "M",
          name: "process_name",
          pid: track,
          tid: track,
          ts: 0,
          args: { name: event.track },
        });
      }
      const id = `${track}-${events.length}`;
      const common = { cat: event.failed ? "failed" : "request", pid: track, tid: track };
      // Requests of one track overlap (queued ones, samples in one batch), which only async events may do.
      const args = toWireJson({ ...event.details, queuedMs: event.startedAt - event.submittedAt });
      events.push({
        ...common,
        ph: "b",
        id,
        name: event.name,
        ts: this.#microseconds(event.startedAt),
        args,
      });
      events.push({ ...common, ph: "e", id, name: event.name, ts: this.#microseconds(event.endedAt) });
    }
    return JSON.stringify({
      traceEvents: events,
      displayTimeUnit: "ms",
      otherData: toWireJson({ sessionId, droppedEvents: this.#dropped }),
    });
  }

  #microseconds(monotonicMs: number): number {
    return Math.round((this.#epochMs + monotonicMs) * 1000);
  }
}
