import type { Endpoint } from "./endpoint.js";
import { futureEndpoints } from "./futures.js";
import { recordEndpoints } from "./records.js";
import { samplingEndpoints } from "./sampling.js";
import { serviceEndpoints } from "./service.js";
import { trainingEndpoints } from "./training.js";

/** Every endpoint of the protocol: clients send through this table, servers read through it. */
export const endpoints = {
  ...serviceEndpoints,
  ...trainingEndpoints,
  ...samplingEndpoints,
  ...futureEndpoints,
  ...recordEndpoints,
} as const;

/** The name of each endpoint by its description. */
export const endpointNames: ReadonlyMap<Endpoint, string> = new Map(
  Object.entries(endpoints).map(([name, endpoint]) => [endpoint as unknown as Endpoint, name]),
);
