/** Longest answer that is assembled; a longer one is passed on and not remembered. */
export const MAX_ANSWER_BYTES = 16 * 2 ** 20;

/** Reads the data of server-sent events from the bytes of a stream. */
export class EventReader {
  readonly #decoder = new TextDecoder();
  #rest = "";
  #data: string[] = [];
  #bytes = 0;

  /** Whether the stream was too long to be assembled. */
  get isTooLong(): boolean {
    return this.#bytes > MAX_ANSWER_BYTES;
  }

  /** The events that these bytes complete. */
  push(bytes: Uint8Array): string[] {
    this.#bytes += bytes.length;
    if (this.isTooLong) {
      this.#rest = "";
      return [];
    }
    const lines = (this.#rest + this.#decoder.decode(bytes, { stream: true })).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop()!;
    const events: string[] = [];
    for (const line of lines) {
      if (line.startsWith("data:")) this.#data.push(line.slice(line[5] === " " ? 6 : 5));
      if (line !== "" || this.#data.length === 0) continue;
      events.push(this.#data.join("\n"));
      this.#data = [];
    }
    return events;
  }
}
