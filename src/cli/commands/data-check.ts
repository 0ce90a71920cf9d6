import type { RestClient } from "tinkerts";
import { z } from "zod";
import { checkRows } from "../../cookbook/data/check-rows.js";
import { columnsOf } from "../../cookbook/data/conversations.js";
import { conversationShape } from "../../cookbook/data/row-formats.js";
import { checkedRows } from "../../cookbook/data/row-sources.js";
import { splitPositions } from "../../cookbook/data/split.js";
import { SUPERVISED_OPTIONS } from "../../cookbook/supervised/options.js";
import { getRenderer, rendererNames, type TrainOn } from "../../renderers/index.js";
import { TRAIN_ON } from "../../renderers/renderer.js";
import { type Tokenizer, tokenizerForModel } from "../../tokenizers/index.js";
import { type CommandContext, type CommandModule, UsageError } from "../context.js";
import { printReport } from "../data-check/report.js";
import { showRows } from "../data-check/shown-rows.js";
import { addDataFlags, type DataFlags, FILES_HELP, rowNames } from "../data-flags.js";
import { hasServer } from "../local-service.js";
import { flagOf } from "../option-flags.js";
import { gathered, wholeNumber } from "../option-values.js";
import { progressBar } from "../output/index.js";
import { whileWaiting } from "../output/waiting.js";

interface DataCheckOptions extends DataFlags {
  readonly model?: string;
  readonly renderer?: string;
  readonly maxLength?: number;
  readonly trainOn?: TrainOn;
  readonly rows: number;
  readonly testFile?: readonly string[];
  readonly testSize?: number;
  readonly seed?: number;
}

const MAX_LENGTH = 10_000_000;
const MAX_SHOWN_ROWS = 1000;

export const define: CommandModule["define"] = (command, context) => {
  const { trainOn, testSize, seed } = SUPERVISED_OPTIONS.fields;
  addDataFlags(command)
    .argument("<files...>", `conversations: ${FILES_HELP}`)
    .option("--model <name>", "model to train: counts tokens and shows which are trained on")
    .option("--renderer <name>", "chat format (default: recommended for the model)")
    .option(
      "--max-length <tokens>",
      "say what would be cut from longer rows (default: what the model can read)",
      wholeNumber(2, MAX_LENGTH),
    )
    .addOption(flagOf("trainOn", trainOn))
    .option("--rows <number>", "number of rows to show", wholeNumber(0, MAX_SHOWN_ROWS), 3)
    .option("--test-file <file>", "rows for evaluation, to find overlaps with (repeatable)", gathered(String))
    .addOption(flagOf("testSize", testSize))
    .addOption(flagOf("seed", seed))
    .action((files: readonly string[], options: DataCheckOptions) => checkData(context, files, options));
};

async function checkData(
  context: CommandContext,
  files: readonly string[],
  options: DataCheckOptions,
): Promise<void> {
  const { model, trainOn = TRAIN_ON[0], rows: count } = options;
  const signal = context.interruption();
  const name = rendererName(options);
  const renderer = model && name ? getRenderer(name, await openTokenizer(context, model)) : undefined;
  const maxLength = options.maxLength ?? (model ? await contextLength(context, model, signal) : undefined);
  const names = rowNames(options);
  const open = (from: readonly string[]) => {
    const opening = checkedRows(from, conversationShape(names), columnsOf(names)).open();
    return whileWaiting(context.stderr, "opening the files", opening);
  };
  await using rows = await open(files);
  await using testRows = options.testFile && (await open(options.testFile));
  const { testSize, seed } = options;
  const heldOut = testRows ? undefined : new Set(splitPositions(rows.length, { testSize, seed }).test);
  const bar = progressBar(context, "checking", "items");
  const onProgress = bar.update;
  const checking = checkRows(rows, { renderer, trainOn, maxLength, heldOut, testRows, signal, onProgress });
  const report = await checking.finally(bar.end);
  if (renderer !== undefined && context.globals().format === "table") {
    await showRows(context, rows, { renderer, trainOn, maxLength, count });
  }
  printReport(context, { model, renderer: name, trainOn, maxLength, ...report });
  if (report.rows === 0) throw new Error("there are no rows");
  if (report.wrongRows > 0) {
    throw new Error(`${report.wrongRows} of ${report.rows} rows cannot be trained on`);
  }
}

function rendererName({ model, renderer, maxLength }: DataCheckOptions): string | undefined {
  if (model !== undefined) return renderer ?? rendererNames(model)[0] ?? "template";
  const option = renderer !== undefined ? "--renderer" : maxLength !== undefined ? "--max-length" : undefined;
  if (option !== undefined) throw new UsageError(`${option} needs --model, whose tokens it is about`);
  return undefined;
}

/** A server that is named may have the model's files; the check itself needs none. */
async function openTokenizer(context: CommandContext, model: string): Promise<Tokenizer> {
  const loading = hasServer(context)
    ? (await context.restClient()).getTokenizer(model)
    : tokenizerForModel({ modelName: model });
  return await whileWaiting(context.stderr, `loading the tokenizer of ${model}`, loading);
}

/** Tokens that the model can read, as its server or its `config.json` says. */
async function contextLength(
  context: CommandContext,
  model: string,
  signal: AbortSignal,
): Promise<number | undefined> {
  const length = hasServer(context)
    ? await offeredLength(await context.restClient(), model)
    : await configuredLength(model, signal);
  if (length === undefined) {
    context.notify(
      `How many tokens ${model} can read is not known here: --max-length says what would be cut.`,
    );
  }
  return length;
}

async function offeredLength(rest: RestClient, model: string): Promise<number | undefined> {
  // The check itself needs no server.
  const capabilities = await rest.getServerCapabilities().catch(() => undefined);
  const offered = capabilities?.supportedModels.find(({ modelName }) => modelName === model);
  return offered?.maxContextLength ?? undefined;
}

async function configuredLength(model: string, signal: AbortSignal): Promise<number | undefined> {
  const { sourceConfig } = await import("../../local/model-source.js");
  const config = await sourceConfig(model, { signal }).catch(() => undefined);
  // Multimodal models keep the settings of their text model in a nested object.
  const found = modelLengthSchema.safeParse(config).data;
  return found?.max_position_embeddings ?? found?.text_config?.max_position_embeddings;
}

const lengthField = z.number().int().positive().optional();
const modelLengthSchema = z.object({
  max_position_embeddings: lengthField,
  text_config: z.object({ max_position_embeddings: lengthField }).optional(),
});
