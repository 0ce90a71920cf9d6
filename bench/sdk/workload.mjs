// What every client of bench/sdk does; client.py has the same figures as arguments.
export const tokenAt = (index) => (index * 104_729) % 151_936;
export const sampledTokens = 32;
/** Batches before the measured ones, on both sides. */
export const WARM_UP_ROUNDS = 3;
/** The shape of the large result. */
export const resultLogprobs = { datums: 1024, length: 2048 };

export const workloads = {
  "submit 64 x 2,048": { kind: "pass", datums: 64, length: 2048, rounds: 20 },
  "submit 1,024 x 512": { kind: "pass", datums: 1024, length: 512, rounds: 6 },
  "decode 1,024 x 2,048": { kind: "pass", datums: resultLogprobs.datums, length: 4, rounds: 12 },
  "2,000 samples at once": { kind: "sample", samples: 2000, promptLength: 256, rounds: 2 },
  "first answer": { kind: "first", promptLength: 256 },
};
