import {
  asInts,
  type Draw,
  type F32,
  type I32,
  type Kernels,
  partsOf,
  sliceBuffer,
} from "../kernels/kernels.js";

/** A question about one row of logits, which stay on the device. */
export interface LogitQuestion {
  /** Tokens to draw. */
  draws: readonly Omit<Draw, "row">[];
  /** Tokens whose logprobs were requested. */
  targets: readonly number[];
  /** So many of the likeliest tokens. */
  topTokens: number;
  /** The row itself, which costs more than all the others together. */
  wantsLogits: boolean;
}

/** The answer to a question about one row of logits. */
export interface LogitAnswer {
  /** Not finite where the logits are not. */
  logSumExp: number;
  draws: { token: number; logprob: number }[];
  targetLogprobs: Float32Array;
  /** Likeliest first; fewer than asked for where the vocabulary is so small. */
  top: { tokens: Int32Array; logprobs: Float32Array };
  logits: Float32Array | undefined;
}

/** Rows of logits on the scratch stack, what is asked of each, and the targets of these questions: [rows, targetsPerRow]. */
export interface LogitRows {
  questions: readonly LogitQuestion[];
  logits: F32;
  vocabSize: number;
  targets: I32;
  targetsPerRow: number;
}

/** The questions' targets as a table; cells that were not asked for hold token 0. */
export function targetTable(questions: readonly LogitQuestion[]): {
  targets: Int32Array;
  targetsPerRow: number;
} {
  const targetsPerRow = questions.reduce((most, { targets }) => Math.max(most, targets.length), 1);
  const targets = new Int32Array(questions.length * targetsPerRow);
  questions.forEach((question, row) => {
    targets.set(question.targets, row * targetsPerRow);
  });
  return { targets, targetsPerRow };
}

/** One answer for each row, in order; all of them come in a single download. */
export async function answerQuestions(kernels: Kernels, rows: LogitRows): Promise<LogitAnswer[]> {
  const { questions, logits, vocabSize, targets, targetsPerRow } = rows;
  if (questions.length === 0) return [];
  const draws: Draw[] = [];
  const columns: number[] = [];
  const wantedRows: number[] = [];
  questions.forEach((question, row) => {
    for (const { temperature, topK, topP, random } of question.draws) {
      draws.push({ row, temperature, topK, topP, random });
    }
    columns.push(Math.min(question.topTokens, vocabSize));
    if (question.wantsLogits) wantedRows.push(row);
  });
  const cells = columns.reduce((sum, each) => sum + each, 0);
  const { starts, length } = partsOf([
    questions.length,
    targets.length,
    draws.length,
    draws.length,
    cells,
    cells,
    wantedRows.length * vocabSize,
  ]);
  const [sumsAt, targetsAt, drawnAt, drawnLogprobsAt, topAt, topLogprobsAt, copiesAt] = starts;
  const report = kernels.scratch(length);

  const logSumExp = sliceBuffer(report, sumsAt, questions.length);
  kernels.logSoftmaxGather({
    logprobs: sliceBuffer(report, targetsAt, targets.length),
    logSumExp,
    logits,
    targets,
    rows: questions.length,
    vocabSize,
    targetsPerRow,
  });
  if (draws.length > 0) {
    const tokens = asInts(sliceBuffer(report, drawnAt, draws.length));
    const logprobs = sliceBuffer(report, drawnLogprobsAt, draws.length);
    kernels.chooseTokens({ tokens, logprobs, logits, logSumExp, vocabSize, draws });
  }
  let cell = 0;
  for (const { start, count, value } of runsOf(columns)) {
    if (value > 0) {
      kernels.topTokens({
        tokens: asInts(sliceBuffer(report, topAt + cell, count * value)),
        logprobs: sliceBuffer(report, topLogprobsAt + cell, count * value),
        logits: sliceBuffer(logits, start * vocabSize, count * vocabSize),
        logSumExp: sliceBuffer(logSumExp, start, count),
        rows: count,
        vocabSize,
        columns: value,
      });
    }
    cell += count * value;
  }
  wantedRows.forEach((row, index) => {
    const copy = sliceBuffer(report, copiesAt + index * vocabSize, vocabSize);
    kernels.copy(copy, sliceBuffer(logits, row * vocabSize, vocabSize));
  });

  const floats = await kernels.download(report);
  const ints = new Int32Array(floats.buffer);
  const next = { draw: 0, cell: 0, copy: 0 };
  const floatsAt = (start: number, length: number) =>
    length > 0 ? floats.subarray(start, start + length) : NO_FLOATS;
  return questions.map((question, row) => {
    const { draw, cell, copy } = next;
    const width = columns[row]!;
    next.draw += question.draws.length;
    next.cell += width;
    next.copy += question.wantsLogits ? vocabSize : 0;
    return {
      logSumExp: floats[sumsAt + row]!,
      draws: question.draws.map((_, index) => ({
        token: ints[drawnAt + draw + index]!,
        logprob: floats[drawnLogprobsAt + draw + index]!,
      })),
      targetLogprobs: floatsAt(targetsAt + row * targetsPerRow, question.targets.length),
      top: {
        tokens: width > 0 ? ints.subarray(topAt + cell, topAt + cell + width) : NO_INTS,
        logprobs: floatsAt(topLogprobsAt + cell, width),
      },
      logits: question.wantsLogits ? floatsAt(copiesAt + copy, vocabSize) : undefined,
    };
  });
}

/** A view of nothing costs as much as any other, and most questions ask for little. */
const NO_FLOATS = new Float32Array(0);
const NO_INTS = new Int32Array(0);

/** Neighbours that are equal. */
function runsOf(values: readonly number[]): { start: number; count: number; value: number }[] {
  const runs: { start: number; count: number; value: number }[] = [];
  values.forEach((value, index) => {
    const last = runs.at(-1);
    if (last?.value === value) last.count += 1;
    else runs.push({ start: index, count: 1, value });
  });
  return runs;
}
