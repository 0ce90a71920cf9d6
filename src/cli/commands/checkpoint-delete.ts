import { Option } from "commander";
import type { Checkpoint, RestClient } from "tinkerts";
import { NotFoundError } from "../../errors.js";
import { parseTinkerPath } from "../../wire/records/tinker-path.js";
import { type CommandContext, type CommandModule, UsageError } from "../context.js";
import { explainFailure } from "../failure.js";
import { gathered, pastTime } from "../option-values.js";
import { type Column, canAsk, confirm, humanBytes, printList, progressBar } from "../output/index.js";
import { stylesFor } from "../output/styles.js";
import { renderTable } from "../output/table.js";
import { CHECKPOINT_COLUMNS, checkpointPath, checkpointsOfRun } from "./checkpoint-common.js";

interface DeleteOptions {
  readonly runId?: string;
  readonly type?: keyof typeof TYPES;
  readonly before?: Date;
  readonly after?: Date;
  readonly yes?: true;
}

/** Only its path is certain: a checkpoint named on the command line may not exist. */
type Target = Pick<Checkpoint, "tinkerPath"> & Partial<Checkpoint>;

interface Outcome {
  readonly tinkerPath: string;
  readonly deleted: boolean;
  readonly error?: string;
}

/** Columns by the folder in the path, or by kind. */
const TYPES = {
  weights: "training",
  sampler_weights: "sampler",
  external_weights: "external",
  training: "training",
  sampler: "sampler",
  external: "external",
} as const;

const PARALLEL = 16;

export const define: CommandModule["define"] = (command, context) => {
  command
    .argument("[paths...]", "the checkpoints: tinker://<run>/<kind>/<name>", gathered(checkpointPath))
    .option("--run-id <id>", "all checkpoints of this run; the next options select among them")
    .addOption(new Option("--type <type>", "with --run-id: only of this type").choices(Object.keys(TYPES)))
    .option("--before <time>", "with --run-id: only older ones, as in 2026-01-31 (UTC) or 7d", pastTime)
    .option("--after <time>", "with --run-id: only newer ones, as in 2026-01-31 (UTC) or 7d", pastTime)
    .option("-y, --yes", "do not ask")
    .action((paths: readonly string[], options: DeleteOptions) => deleteCheckpoints(context, paths, options));
};

async function deleteCheckpoints(
  context: CommandContext,
  paths: readonly string[],
  options: DeleteOptions,
): Promise<void> {
  checkUsage(paths, options);
  const rest = await context.restClient();
  const targets =
    options.runId === undefined
      ? await lookUp(rest, [...new Set(paths)], options)
      : await choose(context, rest, options.runId, options);
  if (targets.length === 0) {
    context.notify(`run ${options.runId} has no such checkpoints`);
    if (context.globals().format !== "table") report(context, []);
    return;
  }
  if (!options.yes && !(await mayDelete(context, targets))) {
    context.notify("nothing was deleted");
    if (context.globals().format !== "table") report(context, []);
    return;
  }
  const outcomes = await deleteAll(context, rest, targets);
  report(context, outcomes);
  const failed = outcomes.filter(({ deleted }) => !deleted);
  if (failed.length > 0) {
    throw new Error(`${failed.length} of ${count(outcomes.length)} could not be deleted`);
  }
}

function checkUsage(paths: readonly string[], { runId, type, before, after }: DeleteOptions): void {
  if (paths.length === 0 && runId === undefined) {
    throw new UsageError("name the checkpoints to delete, or give --run-id for those of a run");
  }
  if (paths.length > 0 && runId !== undefined) {
    throw new UsageError("give either paths or --run-id, not both");
  }
  if (runId === undefined && (type ?? before ?? after) !== undefined) {
    throw new UsageError("--type, --before and --after choose among the checkpoints of a run: give --run-id");
  }
}

