import { keptOptions } from "../../wire/index.js";
import { LEAST_ROWS_TO_SPLIT } from "../data/split.js";
import {
  configOf,
  type DescribedLine,
  describeModel,
  describeRate,
  describeSettings,
  type RunDefaults,
  type RunSettings,
  runSettings,
} from "../runs/settings.js";
import { type FilledRowsOptions, rowsOptions } from "./rows-options.js";
import type { TrainingData } from "./training-data.js";

/** Facts about the data and the model that settings depend on. */
export interface DataFacts {
  readonly data: Pick<TrainingData<never>, "stepsPerEpoch" | "batchSize" | "counts">;
  readonly rendererName: string;
  readonly maxLength: number | undefined;
  readonly defaults?: Pick<RunDefaults, "learningRate" | "best"> | undefined;
}

/** The settings of all runs, and those of training on rows. */
export type RowsSettings = RunSettings & ReturnType<typeof ownSettings>;

/** Every setting of the run, those that depend on its rows included. */
export function rowsSettings<Row>(options: FilledRowsOptions<Row>, found: DataFacts): RowsSettings {
  const own = ownSettings(options, found);
  const { stepsPerEpoch } = found.data;
  const steps = Math.min(own.epochs * stepsPerEpoch, options.maxSteps ?? Number.POSITIVE_INFINITY);
  const { rendererName, defaults } = found;
  return { ...runSettings(options, { steps, stepsPerEpoch, rendererName, ...defaults }), ...own };
}

function ownSettings<Row>(options: FilledRowsOptions<Row>, { data, maxLength }: DataFacts) {
  return { epochs: options.epochs, batchSize: data.batchSize, maxLength, counts: data.counts };
}

/** As it stands in `config.json`, under the names of the Python cookbook where it has the same. */
export function rowsConfig(settings: RowsSettings): Readonly<Record<string, unknown>> {
  const { counts } = settings;
  return {
    ...configOf(settings),
    ...keptOptions(rowsOptions(""), settings),
    rows: counts.rows,
    test_rows: counts.testRows,
    tokens: counts.tokens,
    test_tokens: counts.testTokens,
  };
}

/** Describes the run before it starts. */
export function describeRows<Row>(
  settings: RowsSettings,
  options: FilledRowsOptions<Row>,
  {
    learning,
    formats,
    remarks,
    estimated,
  }: { readonly learning: string; readonly estimated: readonly DescribedLine[] } & Pick<
    TrainingData<Row>,
    "formats" | "remarks"
  >,
): string {
  const { counts, steps, stepsPerEpoch, epochs } = settings;
  const { folder } = options;
  const number = (value: number) => value.toLocaleString("en-US");
  const held =
    counts.testRows === 0 ? noneHeldOut(options, counts.rows) : `${number(counts.testRows)} held out`;
  const epochsText = epochs === 1 ? "1 epoch" : `${epochs} epochs`;
  return describeSettings([
    describeModel(settings),
    ["renderer", `${settings.rendererName}, learning ${learning}`],
    ...optional(formats.join(" and ") || undefined, "format"),
    ["rows", `${number(counts.rows)} to learn from, ${held}`],
    ["tokens", `${number(counts.tokens)} an epoch, ${number(counts.lossTokens)} of them trained`],
    ["steps", `${number(steps)}: ${epochsText} of ${number(stepsPerEpoch)}, ${settings.batchSize} rows each`],
    describeRate(settings),
    ...estimated,
    ...optional(folder, "folder"),
    ...remarks.map((remark): DescribedLine => ["note", remark]),
  ]);
}

/** Says why no rows are held out, where a tenth would be expected. */
function noneHeldOut<Row>({ testSize, testData }: FilledRowsOptions<Row>, rows: number): string {
  if (testSize !== undefined || testData !== undefined || rows >= LEAST_ROWS_TO_SPLIT) return "none held out";
  return `none held out, as they are fewer than ${LEAST_ROWS_TO_SPLIT} (testSize or testData measures anyway)`;
}

function optional(text: string | number | undefined, name: string): readonly DescribedLine[] {
  return text === undefined ? [] : [[name, String(text)]];
}
