import { mainThread, type SessionRecord, type SessionThread } from "../../gateway/index.js";
import { type Message, textOf, thinkingOf } from "../../renderers/messages.js";
import { printable, printableLines, type Styles } from "../output/index.js";

/** A recorded session as text: its facts, then thread by thread who said what. */
export function* sessionLines(record: SessionRecord, styles: Styles): Generator<string, void, undefined> {
  const { bold, dim } = styles;
  const { id, startedAt, endedAt, end, reward, tags, group, step, counts, problem, ignored } = record;
  const times = `${date(startedAt)} to ${endedAt === undefined ? "(no end recorded)" : date(endedAt)}`;
  yield bold(`session ${printable(id)}`);
  yield `${times}${end === undefined ? "" : `, ${end}`}`;
  const facts = [
    reward !== undefined && `reward ${reward}`,
    group !== undefined && `group ${group}`,
    step !== undefined && `step ${step}`,
    `${counts.requests} requests, ${counts.failures} failed, ${counts.unfinished} answers not completed`,
    `${counts.sampledTokens} sampled tokens`,
  ];
  yield facts.filter((fact) => fact !== false).join(", ");
  if (tags.length > 0) yield `tags: ${printable(tags.join(", "))}`;
  if (problem !== undefined) yield `problem: ${printable(JSON.stringify(problem))}`;
  if (ignored.length > 0) yield dim(`ignored in its requests: ${printable(ignored.join(", "))}`);
  const main = mainThread(record);
  for (const [place, thread] of record.threads.entries()) {
    yield "";
    yield bold(`thread ${place + 1}${thread === main && record.threads.length > 1 ? " (main)" : ""}`);
    yield* threadLines(thread, styles);
  }
}

function* threadLines(
  { fork, turns, passed = [], messages, tools }: SessionThread,
  { dim, cyan, yellow }: Styles,
): Generator<string, void, undefined> {
  if (fork !== undefined) {
    const { from, why, message } = fork;
    const place =
      from === undefined
        ? "shares no tokens with the others"
        : `leaves thread ${from.thread + 1} after turn ${from.turns}`;
    yield yellow(`fork at message ${message}, ${place}: ${printable(why)}`);
  }
  if (tools.length > 0) yield dim(`tools: ${printable(tools.map(({ name }) => name).join(", "))}`);
  const sampled = new Map(turns.map((turn) => [turn.messageCount, turn]));
  const answered = new Map(passed.map((turn) => [turn.messageCount, turn]));
  for (const [place, message] of messages.entries()) {
    const turn = sampled.get(place);
    const other = answered.get(place);
    const facts = [
      turn && `${turn.tokens.length} tokens behind ${turn.prompt.length}`,
      (turn ?? other)?.stopReason,
      turn?.isRepeated && "asked for again",
      (turn ?? other)?.model,
    ].filter(Boolean);
    yield cyan(`${place} ${printable(message.role)}`) +
      (facts.length > 0 ? dim(` (${printable(facts.join(", "))})`) : "");
    yield* messageLines(message, dim);
  }
  for (const { tokens, prompt, stopReason } of messages.length > 0 ? [] : turns)
    yield dim(
      `a plain prompt of ${prompt.length} tokens, ${tokens.length} sampled behind it (${stopReason})`,
    );
}

function* messageLines(message: Message, dim: Styles["dim"]): Generator<string, void, undefined> {
  const thinking = thinkingOf(message);
  if (thinking !== "") for (const line of printableLines(thinking).split("\n")) yield dim(`  ${line}`);
  const text = textOf(message);
  if (text !== "") for (const line of printableLines(text).split("\n")) yield `  ${line}`;
  for (const call of message.toolCalls ?? []) yield `  calls ${printable(`${call.name} ${call.arguments}`)}`;
  for (const { rawText } of message.unparsedToolCalls ?? [])
    yield `  calls, but not as JSON: ${printable(rawText)}`;
}

const date = (at: number) => new Date(at).toISOString().slice(0, 19).replace("T", " ");
