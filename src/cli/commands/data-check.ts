import { checkRows } from "../../cookbook/data/check-rows.js";
import { conversationShape } from "../../cookbook/data/read-row.js";
import { checkedRows } from "../../cookbook/data/row-sources.js";
import { getRenderer, knownRenderers, type TrainOn } from "../../renderers/index.js";
import { type Tokenizer, tokenizerForModel } from "../../tokenizers/index.js";
import { type CommandContext, type CommandModule, UsageError } from "../context.js";
import { printReport } from "../data-check/report.js";
import { showRows } from "../data-check/shown-rows.js";
import { hasServer } from "../local-service.js";
import { trainOnOption, wholeNumber } from "../option-values.js";
import { progressBar } from "../output/index.js";
import { whileWaiting } from "../output/waiting.js";

interface DataCheckOptions {
  readonly model?: string;
  readonly renderer?: string;
  readonly maxLength?: number;
  readonly trainOn: TrainOn;
  readonly rows: number;
}

const MAX_LENGTH = 10_000_000;
const MAX_SHOWN_ROWS = 1000;

export const define: CommandModule["define"] = (command, context) => {
  command
    .argument("<files...>", "files with a conversation a row: .jsonl, .jsonl.gz or .parquet")
    .option("--model <name>", "the model to be trained: tokens are counted, and what is learnt is shown")
    .option("--renderer <name>", "how conversations are written (default: what fits the model)")
    .option(
      "--max-length <tokens>",
      "say what would be cut from longer rows (default: nothing is)",
      wholeNumber(2, MAX_LENGTH),
    )
    .addOption(trainOnOption())
    .option("--rows <number>", "how many rows are shown", wholeNumber(0, MAX_SHOWN_ROWS), 2)
    .action((files: readonly string[], options: DataCheckOptions) => checkData(context, files, options));
};

async function checkData(
  context: CommandContext,
  files: readonly string[],
  options: DataCheckOptions,
): Promise<void> {
  const { model, trainOn, maxLength, rows: count } = options;
  const signal = context.interruption();
  const name = rendererName(options);
  const renderer = model && name ? getRenderer(name, await openTokenizer(context, model)) : undefined;
  await using rows = await checkedRows(files, conversationShape).open();
  const bar = progressBar(context, "checking", "items");
  const checking = checkRows(rows, { renderer, trainOn, maxLength, signal, onProgress: bar.update });
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
  if (model !== undefined) return renderer ?? knownRenderers(model)?.[0] ?? "template";
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
