import { stat } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import type { Context, Hono } from "hono";
import { HTTPException } from "hono/http-exception";
import { messageOf, TinkerError } from "../../errors.js";
import type { TextTokenizer } from "../../tokenizers/index.js";
import { parseJsonObject } from "../../training/json-lines.node.js";
import { readEnd } from "../runs/file-cache.js";
import { readReport } from "../runs/report.js";
import {
  readPromptHistory,
  readSample,
  readSampleIndex,
  readSampleList,
  reportFile,
} from "../runs/samples.js";
import type { DashboardParts } from "./app.js";
import { numberIn, runOf } from "./run-routes.js";
import type { TinkerServer } from "./tinker-server.js";

const MAX_REPORT_BYTES = 64 << 20;
/** Milliseconds after which a tokenizer that failed to load is asked for again. */
const RETRY_MS = 60_000;
const SOON_MS = 1500;

/** Routes for samples: episodes with their rewards, and training examples. */
export function addSampleRoutes(app: Hono, parts: DashboardParts): void {
  const tokenizers = new Tokenizers(parts.server);
  app.get("/api/runs/:run/samples", async (context) => {
    const folder = await runOf(context, parts);
    if (context.req.query("step") === undefined) return context.json(await readSampleIndex(folder));
    const { split = "train", search = "" } = context.req.query();
    const tokenizer = await tokenizers.soon(await parts.summaries.modelOf(folder));
    const list = await readSampleList(folder, { step: stepOf(context), split, search }, tokenizer);
    return context.json(list ?? noSuch("step"));
  });
  app.get("/api/runs/:run/prompts/:key", async (context) => {
    const folder = await runOf(context, parts);
    const { split = "train" } = context.req.query();
    const tokenizer = await tokenizers.soon(await parts.summaries.modelOf(folder));
    return context.json(await readPromptHistory(folder, { key: context.req.param("key"), split }, tokenizer));
  });
  app.get("/api/runs/:run/samples/:place", async (context) => {
    const folder = await runOf(context, parts);
    const model = await parts.summaries.modelOf(folder);
    const { tokenizer, problem } = await tokenizers.of(model);
    const split = context.req.query("split") ?? "train";
    const place = Number(context.req.param("place"));
    const sample = await readSample(folder, { step: stepOf(context), split, place }, tokenizer);
    if (sample === undefined) return noSuch("sample");
    const hasTokens = sample.turns.some(({ tokens }) => tokens !== undefined);
    return context.json({
      ...sample,
      ...(hasTokens && problem !== undefined ? { tokenProblem: problem } : {}),
    });
  });
  app.get("/api/runs/:run/reports/:name", async (context) => {
    const folder = await runOf(context, parts);
    const path = await reportFile(folder, stepOf(context), context.req.param("name"));
    if (path === undefined) return noSuch("report");
    if ((await stat(path)).size > MAX_REPORT_BYTES)
      throw new HTTPException(413, { message: "The report is too long to be shown." });
    const report = parseJsonObject(await readEnd(path, MAX_REPORT_BYTES));
    if (report === undefined) throw new HTTPException(422, { message: "The report is not a JSON object." });
    return context.json(readReport(report));
  });
}

function stepOf(context: Context): number {
  return numberIn(context, "step") ?? noSuch("step");
}

function noSuch(what: string): never {
  throw new HTTPException(404, { message: `The ${what} does not exist, or no longer.` });
}

const MODEL_NAME = /^[A-Za-z0-9][\w.-]*\/[A-Za-z0-9][\w.-]*(?::[\w.:-]+)?$/;

/** The tokenizers of models, from the server that has them or from wherever they are found. */
class Tokenizers {
  readonly #server: TinkerServer | undefined;
  readonly #found = new Map<string, Promise<{ tokenizer?: TextTokenizer; problem?: string }>>();

  constructor(server: TinkerServer | undefined) {
    this.#server = server;
  }

  of(model: string | undefined): Promise<{ tokenizer?: TextTokenizer; problem?: string }> {
    if (model === undefined)
      return Promise.resolve({ problem: "The run does not say which model it is of." });
    const known = this.#found.get(model);
    if (known !== undefined) return known;
    const finding = this.#find(model).then(
      (tokenizer) => ({ tokenizer }),
      (error: unknown) => {
        setTimeout(() => this.#found.delete(model), RETRY_MS).unref();
        return { problem: `The tokenizer of ${model} could not be loaded: ${messageOf(error)}` };
      },
    );
    this.#found.set(model, finding);
    return finding;
  }

  /** Undefined where it takes long to load: most logs have texts of their own. */
  async soon(model: string | undefined): Promise<TextTokenizer | undefined> {
    const waited = new AbortController();
    const late = sleep(SOON_MS, undefined, { ref: false, signal: waited.signal }).catch(() => {});
    const found = await Promise.race([this.of(model), late]);
    waited.abort();
    return found?.tokenizer;
  }

  async #find(model: string): Promise<TextTokenizer> {
    if (this.#server !== undefined) {
      const asked = this.#server.rest().then((rest) => rest.getTokenizer(model));
      const found = await asked.catch(() => undefined);
      if (found !== undefined) return found;
    }
    // A run's settings may name anything, and a path would be opened wherever it leads.
    if (!MODEL_NAME.test(model)) throw new TinkerError("it is not the name of a model");
    const { loadTokenizer } = await import("../../tokenizers/index.js");
    return loadTokenizer(model);
  }
}
