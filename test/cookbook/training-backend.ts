import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";
import { ServiceClient } from "../../src/index.js";
import { type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { silent } from "../local/raw-client.js";

/** The built-in backend for the tests of a file, with a folder for their runs. */
export class TrainingBackend {
  readonly home: string;
  backend!: LocalBackend;
  service!: ServiceClient;

  private constructor(home: string) {
    this.home = home;
  }

  static async forTests(name: string): Promise<TrainingBackend> {
    const place = new TrainingBackend(await mkdtemp(join(tmpdir(), `tinkerts-${name}-`)));
    await place.#start();
    const { baseURL, apiKey } = place.backend;
    // Over the socket alone, as the backend is exchanged for another at the same place.
    place.service = new ServiceClient({ baseURL, apiKey, logLevel: "off" });
    afterAll(async () => {
      await place.service.close();
      await place.backend.close();
      await rm(place.home, { recursive: true, force: true });
    });
    return place;
  }

  async #start(port?: number): Promise<void> {
    this.backend = await startLocalBackend({
      dataDir: join(this.home, "data"),
      logger: silent,
      ...(port !== undefined && { port }),
    });
  }

  /** As a server that ends and comes back: sessions and models in memory are lost. */
  async restart(): Promise<void> {
    const port = Number(new URL(this.backend.baseURL).port);
    await this.backend.close();
    await this.#start(port);
  }

  /** A client with a new session, since that of the one before ended with its backend. */
  async renewService(): Promise<void> {
    await this.service.close();
    this.service = this.service.clone();
  }
}
