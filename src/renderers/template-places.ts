import { TinkerError } from "../errors.js";
import { type Message, textOf, thinkingOf } from "./messages.js";
import { isJsonObject, type JsonValue, readPythonJson } from "./python-json.js";
import { sharedLength, type TemplateFormat, TOOL_DECLARE } from "./template-format.js";

/** Place of a message in the text of its conversation, or why it cannot be trained on there. */
export type Place = { readonly start: number; readonly end: number } | { readonly why: string };

const MAX_SHOWN_LENGTH = 40;

/** An answer, from the end of the prompt that asks for it to the token that ends it. */
export function placeOfAnswer(
  format: TemplateFormat,
  messages: readonly Message[],
  index: number,
  write: () => string,
): Place {
  return orRefusal(() => {
    const message = messages[index]!;
    const signs = [...format.stops.values()];
    const text = write();
    const prompt = format.write(messages.slice(0, index), true);
    const whole = format.writeAnswered(messages.slice(0, index + 1), prompt);
    if (whole === undefined) {
      const ending = JSON.stringify(prompt.slice(-MAX_SHOWN_LENGTH));
      return {
        why: `the chat template begins an answer like this one otherwise than its prompt, which ends with ${ending}`,
      };
    }
    if (!text.startsWith(prompt)) {
      return { why: "the chat template writes what comes before it otherwise later on" };
    }
    const answer = whole.slice(prompt.length);
    const ends = signs.flatMap((sign) => (answer.includes(sign) ? [answer.indexOf(sign) + sign.length] : []));
    if (ends.length === 0) return { why: `the chat template does not write ${signs.join(" or ")} behind it` };
    const end = prompt.length + Math.min(...ends);
    if (!text.startsWith(whole.slice(0, end))) {
      return {
        why: "the chat template writes it otherwise as history than as the turn being produced; buildSupervisedExamples makes it an example of its own",
      };
    }
    return missing(message, whole.slice(prompt.length, end)) ?? { start: prompt.length, end };
  });
}

/** Text of a message that is not an answer, with the token that ends its turn if one follows. */
export function placeOfWords(
  format: TemplateFormat,
  messages: readonly Message[],
  index: number,
  text: string,
): Place {
  return orRefusal(() => {
    const message = messages[index]!;
    if (message.role === TOOL_DECLARE) return { why: "declared tools are only read with a chat template" };
    const [one, other] = ["0 probe 0", "1 probe 1"].map((content) =>
      format.write(messages.with(index, { ...message, content }), false),
    ) as [string, string];
    const start = sharedLength(one, other);
    const behind = one.slice(one.length - sharedLength(reversed(one), reversed(other)));
    if (one.slice(start, one.length - behind.length) !== "0 probe 0") {
      return { why: "the chat template does not write it in one place" };
    }
    if (
      text.length < start + behind.length ||
      !text.startsWith(one.slice(0, start)) ||
      !text.endsWith(behind)
    ) {
      return { why: "the chat template writes the rest of the conversation otherwise because of it" };
    }
    const end = text.length - behind.length;
    const sign = [...format.stops.values()].find((each) => behind.startsWith(each)) ?? "";
    return missing(message, text.slice(start, end)) ?? { start, end: end + sign.length };
  });
}

/** A template that leaves out part of a message would train on another message. */
function missing(message: Message, written: string): Place | undefined {
  const dense = (text: string) => text.replace(/\s+/g, "");
  const has = (text: string) => dense(written).includes(dense(text));
  if (!has(thinkingOf(message))) return { why: "the chat template leaves out its thoughts" };
  if (!has(textOf(message))) return { why: "the chat template leaves out its text, or changes it" };
  const call = message.toolCalls?.find(({ name }) => !has(name));
  if (call !== undefined) return { why: `the chat template leaves out its call to ${call.name}` };
  const lost = message.toolCalls?.find(
    ({ arguments: given }) => !textsIn(given).every((text) => has(text) || has(quoted(text))),
  );
  return lost && { why: `the chat template leaves out arguments of its call to ${lost.name}` };
}

/** The texts in a JSON value, whatever it is part of. */
function textsIn(json: string): readonly string[] {
  const collect = (value: JsonValue): readonly string[] => {
    if (typeof value === "string") return [value];
    if (Array.isArray(value)) return value.flatMap(collect);
    return isJsonObject(value) ? [...value.values()].flatMap(collect) : [];
  };
  try {
    return collect(readPythonJson(json));
  } catch {
    // Arguments that are not JSON are written unchanged, or refused.
    return [json];
  }
}

const quoted = (text: string): string => JSON.stringify(text).slice(1, -1);

function orRefusal(find: () => Place): Place {
  try {
    return find();
  } catch (error) {
    if (error instanceof TinkerError) return { why: error.message };
    throw error;
  }
}

const reversed = (text: string): string => text.split("").reverse().join("");
