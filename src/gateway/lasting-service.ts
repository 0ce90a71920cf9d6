import { GoneError } from "../errors.js";
import type { GatewayOptions, GatewaySampler } from "./gateway.js";

type Service = NonNullable<GatewayOptions["service"]>;

/** Makes samplers for as long as a gateway runs; if the server ends the session, it opens another. */
export class LastingService {
  #service: Service;
  /** The client that this one has made; the first belongs to the user. */
  #own: Service | undefined;

  constructor(service: Service) {
    this.#service = service;
  }

  /** The client whose session is in use. */
  get current(): Service {
    return this.#service;
  }

  /** A sampler, and the client that made it. */
  async createSampler(
    source: { readonly modelPath: string } | { readonly baseModel: string },
  ): Promise<{ readonly sampler: GatewaySampler; readonly service: Service }> {
    const service = this.#service;
    try {
      return { sampler: await service.createSamplingClient(source), service };
    } catch (error) {
      if (!this.renew(service, error)) throw error;
      const renewed = this.#service;
      return { sampler: await renewed.createSamplingClient(source), service: renewed };
    }
  }

  /** Whether an error says that the session of a client is over. Another session is then in use. */
  renew(service: Service, error: unknown): boolean {
    if (!(error instanceof GoneError)) return false;
    if (service !== this.#service) return true;
    const renewed = service.clone?.();
    if (renewed === undefined) return false;
    const lost = this.#own;
    this.#service = this.#own = renewed;
    void lost?.close?.().catch(() => {});
    return true;
  }

  async close(): Promise<void> {
    await this.#own?.close?.();
  }
}
