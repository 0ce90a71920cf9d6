import type { PlacedProblem, RoleReport, RowsReport } from "../../cookbook/data/check-rows.js";
import type { OverlappingRow } from "../../cookbook/data/repeated-rows.js";
import type { TrainOn } from "../../renderers/index.js";
import type { CommandContext } from "../context.js";
import {
  type Column,
  printable,
  printItem,
  printJson,
  printList,
  stylesFor,
  wrapText,
} from "../output/index.js";

/** Longest list of positions in a table. */
const MAX_PLACES = 5;
const MAX_PROBLEMS = 100;

/** Only for programs; people see sentences that name the field. */
const PROBLEM_COLUMNS: readonly Column<PlacedProblem>[] = [
  { header: "Row", name: "place" },
  { header: "Field", name: "field" },
  { header: "Problem", name: "message" },
];

const ROLE_COLUMNS: readonly Column<RoleReport>[] = [
  { header: "Role", name: "role" },
  { header: "Messages", name: "messages", kind: "number" },
  { header: "Characters", name: "characters", kind: "number" },
  { header: "Tokens", name: "tokens", kind: "number", isOptional: true },
];

/** The checked files, and the settings of the check. */
export interface CheckedData extends RowsReport {
  readonly model?: string | undefined;
  readonly renderer?: string | undefined;
  readonly trainOn: TrainOn;
  readonly maxLength?: number | undefined;
}

/** Prints the findings: tables for people, everything in JSON, the problems in CSV. */
export function printReport(context: CommandContext, data: CheckedData): void {
  const { format } = context.globals();
  switch (format) {
    case "json":
      printJson(context, { ok: data.wrongRows === 0, ...data });
      return;
    case "csv":
      printList(context, data.problems, { columns: PROBLEM_COLUMNS, empty: "" });
      return;
    case "table":
      printSummary(context, data);
      printProblems(context, data.problems);
      return;
    default:
      format satisfies never;
  }
}

function printSummary(context: CommandContext, data: CheckedData): void {
  printItem(context, data, [
    { header: "Rows", name: "rows", kind: "number" },
    { header: "Format", name: "formats", value: formatsText },
    { header: "Test rows", name: "testRows", kind: "number" },
    ...(data.renderer === undefined ? [] : TOKEN_COLUMNS),
    { header: "Lengths", name: "lengths", value: lengthsText },
    ...(data.maxLength === undefined ? [] : [TOO_LONG]),
    { header: "Empty answers", name: "emptyAnswers", value: ({ emptyAnswers }) => placesText(emptyAnswers) },
    {
      header: "Duplicates",
      name: "duplicates",
      value: ({ duplicates, rows, wrongRows, comparedRows }) => {
        const places = placesText(duplicates.map(({ place, of }) => `${place} is ${of}`));
        const isPart = comparedRows < rows - wrongRows;
        return isPart ? `${places}, among the first ${count(comparedRows)} rows` : places;
      },
    },
    { header: "Overlap", name: "overlap", value: ({ overlap }) => overlapText(overlap) },
  ]);
  if (data.roles.length === 0) return;
  printHistogram(context, data);
  context.stdout.write("\n");
  printList(context, data.roles, { columns: ROLE_COLUMNS, empty: "" });
}

const TOKEN_COLUMNS: readonly Column<CheckedData>[] = [
  { header: "Renderer", name: "renderer" },
  { header: "Examples", name: "examples", kind: "number" },
  { header: "Tokens", name: "tokens", kind: "number" },
  {
    header: "Trained on",
    name: "trainedTokens",
    value: ({ tokens = 0, trainedTokens = 0, trainOn }) =>
      `${count(trainedTokens)} tokens, ${((100 * trainedTokens) / Math.max(1, tokens)).toFixed(1)}% (${trainOn})`,
  },
];

const TOO_LONG: Column<CheckedData> = { header: "Too long", name: "tooLong", value: tooLongText };

function printProblems(context: CommandContext, problems: readonly PlacedProblem[]): void {
  const { stdout } = context;
  const { bold, red } = stylesFor(context, stdout);
  if (problems.length > 0) stdout.write(`\n${bold("PROBLEMS")}\n`);
  const width = stdout.isTTY ? stdout.columns || 80 : Number.POSITIVE_INFINITY;
  for (const { place, message } of problems.slice(0, MAX_PROBLEMS)) {
    const lines = wrapText(printable(`${place}: ${message}`), width);
    stdout.write(`${red(lines.slice(0, place.length))}${lines.slice(place.length)}\n`);
  }
  const more = problems.length - MAX_PROBLEMS;
  if (more > 0) context.notify(`and ${count(more)} more: --json and --format csv have all of them`);
}

const BAR_WIDTH = 40;

/** A line for each range of lengths. */
function printHistogram(context: CommandContext, { histogram, renderer }: CheckedData): void {
  const ranges = histogram.map(({ from, to }) => `${count(from)}-${count(to)}`);
  const width = Math.max(...ranges.map(({ length }) => length));
  const most = Math.max(...histogram.map((range) => range.count));
  const unit = renderer === undefined ? "characters" : "tokens";
  const { bold, green } = stylesFor(context, context.stdout);
  context.stdout.write(`\n${bold(`LENGTHS IN ${unit.toUpperCase()}`)}\n`);
  for (const [index, range] of histogram.entries()) {
    const bar = "█".repeat(Math.ceil((BAR_WIDTH * range.count) / most));
    context.stdout.write(`${ranges[index]!.padStart(width)}  ${green(bar)} ${count(range.count)}\n`);
  }
}

function formatsText({ formats }: CheckedData): string {
  const found = Object.entries(formats);
  return found.length === 1
    ? found[0]![0]
    : found.map(([name, rows]) => `${name} (${count(rows)} rows)`).join(", ") || "unknown";
}

function overlapText(overlap: readonly OverlappingRow[]): string {
  if (overlap.length === 0) return "none";
  const same = overlap.filter(({ sameAnswer }) => sameAnswer).length;
  const places = placesText(overlap.map(({ place, of }) => `${place} asks what ${of} does`));
  return `${places}; ${count(same)} with the same answer`;
}

function lengthsText({ lengths: { p50, p95, max }, renderer }: CheckedData): string {
  const unit = renderer === undefined ? "characters" : "tokens";
  return `half up to ${count(p50)} ${unit}, 95% up to ${count(p95)}, the longest ${count(max)}`;
}

function tooLongText({ tooLong, maxLength = 0 }: CheckedData): string {
  if (tooLong.length === 0) return `none over ${count(maxLength)} tokens`;
  const sum = (values: readonly number[]) => count(values.reduce((total, value) => total + value, 0));
  const cut = sum(tooLong.map(({ cutTokens }) => cutTokens));
  const trained = sum(tooLong.map(({ cutTrainedTokens }) => cutTrainedTokens));
  return `${placesText(tooLong.map(({ place }) => place))}; ${cut} tokens are cut, ${trained} of them trained on`;
}

function placesText(places: readonly string[]): string {
  if (places.length === 0) return "none";
  const more = places.length > MAX_PLACES ? ", …" : "";
  return `${count(places.length)} (${places.slice(0, MAX_PLACES).join(", ")}${more})`;
}

const count = (value: number) => value.toLocaleString("en-US");
