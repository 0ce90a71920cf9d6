import { styleText } from "node:util";
import type { CommandContext } from "../context.js";

/** Functions that add a colour or weight to a text. */
export type Styles = Readonly<
  Record<"bold" | "dim" | "red" | "green" | "yellow" | "cyan", (text: string) => string>
>;

/** Colours and weights for a stream; text stays plain if it is not a terminal or colours are off. */
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
