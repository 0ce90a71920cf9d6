import type { PlacedProblem, RoleReport, RowsReport } from "../../cookbook/data/check-rows.js";
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

/** More places than these are not listed in a table. */
const MAX_PLACES = 5;
const MAX_PROBLEMS = 100;

/** For programs; people see them as sentences, which name the field. */
const PROBLEM_COLUMNS: readonly Column<PlacedProblem>[] = [
  { header: "Row", name: "place", value: ({ place }) => place },
  { header: "Field", name: "field", value: ({ field }) => field },
  { header: "Problem", name: "message", value: ({ message }) => message },
];

const ROLE_COLUMNS: readonly Column<RoleReport>[] = [
  { header: "Role", name: "role", value: ({ role }) => role },
  { header: "Messages", name: "messages", value: ({ messages }) => messages, kind: "number" },
  { header: "Characters", name: "characters", value: ({ characters }) => characters, kind: "number" },
  { header: "Tokens", name: "tokens", value: ({ tokens }) => tokens, kind: "number", isOptional: true },
];

/** What was looked at, and how. */
export interface CheckedData extends RowsReport {
  readonly model?: string | undefined;
  readonly renderer?: string | undefined;
  readonly trainOn: TrainOn;
  readonly maxLength?: number | undefined;
}

/** Prints what was found: in a table for people, in JSON all of it, in CSV the problems. */
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
    { header: "Rows", name: "rows", value: ({ rows }) => rows, kind: "number" },
    ...(data.renderer === undefined ? [] : TOKEN_COLUMNS),
    { header: "Lengths", name: "lengths", value: lengthsText },
    ...(data.maxLength === undefined ? [] : [TOO_LONG]),
    {
      header: "Empty answers",
      name: "emptyAnswers",
      value: ({ emptyAnswers }) => placesText(emptyAnswers),
    },
    {
      header: "Duplicates",
      name: "duplicates",
      value: ({ duplicates }) => placesText(duplicates.map(({ place, of }) => `${place} is ${of}`)),
    },
  ]);
  if (data.roles.length === 0) return;
  context.stdout.write("\n");
  printList(context, data.roles, { columns: ROLE_COLUMNS, empty: "" });
}

const TOKEN_COLUMNS: readonly Column<CheckedData>[] = [
  { header: "Renderer", name: "renderer", value: ({ renderer }) => renderer },
  { header: "Examples", name: "examples", value: ({ examples }) => examples, kind: "number" },
  { header: "Tokens", name: "tokens", value: ({ tokens }) => tokens, kind: "number" },
  {
    header: "Learnt",
    name: "learntTokens",
    value: ({ tokens = 0, learntTokens = 0, trainOn }) =>
      `${count(learntTokens)} tokens, ${((100 * learntTokens) / Math.max(1, tokens)).toFixed(1)}% (${trainOn})`,
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

function lengthsText({ lengths: { p50, p95, max }, renderer }: CheckedData): string {
  const unit = renderer === undefined ? "characters" : "tokens";
  return `half up to ${count(p50)} ${unit}, 95% up to ${count(p95)}, the longest ${count(max)}`;
}

function tooLongText({ tooLong, maxLength = 0 }: CheckedData): string {
  if (tooLong.length === 0) return `none over ${count(maxLength)} tokens`;
  const sum = (values: readonly number[]) => count(values.reduce((total, value) => total + value, 0));
  const cut = sum(tooLong.map(({ cutTokens }) => cutTokens));
  const learnt = sum(tooLong.map(({ cutLearntTokens }) => cutLearntTokens));
  return `${placesText(tooLong.map(({ place }) => place))}; ${cut} tokens are cut, ${learnt} of them learnt`;
}

function placesText(places: readonly string[]): string {
  if (places.length === 0) return "none";
  const more = places.length > MAX_PLACES ? ", …" : "";
  return `${count(places.length)} (${places.slice(0, MAX_PLACES).join(", ")}${more})`;
}

const count = (value: number) => value.toLocaleString("en-US");
