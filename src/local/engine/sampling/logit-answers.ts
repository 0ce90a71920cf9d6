import { asInts, type Draw, type F32, type I32, type Kernels, partsOf, slice } from "../kernels/kernels.js";

/** What is wanted of one row of logits, which stay where they were computed. */
export interface LogitQuestion {
  /** Tokens to draw. */
  draws: readonly Omit<Draw, "row">[];
  /** Tokens whose logprobs are wanted. */
  targets: readonly number[];
  /** So many of the likeliest tokens. */
  topTokens: number;
  /** The row itself, which costs more than all the others together. */
  wantsLogits: boolean;
}

/** What was found out about one row of logits. */
export interface LogitAnswer {
  /** Not finite where the logits are not. */
  logSumExp: number;
  draws: { token: number; logprob: number }[];
  targetLogprobs: Float32Array;
  /** Likeliest first; fewer than asked for where the vocabulary is so small. */
  top: { tokens: Int32Array; logprobs: Float32Array };
  logits: Float32Array | undefined;
}

/** Rows of logits on the scratch stack, and the targets of their questions: [rows, targetsPerRow]. */
export interface LogitRows {
  logits: F32;
  vocabSize: number;
  targets: I32;
  targetsPerRow: number;
}

/** The questions' targets as a table; cells that nobody asked for hold token 0. */
export function targetTable(questions: readonly LogitQuestion[]): {
  targets: Int32Array;
  targetsPerRow: number;
} {
  const targetsPerRow = Math.max(1, ...questions.map(({ targets }) => targets.length));
  const targets = new Int32Array(questions.length * targetsPerRow);
  questions.forEach((question, row) => {
    targets.set(question.targets, row * targetsPerRow);
  });
  return { targets, targetsPerRow };
}

/** One answer for each row, in order; all of them come in a single download. */
export async function answerQuestions(
  kernels: Kernels,
  rows: LogitRows,
  questions: readonly LogitQuestion[],
): Promise<LogitAnswer[]> {
  if (questions.length === 0) return [];
  const { logits, vocabSize, targets, targetsPerRow } = rows;
  const draws = questions.flatMap((question, row) => question.draws.map((draw) => ({ ...draw, row })));
  const columns = questions.map(({ topTokens }) => Math.min(topTokens, vocabSize));
  const cells = columns.reduce((sum, each) => sum + each, 0);
  const wantedRows = [...questions.keys()].filter((row) => questions[row]!.wantsLogits);
  const report = new Report(kernels, {
    logSumExp: questions.length,
    targetLogprobs: targets.length,
    drawn: draws.length,
    drawnLogprobs: draws.length,
    top: cells,
    topLogprobs: cells,
    logits: wantedRows.length * vocabSize,
  });

  const logSumExp = report.part("logSumExp");
  kernels.logSoftmaxGather({
    logprobs: report.part("targetLogprobs"),
    logSumExp,
    logits,
    targets,
    rows: questions.length,
    vocabSize,
    targetsPerRow,
  });
  if (draws.length > 0) {
    const [tokens, logprobs] = [asInts(report.part("drawn")), report.part("drawnLogprobs")];
    kernels.chooseTokens({ tokens, logprobs, logits, logSumExp, vocabSize, draws });
  }
  let cell = 0;
  for (const { start, count, value } of runsOf(columns)) {
    const part = (of: F32) => slice(of, cell, count * value);
    if (value > 0) {
      kernels.topTokens({
        tokens: asInts(part(report.part("top"))),
        logprobs: part(report.part("topLogprobs")),
        logits: slice(logits, start * vocabSize, count * vocabSize),
        logSumExp: slice(logSumExp, start, count),
        rows: count,
        vocabSize,
        columns: value,
      });
    }
    cell += count * value;
  }
  wantedRows.forEach((row, index) => {
    const copy = slice(report.part("logits"), index * vocabSize, vocabSize);
    kernels.copy(copy, slice(logits, row * vocabSize, vocabSize));
  });

  const read = await report.download();
  const [drawn, drawnLogprobs] = [read.ints("drawn"), read.floats("drawnLogprobs")];
  const [sums, targetLogprobs] = [read.floats("logSumExp"), read.floats("targetLogprobs")];
  const [top, topLogprobs] = [read.ints("top"), read.floats("topLogprobs")];
  const copies = read.floats("logits");
  const next = { draw: 0, cell: 0, copy: 0 };
  const part = <T extends Int32Array | Float32Array>(values: T, start: number, length: number) =>
    values.subarray(start, start + length) as T;
  return questions.map((question, row) => {
    const { draw, cell, copy } = next;
    const width = columns[row]!;
    next.draw += question.draws.length;
    next.cell += width;
    next.copy += question.wantsLogits ? vocabSize : 0;
    return {
      logSumExp: sums[row]!,
      draws: question.draws.map((_, index) => ({
        token: drawn[draw + index]!,
        logprob: drawnLogprobs[draw + index]!,
      })),
      targetLogprobs: part(targetLogprobs, row * targetsPerRow, question.targets.length),
      top:
        width > 0 ? { tokens: part(top, cell, width), logprobs: part(topLogprobs, cell, width) } : NO_TOKENS,
      logits: question.wantsLogits ? part(copies, copy, vocabSize) : undefined,
    };
  });
}

const NO_TOKENS = { tokens: new Int32Array(0), logprobs: new Float32Array(0) };

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

/** Results that one download brings. */
class Report<Part extends string> {
  readonly #kernels: Kernels;
  readonly #starts: Record<Part, number>;
  readonly #lengths: Record<Part, number>;
  readonly #buffer: F32;

  constructor(kernels: Kernels, lengths: Record<Part, number>) {
    const { starts, length } = partsOf(lengths);
    this.#kernels = kernels;
    this.#starts = starts;
    this.#lengths = lengths;
    this.#buffer = kernels.scratch(length);
  }

  part(name: Part): F32 {
    return slice(this.#buffer, this.#starts[name], this.#lengths[name]);
  }

  async download() {
    const floats = await this.#kernels.download(this.#buffer);
    const ints = new Int32Array(floats.buffer);
    const bounds = (name: Part) => [this.#starts[name], this.#starts[name] + this.#lengths[name]] as const;
    return {
      floats: (name: Part) => floats.subarray(...bounds(name)),
      ints: (name: Part) => ints.subarray(...bounds(name)),
    };
  }
}
