import { messageOf, ValidationError } from "../../errors.js";
import type { Datum } from "../../wire/index.js";
import { wrongField } from "../../wire/index.js";
import { type Batches, batches, type OpenRows, type Rows, type Source, split } from "../data/index.js";
import { placesOf, selectRows } from "../data/rows.js";
import { recommendedBatchSize } from "../runs/hyperparameters.js";

/** Training data of a row. */
export interface RenderedRow {
  readonly data: readonly Datum[];
  /** True if the row was longer than allowed and was cut. */
  readonly isCut: boolean;
  /** Whether there is something to learn in all of it. */
  readonly hadAnswer: boolean;
}

/** The rows, their order, and how each becomes training data. */
export interface TrainingDataOptions<Row> {
  readonly data: Source<Row>;
  readonly testData?: Source<Row> | undefined;
  readonly testSize?: number | undefined;
  readonly batchSize?: number | undefined;
  readonly seed: number;
  readonly signal?: AbortSignal | undefined;
  readonly maxLength: number | undefined;
  readonly render: (row: Row) => RenderedRow;
  /** Leaves out rows that cannot be read or rendered, instead of refusing them. */
  readonly skipBadRows?: boolean | undefined;
  /** Message about rows without trained tokens: `nothing to learn for all_assistant_messages`. */
  readonly emptyRow: string;
}

/** Counts of rows and tokens, made before training. */
export interface DataCounts {
  readonly rows: number;
  readonly testRows: number;
  /** Counts of one epoch. */
  readonly tokens: number;
  readonly lossTokens: number;
  readonly testTokens: number;
}

/** How much data there are. */
export interface DataSize {
  readonly tokens: number;
  readonly datums: number;
}

/** Rows that are read and rendered when their step comes, in an order that the step's number decides. */
export interface TrainingData<Row> extends AsyncDisposable {
  readonly counts: DataCounts;
  /** Formats that rows were found in; empty for rows of which there is only one. */
  readonly formats: readonly string[];
  /** Notes about rows that were cut or left out. */
  readonly remarks: readonly string[];
  readonly batchSize: number;
  readonly stepsPerEpoch: number;
  /** Held out, to measure with. */
  readonly test: readonly Datum[];
  /** Tokens and datums of the first steps, counted exactly. */
  sizeOf(steps: number): DataSize;
  /** The rows of a step with their training data. */
  rows(step: number): Promise<readonly TrainingRow<Row>[]>;
}

/** A row as the data of a step. */
export interface TrainingRow<Row> {
  readonly row: Row;
  readonly data: readonly Datum[];
}

const ROWS_AT_A_TIME = 64;

