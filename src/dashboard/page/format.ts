const SECOND = 1;
const UNITS: readonly (readonly [name: string, seconds: number])[] = [
  ["d", 86_400],
  ["h", 3600],
  ["min", 60],
  ["s", SECOND],
];

/** Less than this is not worth an ellipsis. */
const MIN_CUT_LENGTH = 12;

/** A number in few characters that loses nothing a person would miss. */
export function shortNumber(value: number | null | undefined): string {
  if (value === undefined) return "";
  if (value === null || !Number.isFinite(value)) return "not a number";
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (size >= 1e6 || size < 1e-3) return value.toExponential(2).replace("e+", "e");
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  return value.toPrecision(4);
}

/** A whole number with its thousands apart. */
export function wholeNumberText(value: number): string {
  return Math.round(value).toLocaleString("en-US");
}

/** How many steps a run has done, and of how many if that is known. */
export function stepsText({
  steps = 0,
  progress,
}: {
  steps?: number | undefined;
  progress?: number | undefined;
}) {
  const total = progress === undefined || progress <= 0 ? undefined : Math.round(steps / progress);
  if (total === undefined || total <= steps)
    return `${wholeNumberText(steps)} ${steps === 1 ? "step" : "steps"}`;
  return `${wholeNumberText(steps)} of ${wholeNumberText(total)} steps`;
}

/** How long something took, in its two greatest units. */
export function durationLabel(seconds: number): string {
  if (Number.isNaN(seconds)) return "unknown";
  if (seconds < 1) return `${seconds.toFixed(1)} s`;
  const index = UNITS.findIndex(([, length]) => seconds >= length);
  const [name, length] = UNITS[index]!;
  const whole = Math.floor(seconds / length);
  const next = UNITS[index + 1];
  const rest = next === undefined ? 0 : Math.floor((seconds - whole * length) / next[1]);
  return rest === 0 ? `${whole} ${name}` : `${whole} ${name} ${rest} ${next![0]}`;
}

/** How long ago something was. */
export function age(milliseconds: number, now = Date.now()): string {
  const seconds = Math.max(0, (now - milliseconds) / 1000);
  if (Number.isNaN(seconds)) return "unknown";
  if (seconds < 10) return "just now";
  const index = UNITS.findIndex(([, length]) => seconds >= length);
  const [name, length] = UNITS[index]!;
  return `${Math.floor(seconds / length)} ${name} ago`;
}

/** A number of bytes. */
export function bytes(value: number): string {
  const units = ["B", "KB", "MB", "GB", "TB"];
  const power = value < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(value) / 3));
  const scaled = value / 1000 ** power;
  return `${scaled >= 100 || power === 0 ? Math.round(scaled) : scaled.toFixed(1)} ${units[power]}`;
}

/** The part of each name that differs from the others: runs of a search often differ in a few characters. */
export function distinctNames(names: readonly string[]): readonly string[] {
  const [first = ""] = names;
  if (names.length < 2) return names;
  const commonLength = (at: (name: string, place: number) => string | undefined) => {
    let length = 0;
    while (length < first.length && names.every((name) => at(name, length) === at(first, length)))
      length += 1;
    return length;
  };
  const begin = commonLength((name, place) => name[place]);
  const end = commonLength((name, place) => name.at(-1 - place));
  // Whole words stay whole.
  const start = begin < MIN_CUT_LENGTH ? 0 : first.slice(0, begin).search(/[^\W_]*$/);
  const rest = end < MIN_CUT_LENGTH ? 0 : first.slice(first.length - end).replace(/^[^\W_]*/, "").length;
  return names.map((name) => {
    const stop = name.length - rest;
    return stop <= start ? name : `${start > 0 ? "…" : ""}${name.slice(start, stop)}${rest > 0 ? "…" : ""}`;
  });
}
