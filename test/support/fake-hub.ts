import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** What a fake hub has besides its files. */
interface FakeHubOptions {
  readonly kind?: "models" | "datasets";
  /** The one revision that it knows. */
  readonly revision?: string;
}

/** As much of the Hugging Face hub as the download of one model or data set asks of it. */
export class FakeHub {
  static readonly COMMIT = "0123456789012345678901234567890123456789";
  /** Paths, with the range where there was one. */
  readonly asked: string[] = [];
  readonly #name: string;
  readonly #options: Required<FakeHubOptions>;
  readonly #files: Readonly<Record<string, string | Uint8Array>>;
  readonly #server: Server;
  #held: { file: string; afterBytes: number } | undefined;

  static async start(
    name: string,
    files: Readonly<Record<string, string | Uint8Array>>,
    options: FakeHubOptions = {},
  ): Promise<FakeHub> {
    const hub = new FakeHub(name, files, { kind: "models", revision: "main", ...options });
    await new Promise<void>((resolve) => hub.#server.listen(0, "127.0.0.1", resolve));
    return hub;
  }

  private constructor(
    name: string,
    files: Readonly<Record<string, string | Uint8Array>>,
    options: Required<FakeHubOptions>,
  ) {
    this.#name = name;
    this.#options = options;
    this.#files = files;
    this.#server = createServer((request, response) => this.#answer(request, response));
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** From the next request on, so many bytes of this file come and then no more; undefined: all of them. */
  holdAfter(file: string, afterBytes: number | undefined): void {
    this.#held = afterBytes === undefined ? undefined : { file, afterBytes };
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #answer({ url = "/", headers: { range } }: IncomingMessage, response: ServerResponse): void {
    const path = new URL(url, "http://hub").pathname;
    this.asked.push(range === undefined ? path : `${path} ${range}`);
    const { kind, revision } = this.#options;
    const files = `${kind === "models" ? "" : "/datasets"}/${this.#name}/resolve/${FakeHub.COMMIT}/`;
    if (path === `/api/${kind}/${this.#name}/revision/${encodeURIComponent(revision)}`) {
      const siblings = Object.entries(this.#files).map(([rfilename, { length: size }]) => ({
        rfilename,
        size,
      }));
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ sha: FakeHub.COMMIT, siblings }));
    } else if (path.startsWith(files))
      this.#send(decodeURIComponent(path.slice(files.length)), range, response);
    else response.writeHead(404).end("{}");
  }

  #send(file: string, range: string | undefined, response: ServerResponse): void {
    const content = Buffer.from(this.#files[file] as string);
    const start = Number(/^bytes=(\d+)-$/.exec(range ?? "")?.[1] ?? 0);
    response.writeHead(range === undefined ? 200 : 206, {
      etag: `"${file}"`,
      "content-length": content.length - start,
      ...(range === undefined
        ? {}
        : { "content-range": `bytes ${start}-${content.length - 1}/${content.length}` }),
    });
    if (this.#held?.file === file) response.write(content.subarray(start, this.#held.afterBytes));
    else response.end(content.subarray(start));
  }
}
