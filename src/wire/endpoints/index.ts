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
