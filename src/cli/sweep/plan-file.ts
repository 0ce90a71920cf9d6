import { readFile, stat } from "node:fs/promises";
import { parse } from "yaml";
import { messageOf } from "../../errors.js";
import * as f from "../../wire/fields/index.js";
import { UsageError } from "../context.js";
import { defaultExportOf } from "../own-module.js";
import { SWEEP_KINDS } from "./kinds.js";

const MAX_BYTES = 1 << 20;

const settings = f.customField((given, path): Readonly<Record<string, unknown>> => {
  f.checkObject(given, path);
  return given;
});

const names = f.eitherOf(Array.isArray, f.list(f.text, { least: 1 }), f.text);

/** A sweep's kind of training and its settings. */
const PLAN = f.message({
  train: f.oneOf(...SWEEP_KINDS),
  /** For distillation: on the teacher's likeliest tokens in the files' answers. */
  offPolicy: f.optional(f.boolean),
  files: f.optional(names),
  testFiles: f.optional(names),
  dataFormat: f.optional(f.text),
  columns: f.optional(settings),
  model: f.optional(f.text),
  folder: f.optional(f.text),
  name: f.optional(f.text),
  options: f.withDefault(settings, {}),
  grid: f.optional(settings),
  list: f.optional(f.list(settings)),
  metric: f.optional(f.text),
  direction: f.optional(f.oneOf("min", "max")),
  atOnce: f.optional(f.positiveInteger),
});

/** A sweep as a file describes it. */
export type SweepPlan = f.FilledMessage<typeof PLAN.shape>;

/** Reads a plan: YAML or JSON, or the default export of a program. */
export async function readPlan(file: string): Promise<SweepPlan> {
  const given = /\.(?:ya?ml|json)$/i.test(file) ? await readText(file) : await defaultExportOf(file);
  try {
    return PLAN.check(given, "");
  } catch (error) {
    throw new UsageError(`${file}: ${messageOf(error)}`);
  }
}

async function readText(file: string): Promise<unknown> {
  const found = await stat(file).catch(() => undefined);
  if (found === undefined) throw new UsageError(`There is no file ${file}`);
  if (found.size > MAX_BYTES)
    throw new UsageError(`${file} is too large for a plan: it has ${found.size} bytes`);
  try {
    return parse(await readFile(file, "utf8"));
  } catch (error) {
    const [line = ""] = messageOf(error).split("\n");
    throw new UsageError(`${file} is not YAML: ${line.replace(/:$/, "")}`);
  }
}
