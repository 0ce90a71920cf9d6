import { basename, join } from "node:path";
import { InvalidArgumentError, Option } from "commander";
import { conversations } from "../../cookbook/data/index.js";
import { consoleLogger, type FinishedRun, tensorBoardLogger } from "../../cookbook/runs/index.js";
import { SCHEDULES } from "../../cookbook/runs/schedule.js";
import {
  planSupervised,
  type TrainSupervisedOptions,
  trainSupervised,
} from "../../cookbook/supervised/index.js";
import { defaultModel } from "../../local/default-model.js";
import { type CommandContext, type CommandModule, UsageError } from "../context.js";
import { hasServer, openService } from "../local-service.js";
import { gathered, trainOnOption, wholeNumber } from "../option-values.js";
import { printJson } from "../output/index.js";

interface TrainOptions {
  readonly model?: string;
  readonly epochs: number;
  readonly maxSteps?: number;
  readonly batchSize?: number;
  readonly learningRate?: number;
  readonly schedule: NonNullable<TrainSupervisedOptions["schedule"]>;
  readonly warmup?: number;
  readonly rank?: number;
  readonly startFrom?: string;
  readonly trainOn: NonNullable<TrainSupervisedOptions["trainOn"]>;
  readonly reduction: NonNullable<TrainSupervisedOptions["reduction"]>;
  readonly maxLength?: number;
  readonly renderer?: string;
  readonly seed: number;
  readonly testSize?: number;
  readonly testFile?: readonly string[];
  readonly evaluateEvery?: number;
  readonly saveEvery?: number;
  readonly best?: true;
  readonly patience?: number;
  readonly price?: number;
  readonly folder?: string;
  readonly tensorboard?: true;
  readonly dryRun?: true;
}

const MAX_COUNT = 1_000_000_000;

export const define: CommandModule["define"] = (command, context) => {
  const count = (least = 1) => wholeNumber(least, MAX_COUNT);
  command
    .argument("<files...>", "conversations, one a line: .jsonl, .jsonl.gz or .parquet")
    .option(
      "--model <name>",
      `a model of the server; without a server also a Hugging Face id (default there: ${defaultModel.name})`,
    )
    .option("--epochs <number>", "how often each row is learnt", count(), 1)
    .option(
      "--batch-size <number>",
      "rows in a step (default: from 4 to 128, by the number of rows)",
      count(),
    )
    .option(
      "--learning-rate <number>",
      "the highest one (default: the recommended one of the model)",
      positive,
    )
    .addOption(new Option("--schedule <name>", "how it goes down").choices(SCHEDULES).default("linear"))
    .option("--warmup <number>", "steps, or a fraction of them all, in which it goes up first", positive)
    .option("--rank <number>", "the rank of the adapter (default: 32)", count())
    .option("--max-steps <number>", "no more steps than these", count())
    .option("--max-length <number>", "cut longer examples (default: what the model can read)", count(2))
    .addOption(trainOnOption())
    .addOption(
      new Option("--reduction <way>", "whether each example counts the same, or each token")
        .choices(["mean", "sum"])
        .default("mean"),
    )
    .option("--renderer <name>", "how conversations are written (default: what fits the model)")
    .option("--start-from <tinker-path>", "begin with saved weights, as tinker://RUN/weights/NAME")
    .option("--seed <number>", "decides the order of the rows and the first weights", count(0), 0)
    .option(
      "--test-size <number>",
      "rows held out, or a fraction (default: a tenth, at most 100)",
      notNegative,
    )
    .option(
      "--test-file <file>",
      "measure with these conversations instead; may be repeated",
      gathered(String),
    )
    .option("--evaluate-every <steps>", "0 for never (default: a tenth of the run)", count(0))
    .option("--save-every <steps>", "steps between checkpoints (default: 20)", count())
    .option("--best", "keep the weights that did best on the held-out rows, too")
    .option(
      "--patience <number>",
      "stop after so many evaluations without a better one; implies --best",
      count(),
    )
    .option("--price <amount>", "of a million tokens, to say what the run will cost", positive)
    .option("--folder <folder>", "where the run is kept (default: runs/FILE-MODEL)")
    .option("--tensorboard", "write event files into the folder, for tensorboard --logdir")
    .option("--dry-run", "check the rows, and show counts and settings")
    .action((files: readonly string[], options: TrainOptions) => train(files, options, context));
};