/** Lists the checkpoints before asking whether to delete them. */
async function lookUp(
  rest: RestClient,
  paths: readonly string[],
  { yes }: DeleteOptions,
): Promise<readonly Target[]> {
  if (yes) return paths.map((tinkerPath) => ({ tinkerPath }));
  const runs = new Set(paths.map((path) => parseTinkerPath(path).trainingRunId));
  const lists = await Promise.all(
    [...runs].map((run) =>
      rest.listCheckpoints(run).then(
        ({ items }) => items,
        (): Checkpoint[] => [],
      ),
    ),
  );
  const known = new Map(lists.flat().map((checkpoint) => [checkpoint.tinkerPath, checkpoint]));
  return paths.map((tinkerPath) => known.get(tinkerPath) ?? { tinkerPath });
}

async function choose(
  context: CommandContext,
  rest: RestClient,
  runId: string,
  { type, before, after }: DeleteOptions,
): Promise<readonly Target[]> {
  const checkpoints = await checkpointsOfRun(context, rest, runId);
  return checkpoints.filter(
    ({ checkpointType, time }) =>
      (type === undefined || checkpointType === TYPES[type]) &&
      (before === undefined || Date.parse(time) < before.getTime()) &&
      (after === undefined || Date.parse(time) > after.getTime()),
  );
}

async function mayDelete(context: CommandContext, targets: readonly Target[]): Promise<boolean> {
  const { stderr } = context;
  const { path, size, created } = CHECKPOINT_COLUMNS;
  const columns = [path, size, created] as readonly Column<Target>[];
  const { lines } = renderTable(targets, columns, {
    width: stderr.isTTY ? stderr.columns || 80 : Number.POSITIVE_INFINITY,
    nowMs: Date.now(),
    styles: stylesFor(context, stderr),
  });
  for (const line of lines) stderr.write(`${line}\n`);
  if (!canAsk(context)) {
    throw new UsageError("there is no terminal for the question: give -y to delete without confirmation");
  }
  const bytes = targets.reduce((sum, { sizeBytes }) => sum + (sizeBytes ?? 0), 0);
  const total = bytes > 0 ? ` (${humanBytes(bytes)})` : "";
  return confirm(context, `Delete ${count(targets.length)}${total} for good?`);
}

async function deleteAll(
  context: CommandContext,
  rest: RestClient,
  targets: readonly Target[],
): Promise<Outcome[]> {
  const signal = context.interruption();
  const bar = progressBar(context, "deleting", "items");
  const outcomes: Outcome[] = [];
  const waiting = targets.entries();
  const work = async () => {
    for (const [index, { tinkerPath }] of waiting) {
      if (signal.aborted) return;
      outcomes[index] = await rest.deleteCheckpoint(tinkerPath).then(
        () => ({ tinkerPath, deleted: true }),
        (error: unknown) => ({
          tinkerPath,
          deleted: false,
          error:
            error instanceof NotFoundError
              ? "there is no such checkpoint"
              : explainFailure(error, context.globals()),
        }),
      );
      bar.update(outcomes.filter(Boolean).length, targets.length);
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, work));
  bar.end();
  if (signal.aborted) {
    const done = outcomes.filter((outcome) => outcome?.deleted).length;
    context.notify(`${done} of ${count(targets.length)} deleted before the interruption`);
    throw signal.reason;
  }
  return outcomes;
}

const OUTCOME_COLUMNS: readonly Column<Outcome>[] = [
  { header: "Path", name: "tinkerPath" },
  { header: "Deleted", name: "deleted", kind: "flag" },
  { header: "Error", name: "error" },
];

function report(context: CommandContext, outcomes: readonly Outcome[]): void {
  if (context.globals().format !== "table") {
    printList(context, outcomes, { columns: OUTCOME_COLUMNS, empty: "" });
  }
  for (const { tinkerPath, error } of outcomes) {
    if (error !== undefined) context.notify(`${tinkerPath} was not deleted: ${error}`);
  }
  const deleted = outcomes.filter((outcome) => outcome.deleted).length;
  if (deleted > 0) context.notify(`deleted ${count(deleted)}`);
}

const count = (number: number) => `${number} checkpoint${number === 1 ? "" : "s"}`;
