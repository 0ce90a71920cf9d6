import { messageOf, ValidationError } from "../../errors.js";
import type { Renderer, TrainOn } from "../../renderers/index.js";
import type { Datum } from "../../wire/index.js";
import {
  batches,
  type Conversation,
  type ConversationSource,
  datumFromExample,
  type OpenRows,
  type Rows,
  split,
  toExamples,
} from "../data/index.js";
import { selectRows } from "../data/rows.js";
import { recommendedBatchSize } from "../runs/hyperparameters.js";

/** How conversations become what a model learns from. */
export interface RenderingOptions {
  readonly renderer: Renderer;
  readonly trainOn: TrainOn;
  readonly maxLength: number | undefined;
  readonly reduction: "mean" | "sum";
}

/** Which conversations, and how they are taken. */
export interface TrainingDataOptions extends RenderingOptions {
  readonly data: ConversationSource;
  readonly testData?: ConversationSource | undefined;
  readonly testSize?: number | undefined;
  readonly batchSize?: number | undefined;
  readonly seed: number;
  readonly signal?: AbortSignal | undefined;
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
export interface TrainingData extends AsyncDisposable {
  readonly counts: DataCounts;
  /** What a person should know of the rows: those that were cut, those that were left out. */
  readonly remarks: readonly string[];
  readonly batchSize: number;
  readonly stepsPerEpoch: number;
  /** Held out, to measure with. */
  readonly test: readonly Datum[];
  /** The rows of a step with what is learnt from each. */
  rows(step: number): Promise<readonly TrainingRow[]>;
}

/** A row as the data of a step. */
export interface TrainingRow {
  readonly conversation: Conversation;
  readonly data: readonly Datum[];
}

const ROWS_AT_A_TIME = 64;

/** Opens the rows and renders each once, so that what is wrong with one is known before anything is trained. */
export async function openTrainingData(options: TrainingDataOptions): Promise<TrainingData> {
  const { data, testData, testSize, seed, signal } = options;
  const opened: OpenRows<Conversation>[] = [];
  const open = async (source: ConversationSource) => {
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
        : { train: rows as Rows<Conversation>, test: (await open(testData)) as Rows<Conversation> };
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
        const conversations = await train.read(indices);
        return conversations.map((conversation, place) => ({
          conversation,
          data: render(conversation, options, () => train.place(indices[place]!)).data,
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

async function surveyRows(
  rows: Rows<Conversation>,
  options: RenderingOptions,
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
    for (const [place, conversation] of (await rows.read(indices)).entries()) {
      const index = start + place;
      const { data, isCut, hadAnswer } = render(conversation, options, () => rows.place(index));
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

function render(
  conversation: Conversation,
  { renderer, trainOn, maxLength, reduction }: RenderingOptions,
  place: () => string,
): { data: readonly Datum[]; isCut: boolean; hadAnswer: boolean } {
  try {
    const examples = toExamples(conversation, renderer, trainOn);
    const datumOptions = {
      maxLength,
      reduction: reduction === "mean" ? ("mean" as const) : ("none" as const),
    };
    return {
      data: examples
        .map((example) => datumFromExample(example, datumOptions))
        .filter((datum) => datum !== undefined),
      isCut: maxLength !== undefined && examples.some(({ input }) => input.length > maxLength),
      hadAnswer: examples.some(({ weights }) => weights.some((weight) => weight > 0)),
    };
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

function nothingToLearn(
  { spoiltByCut, withoutAnswer }: Survey,
  { trainOn, maxLength }: RenderingOptions,
): ValidationError {
  return spoiltByCut.count > 0
    ? new ValidationError(
        "maxLength",
        `maxLength is ${maxLength}, and no row has an answer within that many tokens (the first is ${spoiltByCut.first})`,
      )
    : new ValidationError(
        "data",
        `data has no row with anything to learn for trainOn ${trainOn}: ${withoutAnswer.first} has no such message`,
      );
}

function remarksOn({ cut, spoiltByCut, withoutAnswer }: Survey, { maxLength, trainOn }: RenderingOptions) {
  const remark = ({ count, first }: Findings, text: string) =>
    count === 0 ? [] : [`${count === 1 ? "1 row" : `${count} rows`} ${text} (first: ${first})`];
  return [
    ...remark(cut, `cut after ${maxLength} tokens`),
    ...remark(spoiltByCut, `left out: no answer within ${maxLength} tokens`),
    ...remark(withoutAnswer, `left out: nothing to learn for ${trainOn}`),
  ];
}
