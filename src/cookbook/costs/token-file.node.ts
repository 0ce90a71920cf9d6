import { closeSync, mkdirSync, openSync, readFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { isRecord } from "../../wire/index.js";
import type { Spent } from "./budget.js";
import { NO_TOKENS, TOKEN_KINDS, type TokenCounts, type TokensByModel } from "./token-counts.js";

/** Tokens and dollars of a run, as its folder stores them. */
export interface UsedTokens {
  readonly tokens: TokensByModel;
  readonly largestStep?: Spent | undefined;
}

/** Names of the kinds in the file, as in the metrics. */
export const TOKEN_NAMES: Readonly<Record<keyof TokenCounts, string>> = {
  prefill: "prefill",
  cachedPrefill: "cached_prefill",
  sample: "sample",
  train: "train",
};

/** All bytes are written at once and over the old ones, so that a kill leaves one or the other. */
const LINE_BYTES = 4000;

/**
 * `tokens.json` of a run's folder: what the run used, over all its processes. It is written before a request is sent,
 * because a process that is killed has paid for what it had sent.
 */
export class TokenFile {
  readonly before: UsedTokens;
  readonly #file: number;

  constructor(folder: string) {
    mkdirSync(folder, { recursive: true });
    const path = join(folder, "tokens.json");
    this.before = readUsed(path);
    this.#file = openSync(path, "a+");
    closeSync(this.#file);
    this.#file = openSync(path, "r+");
  }

  write({ tokens, largestStep }: UsedTokens): void {
    const models = Object.fromEntries(
      [...tokens].map(([model, counts]) => [
        model,
        Object.fromEntries(TOKEN_KINDS.map((kind) => [TOKEN_NAMES[kind], counts[kind]])),
      ]),
    );
    const text = JSON.stringify({ models, largest_step: largestStep ?? null });
    writeSync(this.#file, `${text.padEnd(LINE_BYTES)}\n`, 0);
  }

  close(): void {
    closeSync(this.#file);
  }
}

function readUsed(path: string): UsedTokens {
  let json: unknown;
  try {
    json = JSON.parse(readFileSync(path, "utf8"));
  } catch {
    return { tokens: new Map() };
  }
  if (!isRecord(json) || !isRecord(json["models"])) return { tokens: new Map() };
  const tokens = new Map(
    Object.entries(json["models"]).map(([model, counts]) => [model, countsOf(counts)] as const),
  );
  const { largest_step: step } = json;
  const largestStep = isRecord(step)
    ? { tokens: numberOf(step["tokens"]), usd: step["usd"] === undefined ? undefined : numberOf(step["usd"]) }
    : undefined;
  return { tokens, largestStep };
}

function countsOf(json: unknown): TokenCounts {
  if (!isRecord(json)) return NO_TOKENS;
  const entries = TOKEN_KINDS.map((kind) => [kind, numberOf(json[TOKEN_NAMES[kind]])]);
  return Object.fromEntries(entries) as TokenCounts;
}

function numberOf(value: unknown): number {
  return typeof value === "number" && Number.isFinite(value) ? value : 0;
}