/** Opens the rows and renders each once, so that what is wrong with one is known before anything is trained. */
export async function openTrainingData<Row>(options: TrainingDataOptions<Row>): Promise<TrainingData<Row>> {
  const { data, testData, testSize, seed, signal } = options;
  const opened: OpenRows<Row>[] = [];
  const open = async (source: Source<Row>) => {
    const rows = await source.open();
    opened.push(rows);
    return rows;
  };
  const close = async () => {
    await Promise.all(opened.map((rows) => rows.close()));
  };
  try {
    const rows = await open(data);
    if (rows.length === 0) throw wrongField("data", "has no rows: there is nothing to learn from");
    const parts =
      testData === undefined
        ? split(rows, { testSize, seed })
        : { train: rows as Rows<Row>, test: (await open(testData)) as Rows<Row> };
    const survey = await surveyRows(parts.train, options, signal);
    const train = selectRows(parts.train, survey.usable);
    const test: Datum[] = [];
    const testSurvey = await surveyRows(parts.test, options, signal, (datum) => test.push(datum));
    const bad = joined(survey.bad, testSurvey.bad);
    if (bad.count > 0 && !(options.skipBadRows && train.length > 0)) {
      throw badRowsError(bad, parts.train.length + parts.test.length);
    }
    if (train.length === 0) throw nothingToLearn(survey, options);
    const batchSize = options.batchSize ?? recommendedBatchSize(train.length);
    const order = batches(train, { batchSize, seed });
    const counts = {
      rows: train.length,
      testRows: testSurvey.usable.length,
      tokens: survey.tokens,
      lossTokens: survey.lossTokens,
      testTokens: testSurvey.tokens,
    };
    return {
      counts,
      formats: [...(rows.formats ?? [])],
      remarks: [
        ...remark({ count: bad.count, first: bad.first[0]?.message }, "left out: cannot be trained on"),
        ...remarksOn(survey, options),
        ...remarksOn(testSurvey, options),
      ],
      batchSize,
      stepsPerEpoch: order.stepsPerEpoch,
      test,
      sizeOf: (steps) => sizeOfSteps(steps, order, survey.sizes),
      rows: async (step) => {
        const indices = order.indices(step);
        const found = await train.read(indices);
        return found.map((row, place) => ({
          row,
          data: render(row, options, () => train.place(indices[place]!)).data,
        }));
      },
      [Symbol.asyncDispose]: close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Every epoch has all rows; only the last one may be cut short. */
function sizeOfSteps(steps: number, order: Batches, sizes: readonly DataSize[]): DataSize {
  const epochs = Math.floor(steps / order.stepsPerEpoch);
  const sum = { tokens: 0, datums: 0 };
  const add = ({ tokens, datums }: DataSize, times: number) => {
    sum.tokens += tokens * times;
    sum.datums += datums * times;
  };
  for (const size of sizes) add(size, epochs);
  for (let step = epochs * order.stepsPerEpoch; step < steps; step += 1)
    for (const index of order.indices(step)) add(sizes[index]!, 1);
  return sum;
}

interface Survey {
  /** Places of the rows that have trained tokens. */
  readonly usable: number[];
  /** Sizes of these rows. */
  readonly sizes: DataSize[];
  tokens: number;
  lossTokens: number;
  readonly cut: Findings;
  readonly spoiltByCut: Findings;
  readonly withoutAnswer: Findings;
  readonly bad: BadRows;
}

interface Findings {
  count: number;
  first?: string | undefined;
}

interface BadRows {
  count: number;
  /** As many as are shown. */
  readonly first: ValidationError[];
}

const BAD_ROWS_SHOWN = 10;

async function surveyRows<Row>(
  rows: Rows<Row>,
  options: TrainingDataOptions<Row>,
  signal: AbortSignal | undefined,
  onDatum: (datum: Datum) => void = () => {},
): Promise<Survey> {
  const survey: Survey = {
    usable: [],
    sizes: [],
    tokens: 0,
    lossTokens: 0,
    cut: { count: 0 },
    spoiltByCut: { count: 0 },
    withoutAnswer: { count: 0 },
    bad: { count: 0, first: [] },
  };
  const noteBad = (error: unknown) => {
    // A mode that the format does not support is not an error of the row.
    if (!(error instanceof ValidationError) || error.field === "trainOn") throw error;
    survey.bad.count += 1;
    if (survey.bad.first.length < BAD_ROWS_SHOWN) survey.bad.first.push(error);
  };
  for (const places of placesOf(rows, ROWS_AT_A_TIME)) {
    signal?.throwIfAborted();
    for (const [order, read] of (await readEach(rows, places)).entries()) {
      const index = places[order]!;
      const rendered = await read()
        .then((row) => render(row, options, () => rows.place(index)))
        .catch(noteBad);
      if (rendered === undefined) continue;
      const { data, isCut, hadAnswer } = rendered;
      const note = (findings: Findings) => {
        findings.count += 1;
        findings.first ??= rows.place(index);
      };
      if (data.length === 0) note(hadAnswer ? survey.spoiltByCut : survey.withoutAnswer);
      else {
        if (isCut) note(survey.cut);
        survey.usable.push(index);
        const tokens = data.reduce((sum, { modelInput }) => sum + modelInput.length, 0);
        survey.sizes.push({ tokens, datums: data.length });
      }
      for (const datum of data) {
        survey.tokens += datum.modelInput.length;
        survey.lossTokens += lossTokens(datum);
        onDatum(datum);
      }
    }
  }
  return survey;
}

/** Rows that are read together; one by one where one of them is wrong, so that each has an error of its own. */
async function readEach<Row>(
  rows: Rows<Row>,
  indices: readonly number[],
): Promise<readonly (() => Promise<Row>)[]> {
  try {
    return (await rows.read(indices)).map((row) => async () => row);
  } catch (error) {
    if (!(error instanceof ValidationError)) throw error;
    return indices.map((index) => async () => (await rows.read([index]))[0]!);
  }
}

/** Bad rows of both parts, in the order of their lines. */
function joined(one: BadRows, other: BadRows): BadRows {
  const first = [...one.first, ...other.first]
    .sort((left, right) => left.message.localeCompare(right.message, "en", { numeric: true }))
    .slice(0, BAD_ROWS_SHOWN);
  return { count: one.count + other.count, first };
}

function badRowsError({ count, first }: BadRows, rowCount: number): ValidationError {
  const lines = first.map(({ message }) => `  ${message}`);
  if (count > first.length) lines.push(`  and ${count - first.length} more`);
  return new ValidationError(
    first[0]!.field,
    `${count} of ${rowCount} rows cannot be trained on:\n${lines.join("\n")}\n` +
      "Correct them, or leave them out with skipBadRows (--skip-bad-rows)",
  );
}

function render<Row>(
  row: Row,
  { render: renderRow }: TrainingDataOptions<Row>,
  place: () => string,
): RenderedRow {
  try {
    return renderRow(row);
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    const field = error instanceof ValidationError ? error.field : "data";
    throw new ValidationError(field, `${place()}: ${messageOf(error)}`);
  }
}

/** Number of trained tokens of a datum, whatever their weight. */
export function lossTokens({ lossFnInputs }: Datum): number {
  let count = 0;
  for (const weight of lossFnInputs["weights"]?.data ?? []) if (weight > 0) count += 1;
  return count;
}

type Limits = Pick<TrainingDataOptions<never>, "maxLength" | "emptyRow">;

function nothingToLearn({ spoiltByCut, withoutAnswer }: Survey, { maxLength, emptyRow }: Limits) {
  return spoiltByCut.count > 0
    ? wrongField(
        "maxLength",
        `is ${maxLength}, and no row has an answer within that many tokens (the first is ${spoiltByCut.first})`,
      )
    : wrongField("data", `has no row with anything to learn: ${withoutAnswer.first} has ${emptyRow}`);
}

function remarksOn({ cut, spoiltByCut, withoutAnswer }: Survey, { maxLength, emptyRow }: Limits) {
  return [
    ...remark(cut, `cut after ${maxLength} tokens`),
    ...remark(spoiltByCut, `left out: no answer within ${maxLength} tokens`),
    ...remark(withoutAnswer, `left out: ${emptyRow}`),
  ];
}

function remark({ count, first }: Findings, text: string): readonly string[] {
  return count === 0 ? [] : [`${count === 1 ? "1 row" : `${count} rows`} ${text} (first: ${first})`];
}
