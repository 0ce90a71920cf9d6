// What every client of bench/sdk does; client.py has the same figures as arguments.
import { sized } from "../shared/sized.mjs";

export const tokenAt = (index) => (index * 104_729) % 151_936;
export const sampledTokens = 32;
/** Batches before the measured ones, on both sides. */
export const WARM_UP_ROUNDS = sized(3, 1);
/** The shape of the large result. */
export const resultLogprobs = { datums: sized(1024, 64), length: 2048 };

export const workloads = {
  "submit 64 x 2,048": { kind: "pass", datums: 64, length: 2048, rounds: sized(20, 1) },
  "submit 1,024 x 512": { kind: "pass", datums: 1024, length: 512, rounds: sized(6, 1) },
  "decode 1,024 x 2,048": { kind: "pass", datums: resultLogprobs.datums, length: 4, rounds: sized(12, 1) },
  "2,000 samples at once": { kind: "sample", samples: sized(2000, 20), promptLength: 256, rounds: 2 },
  "first answer": { kind: "first", promptLength: 256 },
};
