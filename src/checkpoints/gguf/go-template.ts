import type { ChatMessage } from "../../tokenizers/index.js";

/** Writes a conversation up to where the model's answer begins, without the token that opens a text. */
export type WriteConversation = (messages: readonly ChatMessage[]) => string;

/** Texts around the messages of each role. */
interface Frame {
  readonly beforeSystem: string;
  readonly afterSystem: string;
  /** In place of a system message, where there is none. */
  readonly withoutSystem: string;
  readonly beforeUser: string;
  readonly afterUser: string;
  readonly beforeAssistant: string;
  readonly afterAssistant: string;
  readonly beforeAnswer: string;
}

const SYSTEM = "The system says so.";
const FIRST = "A first question?";
const ANSWER = "An answer.";
const SECOND = "A second question?";
const message = (role: string, content: string): ChatMessage => ({ role, content });
const system = message("system", SYSTEM);
const opening = [message("user", FIRST), message("assistant", ANSWER), message("user", SECOND)];

/**
 * Ollama's template of a chat format, found by writing conversations and looking at the texts between the messages;
 * undefined if the format cannot be said as texts before and after each message.
 */
export function goTemplate(write: WriteConversation): string | undefined {
  try {
    const frame = frameOf(write);
    if (frame === undefined || !isTrue(frame, write)) return undefined;
    return templateOf(frame);
  } catch {
    // A template may refuse a conversation with a system message, for example.
    return undefined;
  }
}

function frameOf(write: WriteConversation): Frame | undefined {
  const whole = between(write([system, ...opening]), [SYSTEM, FIRST, ANSWER, SECOND]);
  const alone = between(write([message("user", FIRST)]), [FIRST]);
  if (whole === undefined || alone === undefined) return undefined;
  const [beforeSystem, systemToUser, userToAssistant, assistantToUser, end] = whole as [
    ...[string, string, string, string, string],
  ];
  const [start, endAlone] = alone as [string, string];
  // What stands before a user's message is what all texts before one have in common.
  const beforeUser = commonEnd(commonEnd(systemToUser, assistantToUser), start);
  const afterUser = commonStart(commonStart(userToAssistant, end), endAlone);
  return {
    beforeSystem,
    afterSystem: without(systemToUser, beforeUser),
    withoutSystem: without(start, beforeUser),
    beforeUser,
    afterUser,
    beforeAssistant: userToAssistant.slice(afterUser.length),
    afterAssistant: without(assistantToUser, beforeUser),
    beforeAnswer: end.slice(afterUser.length),
  };
}

/** Whether conversations that were not looked at are written as the format writes them. */
function isTrue(frame: Frame, write: WriteConversation): boolean {
  const longer = [...opening, message("assistant", "Yes."), message("user", "Why?")];
  return [longer, [system, ...longer], [system, message("user", "Hello.")]].every(
    (messages) => filled(frame, messages) === write(messages),
  );
}

function filled(frame: Frame, messages: readonly ChatMessage[]): string {
  const parts: Readonly<Record<string, readonly [string, string]>> = {
    system: [frame.beforeSystem, frame.afterSystem],
    user: [frame.beforeUser, frame.afterUser],
    assistant: [frame.beforeAssistant, frame.afterAssistant],
  };
  const texts = messages.map(({ role, content }) => parts[role]!.join(String(content)));
  return (messages[0]?.role === "system" ? "" : frame.withoutSystem) + texts.join("") + frame.beforeAnswer;
}

function templateOf(frame: Frame): string | undefined {
  if (Object.values(frame).some((text) => /\{\{|\}\}|"""/.test(text))) return undefined;
  const content = "{{ .Content }}";
  const start = frame.withoutSystem === "" ? "" : `{{ if not .System }}${frame.withoutSystem}{{ end }}`;
  return [
    `${start}{{ range .Messages }}`,
    `{{ if eq .Role "system" }}${frame.beforeSystem}${content}${frame.afterSystem}`,
    `{{ else if eq .Role "user" }}${frame.beforeUser}${content}${frame.afterUser}`,
    `{{ else if eq .Role "assistant" }}${frame.beforeAssistant}${content}${frame.afterAssistant}`,
    `{{ end }}{{ end }}${frame.beforeAnswer}`,
  ].join("");
}

/** The texts around the given ones; undefined if one of them is missing. */
function between(text: string, marks: readonly string[]): string[] | undefined {
  const parts: string[] = [];
  let from = 0;
  for (const mark of marks) {
    const at = text.indexOf(mark, from);
    if (at === -1) return undefined;
    parts.push(text.slice(from, at));
    from = at + mark.length;
  }
  return [...parts, text.slice(from)];
}

function without(text: string, end: string): string {
  return text.slice(0, text.length - end.length);
}

function commonStart(a: string, b: string): string {
  let length = 0;
  while (length < a.length && a[length] === b[length]) length += 1;
  return a.slice(0, length);
}

function commonEnd(a: string, b: string): string {
  let length = 0;
  while (length < Math.min(a.length, b.length) && a.at(-1 - length) === b.at(-1 - length)) length += 1;
  return length === 0 ? "" : a.slice(-length);
}
