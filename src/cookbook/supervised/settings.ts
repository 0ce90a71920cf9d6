import {
  configOf,
  type DescribedLine,
  describe,
  describeModel,
  describeRate,
  type RunDefaults,
  type RunSettings,
  runSettings,
} from "../runs/settings.js";
import type { RowsOptions } from "./rows-options.js";
import type { TrainingData } from "./training-data.js";

/** What was found out before the settings could be. */
export interface FoundOut {
  readonly data: Pick<TrainingData<never>, "stepsPerEpoch" | "batchSize" | "counts">;
  readonly rendererName: string;
  readonly maxLength: number | undefined;
  readonly defaults?: Pick<RunDefaults, "learningRate" | "best"> | undefined;
}

/** The settings of all runs, and those of training on rows. */
export type RowsSettings = RunSettings & ReturnType<typeof ownSettings>;

/** Every setting of the run, those that depend on its rows included. */
export function rowsSettings<Row>(options: RowsOptions<Row>, found: FoundOut): RowsSettings {
  const own = ownSettings(options, found);
  const { stepsPerEpoch } = found.data;
  const steps = Math.min(own.epochs * stepsPerEpoch, options.maxSteps ?? Number.POSITIVE_INFINITY);
  const { rendererName, defaults } = found;
  return {
    ...runSettings(options, { steps, stepsPerEpoch, rendererName, schedule: "linear", ...defaults }),
    ...own,
  };
}

function ownSettings<Row>(options: RowsOptions<Row>, { data, maxLength }: FoundOut) {
  return { epochs: options.epochs ?? 1, batchSize: data.batchSize, maxLength, counts: data.counts };
}

/** As it stands in `config.json`, under the names of the Python cookbook where it has the same. */
export function rowsConfig(settings: RowsSettings): Readonly<Record<string, unknown>> {
  const { counts } = settings;
  return {
    ...configOf(settings),
    num_epochs: settings.epochs,
    batch_size: settings.batchSize,
    max_length: settings.maxLength ?? null,
    rows: counts.rows,
    test_rows: counts.testRows,
    tokens: counts.tokens,
    test_tokens: counts.testTokens,
  };
}

/** What is about to be done, for people. */
export function describeRows<Row>(
  settings: RowsSettings,
  { pricePerMillionTokens, folder }: RowsOptions<Row>,
  { learning, remarks }: { readonly learning: string; readonly remarks: readonly string[] },
): string {
  const { counts, steps, stepsPerEpoch, epochs } = settings;
  const number = (value: number) => value.toLocaleString("en-US");
  const trained = Math.round((counts.tokens * steps) / stepsPerEpoch);
  const held = counts.testRows === 0 ? "none held out" : `${number(counts.testRows)} held out`;
  const epochsText = epochs === 1 ? "1 epoch" : `${epochs} epochs`;
  const cost = ((trained / 1e6) * (pricePerMillionTokens ?? 0)).toFixed(2);
  return describe([
    describeModel(settings),
    ["renderer", `${settings.rendererName}, learning ${learning}`],
    ["rows", `${number(counts.rows)} to learn from, ${held}`],
    ["tokens", `${number(counts.tokens)} an epoch, ${number(counts.lossTokens)} of them learnt`],
    ["steps", `${number(steps)}: ${epochsText} of ${number(stepsPerEpoch)}, ${settings.batchSize} rows each`],
    describeRate(settings),
    ...optional(pricePerMillionTokens && `about ${cost} for training on ${number(trained)} tokens`, "cost"),
    ...optional(folder, "folder"),
    ...remarks.map((remark): DescribedLine => ["note", remark]),
  ]);
}

function optional(text: string | number | undefined, name: string): readonly DescribedLine[] {
  return text === undefined ? [] : [[name, String(text)]];
}
