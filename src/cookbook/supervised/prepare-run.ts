import type { Renderer } from "../../renderers/index.js";
import { throwIfAborted } from "../../transport/index.js";
import { type Datum, keptOptions } from "../../wire/index.js";
import {
  addPlanned,
  addTokens,
  describeBudget,
  describeEstimate,
  estimateOf,
  exactly,
  NO_TOKENS,
  type PlannedTokens,
  priceList,
  type TokenCounts,
} from "../costs/index.js";
import { type Conversation, datumFromExample, toExamples } from "../data/index.js";
import { findRenderer, longestInput, preparationSignal } from "../runs/find-model.js";
import type { RunPlan } from "../runs/run-training.js";
import type { RunDefaults } from "../runs/settings.js";
import { OWN_OPTIONS, SUPERVISED_OPTIONS, type TrainSupervisedOptions } from "./options.js";
import type { FilledRowsOptions } from "./rows-options.js";
import { describeRows, type RowsSettings, rowsConfig, rowsSettings } from "./settings.js";
import { type DataSize, openTrainingData, type RenderedRow, type TrainingData } from "./training-data.js";

/** Facts that are found before rows are rendered. */
export interface Rendering {
  readonly renderer: Renderer;
  readonly maxLength: number | undefined;
}

/** A kind of rows, and how they become training data. */
export interface RowsKind<Row> {
  render(row: Row, rendering: Rendering): RenderedRow;
  /** Message about rows without trained tokens. */
  readonly emptyRow: string;
  /** Describes the trained tokens. */
  readonly learning: string;
  /** Further entries of `config.json`. */
  readonly config: Readonly<Record<string, unknown>>;
  readonly defaults?: Pick<RunDefaults, "learningRate" | "best"> | undefined;
  /** Tokens of steps with so many data. Default: each token is trained once. */
  readonly stepTokens?: ((size: DataSize) => Partial<TokenCounts>) | undefined;
  /** Tokens of evaluations. Default: a forward pass over the held-out data for each. */
  readonly evaluationTokens?:
    | ((test: readonly Datum[], evaluations: number) => Partial<TokenCounts>)
    | undefined;
  /** Further tokens, such as those of a teacher. */
  readonly otherTokens?: ((size: DataSize) => PlannedTokens) | undefined;
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

/** Plan of a prepared run. Releases the run's data. */
export async function planOf<Row>({
  data,
  config,
  description,
  estimate,
}: PreparedRows<Row>): Promise<RunPlan> {
  await data[Symbol.asyncDispose]();
  return { config, description, estimate };
}

/** The caller closes `data`. */
export async function prepareRun(
  given: TrainSupervisedOptions,
  { caller = "trainSupervised", ...extra }: { caller?: string } & Pick<RowsKind<never>, "otherTokens"> = {},
): Promise<PreparedRun> {
  const options = SUPERVISED_OPTIONS.check(given, caller);
  const { trainOn, reduction } = options;
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
    config: keptOptions(OWN_OPTIONS, options),
    ...extra,
  });
}

/** The caller has checked the options, and closes `data`. */
export async function prepareRows<Row>(
  options: FilledRowsOptions<Row>,
  kind: RowsKind<Row>,
): Promise<PreparedRows<Row>> {
  const { service, model, seed } = options;
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
    const prices = await priceList(service, options.prices);
    const estimate = estimateOf(plannedTokens(options, settings, data, kind), prices);
    const description = describeRows(settings, options, {
      learning: kind.learning,
      ...data,
      estimated: [...describeEstimate(estimate, prices), ...describeBudget(options.budget, estimate)],
    });
    const config = { ...rowsConfig(settings), ...kind.config };
    return { renderer, data, settings, config, description, estimate };
  } catch (error) {
    await data[Symbol.asyncDispose]();
    throw error;
  }
}

/** The tokens of a run on rows, which are known exactly; those of evaluators are not. */
function plannedTokens<Row>(
  { model, evaluators }: FilledRowsOptions<Row>,
  { steps, evaluateEvery }: RowsSettings,
  { sizeOf, test }: Pick<TrainingData<Row>, "sizeOf" | "test">,
  kind: RowsKind<Row>,
): PlannedTokens {
  const size = sizeOf(steps);
  const evaluations = evaluateEvery === 0 || test.length === 0 ? 0 : Math.ceil(steps / evaluateEvery) + 1;
  const trained = kind.stepTokens?.(size) ?? { train: size.tokens };
  const evaluated = evaluations === 0 ? {} : evaluationTokens(kind, test, evaluations);
  const own = exactly(
    new Map([[model, addTokens(addTokens(NO_TOKENS, trained), evaluated)]]),
    evaluators.length === 0 ? [] : ["without the evaluators"],
  );
  const others = kind.otherTokens?.(size);
  return others === undefined ? own : addPlanned(own, others);
}

function evaluationTokens<Row>(
  kind: RowsKind<Row>,
  test: readonly Datum[],
  evaluations: number,
): Partial<TokenCounts> {
  return kind.evaluationTokens?.(test, evaluations) ?? { train: tokensOf(test) * evaluations };
}

/** Tokens of all data. */
export function tokensOf(data: readonly Datum[]): number {
  return data.reduce((sum, { modelInput }) => sum + modelInput.length, 0);
}
