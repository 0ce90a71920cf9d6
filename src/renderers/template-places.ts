import { TinkerError } from "../errors.js";
import { type Message, textOf, thinkingOf } from "./messages.js";
import type { TemplateFormat } from "./template-format.js";

/** Where a message stands in the text of its conversation, or why it cannot be learnt there. */
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
    if (signs.some((sign) => textOf(message).includes(sign) || thinkingOf(message).includes(sign))) {
      return { why: `it holds ${signs.join(" or ")}, which ends a turn, within its content` };
    }
    const text = write();
    const prompt = format.write(messages.slice(0, index), true);
    const whole = format.write(messages.slice(0, index + 1), false);
    if (!whole.startsWith(prompt)) {
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

/** The words of somebody else, with the token that ends a turn where one follows: what changes with the content. */
export function placeOfWords(
  format: TemplateFormat,
  messages: readonly Message[],
  index: number,
  text: string,
): Place {
  return orRefusal(() => {
    const message = messages[index]!;
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

/** Where a template leaves out what a message has, it is not the message that would be learnt. */
function missing(message: Message, written: string): Place | undefined {
  const dense = (text: string) => text.replace(/\s+/g, "");
  const has = (text: string) => dense(written).includes(dense(text));
  if (!has(thinkingOf(message))) return { why: "the chat template leaves out its thoughts" };
  if (!has(textOf(message))) return { why: "the chat template leaves out its text, or changes it" };
  const call = message.toolCalls?.find(({ name }) => !has(name));
  return call && { why: `the chat template leaves out its call to ${call.name}` };
}

function orRefusal(find: () => Place): Place {
  try {
    return find();
  } catch (error) {
    if (error instanceof TinkerError) return { why: error.message };
    throw error;
  }
}

/** How far two texts are the same. */
function sharedLength(one: string, other: string): number {
  let length = 0;
  while (length < one.length && one[length] === other[length]) length++;
  return length;
}

const reversed = (text: string): string => text.split("").reverse().join("");
