import type { Renderer } from "../../renderers/index.js";
import { throwIfAborted } from "../../transport/index.js";
import { type Conversation, datumFromExample, toExamples } from "../data/index.js";
import { findRenderer, longestInput, preparationSignal } from "../runs/find-model.js";
import type { RunPlan } from "../runs/run-training.js";
import type { RunDefaults } from "../runs/settings.js";
import { checkOptions, type TrainSupervisedOptions } from "./options.js";
import type { RowsOptions } from "./rows-options.js";
import { describeRows, type RowsSettings, rowsConfig, rowsSettings } from "./settings.js";
import { openTrainingData, type RenderedRow, type TrainingData } from "./training-data.js";

/** What is found out before rows are rendered. */
export interface Rendering {
  readonly renderer: Renderer;
  readonly maxLength: number | undefined;
}

/** A kind of rows, and what is learnt from them. */
export interface RowsKind<Row> {
  render(row: Row, rendering: Rendering): RenderedRow;
  /** What is said of rows without anything to learn. */
  readonly emptyRow: string;
  /** What is learnt, for people. */
  readonly learning: string;
  /** What stands in `config.json` besides. */
  readonly config: Readonly<Record<string, unknown>>;
  readonly defaults?: Pick<RunDefaults, "learningRate" | "best"> | undefined;
}

/** All that is known of a run before its first step. */
export interface PreparedRows<Row> extends RunPlan {
  readonly renderer: Renderer;
  readonly data: TrainingData<Row>;
  readonly settings: RowsSettings;
}

/** A supervised run before its first step. */
export type PreparedRun = PreparedRows<Conversation>;

/** Reads and counts the rows, and decides every setting, without training anything. */
export async function planSupervised(options: TrainSupervisedOptions): Promise<RunPlan> {
  return planOf(await prepareRun(options));
}

/** Only what is told beforehand. */
export async function planOf<Row>({ data, config, description }: PreparedRows<Row>): Promise<RunPlan> {
  await data[Symbol.asyncDispose]();
  return { config, description };
}

/** Whoever calls this closes `data`. */
export async function prepareRun(options: TrainSupervisedOptions): Promise<PreparedRun> {
  checkOptions(options);
  const { trainOn = "all_assistant_messages", reduction = "mean" } = options;
  const datumReduction = reduction === "mean" ? ("mean" as const) : ("none" as const);
  return prepareRows(options, {
    render: (conversation, { renderer, maxLength }) => {
      const examples = toExamples(conversation, renderer, trainOn);
      return {
        data: examples
          .map((example) => datumFromExample(example, { maxLength, reduction: datumReduction }))
          .filter((datum) => datum !== undefined),
        isCut: maxLength !== undefined && examples.some(({ input }) => input.length > maxLength),
        hadAnswer: examples.some(({ weights }) => weights.some((weight) => weight > 0)),
      };
    },
    emptyRow: `nothing to learn for ${trainOn}`,
    learning: trainOn,
    config: { train_on_what: trainOn, reduction },
  });
}

/** Whoever calls this has checked the options, and closes `data`. */
export async function prepareRows<Row>(
  options: RowsOptions<Row>,
  kind: RowsKind<Row>,
): Promise<PreparedRows<Row>> {
  const { service, model, seed = 0 } = options;
  const signal = preparationSignal(options);
  const maxLength = options.maxLength ?? (await longestInput(service, model, signal));
  const { renderer, rendererName } = await findRenderer(options, signal);
  const data = await openTrainingData({
    ...options,
    maxLength,
    seed,
    signal,
    render: (row: Row) => kind.render(row, { renderer, maxLength }),
    emptyRow: kind.emptyRow,
  });
  try {
    throwIfAborted(signal, "The run");
    const settings = rowsSettings(options, { data, rendererName, maxLength, defaults: kind.defaults });
    const description = describeRows(settings, options, { learning: kind.learning, remarks: data.remarks });
    const config = { ...rowsConfig(settings), ...kind.config };
    return { renderer, data, settings, config, description };
  } catch (error) {
    await data[Symbol.asyncDispose]();
    throw error;
  }
}
