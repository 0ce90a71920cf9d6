import { renderTemplate } from "./jinja/interpreter.js";
import { templateParser } from "./jinja/parse.js";
import { type Callable, toValue } from "./jinja/values.js";

/** Writes a text from the variables of a template; `now` is the time that it may print. */
export type RenderTemplate = (variables: Readonly<Record<string, unknown>>, now?: () => Date) => string;

/**
 * Loads what compiles Jinja templates. Templates come from strangers: each rendering has a budget of steps, of time and
 * of size, and ends with an error beyond it.
 */
export async function templateCompiler(): Promise<(source: string) => RenderTemplate> {
  const parse = await templateParser();
  return (source) => {
    const template = parse(source);
    return (variables, now = () => new Date()) =>
      renderTemplate(template, [
        ...CONSTANTS,
        ["strftime_now", (([format]) => writeTime(now(), String(format))) satisfies Callable],
        ...Object.entries(variables).map(([name, value]) => [name, toValue(value)] as const),
      ]);
  };
}

/** Names that every template may use, besides the functions of Jinja. */
const CONSTANTS: readonly (readonly [string, unknown])[] = [
  ...Object.entries({ true: true, false: false, none: null, True: true, False: false, None: null }),
  [
    "raise_exception",
    (([message]) => {
      throw new Error(String(message));
    }) satisfies Callable,
  ],
];

/** Python's `strftime`, as far as templates use it, in English as Python is by default. */
function writeTime(date: Date, format: string): string {
  const name = (options: Intl.DateTimeFormatOptions) =>
    new Intl.DateTimeFormat("en-US", options).format(date);
  const two = (value: number) => String(value).padStart(2, "0");
  const parts: Readonly<Record<string, () => string>> = {
    Y: () => String(date.getFullYear()),
    y: () => two(date.getFullYear() % 100),
    m: () => two(date.getMonth() + 1),
    d: () => two(date.getDate()),
    b: () => name({ month: "short" }),
    B: () => name({ month: "long" }),
    a: () => name({ weekday: "short" }),
    A: () => name({ weekday: "long" }),
    w: () => String(date.getDay()),
    H: () => two(date.getHours()),
    I: () => two(date.getHours() % 12 || 12),
    p: () => (date.getHours() < 12 ? "AM" : "PM"),
    M: () => two(date.getMinutes()),
    S: () => two(date.getSeconds()),
    "%": () => "%",
  };
  return format.replaceAll(/%(-?)(.)/g, (text, plain: string, letter: string) => {
    const written = parts[letter]?.() ?? text;
    return plain ? written.replace(/^0(?=.)/, "") : written;
  });
}
