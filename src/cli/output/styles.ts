import { styleText } from "node:util";
import type { CommandContext } from "../context.js";

/** Functions that put a text into a colour or weight. */
export type Styles = Readonly<
  Record<"bold" | "dim" | "red" | "green" | "yellow" | "cyan", (text: string) => string>
>;

/** Colours and weights for a stream, which leave text alone where nobody can see or wants them. */
export function stylesFor(context: CommandContext, stream: NodeJS.WriteStream): Styles {
  const isOn =
    stream.isTTY === true &&
    context.globals().color &&
    !process.env["NO_COLOR"] &&
    process.env["TERM"] !== "dumb";
  const style = (name: keyof Styles) => (text: string) =>
    isOn ? styleText(name, text, { validateStream: false }) : text;
  return {
    bold: style("bold"),
    dim: style("dim"),
    red: style("red"),
    green: style("green"),
    yellow: style("yellow"),
    cyan: style("cyan"),
  };
}