async function train(
  files: readonly string[],
  options: TrainOptions,
  context: CommandContext,
): Promise<void> {
  const isLocal = !hasServer(context);
  if (options.model === undefined && !isLocal) {
    throw new UsageError("which model? Give --model NAME (see tinkerts models)");
  }
  await using server = await openService(context, options.model ?? defaultModel.name);
  const model = server.baseModel ?? defaultModel.name;
  const folder = options.folder ?? defaultFolder(files[0]!, model);
  const settings = { ...trainingOptions(files, options), service: server.service, model, folder };
  const signal = context.interruption();
  if (options.dryRun) {
    const plan = await planSupervised({ ...settings, signal });
    if (context.globals().format === "json") printJson(context, { ...plan.config, folder });
    else context.stdout.write(`${plan.description}\n`);
    return;
  }
  const run = await trainSupervised({
    ...settings,
    loggers: [
      consoleLogger({ screen: context.stderr }),
      ...(options.tensorboard ? [tensorBoardLogger(join(folder, "tensorboard"))] : []),
    ],
    pauseSignal: signal,
  });
  if (!run.isFinished)
    throw new Error(`paused after ${run.steps} steps; the same command goes on from there`);
  const { samplerPath, statePath, steps, metrics, best } = run;
  if (context.globals().format === "json")
    printJson(context, { samplerPath, statePath, steps, metrics, best, folder });
  else {
    context.notify(whatNext(run, folder, isLocal));
    context.stdout.write(`${samplerPath}\n`);
  }
}

function trainingOptions(files: readonly string[], options: TrainOptions) {
  const { epochs, maxSteps, batchSize, learningRate, schedule, warmup, rank, startFrom, trainOn } = options;
  const { reduction, maxLength, renderer, seed, testSize, testFile, evaluateEvery, patience } = options;
  return {
    data: conversations(files),
    testData: testFile && conversations(testFile),
    ...{ epochs, maxSteps, batchSize, learningRate, schedule, warmup, rank, startFrom, trainOn },
    ...{ reduction, maxLength, renderer, seed, testSize, evaluateEvery },
    save: { everySteps: options.saveEvery },
    best: patience === undefined ? options.best : { patience },
    pricePerMillionTokens: options.price,
  };
}

function defaultFolder(file: string, model: string): string {
  const name = basename(file).replace(/\.(?:jsonl(?:\.gz)?|parquet)$/, "");
  return join(
    "runs",
    `${name}-${model
      .split("/")
      .at(-1)!
      .replaceAll(/[^\w.-]+/g, "-")}`,
  );
}

function whatNext({ samplerPath, best }: FinishedRun, folder: string, isLocal: boolean): string {
  const chat = `tinkerts chat --model-path ${best?.samplerPath ?? samplerPath}`;
  const lines = [
    `Metrics and checkpoints are in ${folder}.`,
    ...(best === undefined ? [] : [`The best weights, after ${best.batch} steps: ${best.samplerPath}`]),
    isLocal
      ? `To talk to it, run \`tinkerts serve\` in this folder, and in another terminal: ${chat} --base-url localhost:8642`
      : `To talk to it: ${chat}`,
  ];
  return lines.join("\n");
}

function positive(text: string): number {
  const value = Number(text);
  if (text.trim() === "" || !(value > 0 && value < Number.POSITIVE_INFINITY))
    throw new InvalidArgumentError("It must be a number above 0.");
  return value;
}

function notNegative(text: string): number {
  return text.trim() === "0" ? 0 : positive(text);
}
