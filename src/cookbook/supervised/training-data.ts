import { messageOf, ValidationError } from "../../errors.js";
import type { Datum } from "../../wire/index.js";
import { batches, type OpenRows, type Rows, type Source, split } from "../data/index.js";
import { selectRows } from "../data/rows.js";
import { recommendedBatchSize } from "../runs/hyperparameters.js";

/** What is learnt from a row. */
export interface RenderedRow {
  readonly data: readonly Datum[];
  /** Whether it was longer than it may be. */
  readonly isCut: boolean;
  /** Whether there is something to learn in all of it. */
  readonly hadAnswer: boolean;
}

/** Which rows, how they are taken, and what is learnt from each. */
export interface TrainingDataOptions<Row> {
  readonly data: Source<Row>;
  readonly testData?: Source<Row> | undefined;
  readonly testSize?: number | undefined;
  readonly batchSize?: number | undefined;
  readonly seed: number;
  readonly signal?: AbortSignal | undefined;
  readonly maxLength: number | undefined;
  readonly render: (row: Row) => RenderedRow;
  /** What is said of rows without anything to learn: `nothing to learn for all_assistant_messages`. */
  readonly emptyRow: string;
}

/** What is in the rows, counted before training. */
export interface DataCounts {
  readonly rows: number;
  readonly testRows: number;
  /** Of one epoch. */
  readonly tokens: number;
  readonly lossTokens: number;
  readonly testTokens: number;
}

/** Rows that are read and rendered when their step comes, in an order that the step's number decides. */
export interface TrainingData<Row> extends AsyncDisposable {
  readonly counts: DataCounts;
  /** What a person should know of the rows: those that were cut, those that were left out. */
  readonly remarks: readonly string[];
  readonly batchSize: number;
  readonly stepsPerEpoch: number;
  /** Held out, to measure with. */
  readonly test: readonly Datum[];
  /** The rows of a step with what is learnt from each. */
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
    if (rows.length === 0)
      throw new ValidationError("data", "data has no rows: there is nothing to learn from");
    const parts =
      testData === undefined
        ? split(rows, { testSize, seed })
        : { train: rows as Rows<Row>, test: (await open(testData)) as Rows<Row> };
    const survey = await surveyRows(parts.train, options, signal);
    const train = selectRows(parts.train, survey.usable);
    if (train.length === 0) throw nothingToLearn(survey, options);
    const test: Datum[] = [];
    const testSurvey = await surveyRows(parts.test, options, signal, (datum) => test.push(datum));
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
      remarks: [...remarksOn(survey, options), ...remarksOn(testSurvey, options)],
      batchSize,
      stepsPerEpoch: order.stepsPerEpoch,
      test,
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

interface Survey {
  /** Places of the rows that something is learnt from. */
  readonly usable: number[];
  tokens: number;
  lossTokens: number;
  readonly cut: Findings;
  readonly spoiltByCut: Findings;
  readonly withoutAnswer: Findings;
}

interface Findings {
  count: number;
  first?: string;
}

async function surveyRows<Row>(
  rows: Rows<Row>,
  options: TrainingDataOptions<Row>,
  signal: AbortSignal | undefined,
  onDatum: (datum: Datum) => void = () => {},
): Promise<Survey> {
  const survey: Survey = {
    usable: [],
    tokens: 0,
    lossTokens: 0,
    cut: { count: 0 },
    spoiltByCut: { count: 0 },
    withoutAnswer: { count: 0 },
  };
  for (let start = 0; start < rows.length; start += ROWS_AT_A_TIME) {
    signal?.throwIfAborted();
    const length = Math.min(ROWS_AT_A_TIME, rows.length - start);
    const indices = Array.from({ length }, (_, place) => start + place);
    for (const [place, row] of (await rows.read(indices)).entries()) {
      const index = start + place;
      const { data, isCut, hadAnswer } = render(row, options, () => rows.place(index));
      const note = (findings: Findings) => {
        findings.count += 1;
        findings.first ??= rows.place(index);
      };
      if (data.length === 0) note(hadAnswer ? survey.spoiltByCut : survey.withoutAnswer);
      else {
        if (isCut) note(survey.cut);
        survey.usable.push(index);
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

/** How many tokens of a datum are learnt, whatever they weigh. */
export function lossTokens({ lossFnInputs }: Datum): number {
  let count = 0;
  for (const weight of lossFnInputs["weights"]?.data ?? []) if (weight > 0) count += 1;
  return count;
}

type Limits = Pick<TrainingDataOptions<never>, "maxLength" | "emptyRow">;

function nothingToLearn({ spoiltByCut, withoutAnswer }: Survey, { maxLength, emptyRow }: Limits) {
  return spoiltByCut.count > 0
    ? new ValidationError(
        "maxLength",
        `maxLength is ${maxLength}, and no row has an answer within that many tokens (the first is ${spoiltByCut.first})`,
      )
    : new ValidationError(
        "data",
        `data has no row with anything to learn: ${withoutAnswer.first} has ${emptyRow}`,
      );
}

function remarksOn({ cut, spoiltByCut, withoutAnswer }: Survey, { maxLength, emptyRow }: Limits) {
  const remark = ({ count, first }: Findings, text: string) =>
    count === 0 ? [] : [`${count === 1 ? "1 row" : `${count} rows`} ${text} (first: ${first})`];
  return [
    ...remark(cut, `cut after ${maxLength} tokens`),
    ...remark(spoiltByCut, `left out: no answer within ${maxLength} tokens`),
    ...remark(withoutAnswer, `left out: ${emptyRow}`),
  ];
}
